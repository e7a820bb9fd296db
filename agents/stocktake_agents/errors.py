"""The three ways in which a run can fail, each with its own exit code."""


class UsageError(Exception):
    """Bad use, exit code 2. The message is one sentence: what was wrong and what would be right."""


class LogError(Exception):
    """A log that cannot be trusted, exit code 1. The message names the file and the line."""


class ProviderError(Exception):
    """A model could not be reached or gave no usable answer. The episode stays open and can be resumed."""
