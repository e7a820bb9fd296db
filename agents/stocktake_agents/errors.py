"""The ways in which a run can fail."""

import enum


class UsageError(Exception):
    """Bad use, exit code 2. The message is one sentence: what was wrong and what would be right."""


class LogError(Exception):
    """A log that cannot be trusted, exit code 1. The message names the file and the line."""


class Fault(enum.StrEnum):
    """What went wrong with a request, by what it asks of the caller.

    ========= ====================================================================== ============================
    fault     when                                                                   what follows
    ========= ====================================================================== ============================
    throttled 429                                                                    tried again, fewer at a time
    transient 408, 409, 425, 5xx, 529, a lost connection, a 200 that holds no answer tried again
    timeout   no answer within the deadline of an attempt or of the episode          tried again while there is time
    rejected  any other refusal of this request                                      the episode stays open
    truncated a server that cut the conversation short without saying so             the episode stays open
    account   401, 403, no such model                                                the whole run stops
    quota     402, no credit left, the budget spent                                  the whole run stops
    ========= ====================================================================== ============================
    """

    THROTTLED = "throttled"
    TRANSIENT = "transient"
    TIMEOUT = "timeout"
    REJECTED = "rejected"
    TRUNCATED = "truncated"
    ACCOUNT = "account"
    QUOTA = "quota"

    @property
    def retried(self) -> bool:
        """Whether another attempt may help."""
        return self in (Fault.THROTTLED, Fault.TRANSIENT, Fault.TIMEOUT)

    @property
    def stops_run(self) -> bool:
        """Whether every other request would meet the same."""
        return self in (Fault.ACCOUNT, Fault.QUOTA)

    @property
    def status(self) -> str:
        """The status of an episode that ended for now because of it."""
        return {Fault.TIMEOUT: "timeout", Fault.QUOTA: "quota"}.get(self, "provider")


class ProviderError(Exception):
    """A model could not be reached or gave no usable answer. The episode stays open and can be resumed.

    Attributes:
        fault: of which kind.
        after: seconds the server asks to wait, or None.
        billed: whether the request may be billed all the same.
    """

    def __init__(
        self, message: str, fault: Fault = Fault.REJECTED, after: float | None = None, billed: bool = False
    ) -> None:
        super().__init__(message)
        self.fault = fault
        self.after = after
        self.billed = billed
