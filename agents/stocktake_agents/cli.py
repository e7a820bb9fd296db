"""What the command lines share: errors as one sentence and an exit code, and the command that resumes."""

import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from stocktake_agents.errors import LogError, UsageError
from stocktake_agents.runner import Outcome

FILE = click.Path(path_type=Path)
_MODEL_OPTIONS = (
    click.option("--effort", help="How hard the model is to think, in the provider's words (low, medium, high ...)."),
    click.option("--temperature", type=click.FloatRange(0, 2), help="Sent only if given."),
    click.option("--max-output-tokens", type=click.IntRange(256, 1_000_000), help="The most tokens of one answer."),
    click.option("--base-url", help="Where requests go, if not to the provider's own address."),
    click.option("--openrouter-provider", help="The one host that OpenRouter may pass requests on to."),
    click.option("--prices", type=FILE, help="Prices of tokens (JSON, by model string)."),
)


def model_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that tell a model behind an API apart from others of its name, and what its tokens cost."""
    for option in reversed(_MODEL_OPTIONS):
        command = option(command)
    return command


def resume_command() -> str:
    """The command that was given, which also resumes."""
    return shlex.join(sys.orig_argv)


@contextmanager
def exit_codes() -> Iterator[None]:
    """Turns the errors of a run into a sentence on stderr and an exit code."""
    try:
        yield
    except UsageError as error:
        _leave(f"Error: {error}", 2)
    except LogError as error:
        _leave(f"Error: {error}", 1)
    except KeyboardInterrupt:
        _leave(f"Aborted; every finished week is kept. Resume with:\n  {resume_command()}", 130)


def leave_unless_complete(outcome: Outcome) -> None:
    """Says what went wrong and how to go on, and exits with the outcome's code; returns when all episodes ended."""
    for problem in outcome.problems:
        click.echo(f"Error: {problem}", err=True)
    if outcome.exit_code:
        reason = "Stopped" if outcome.interrupted else "Incomplete"
        _leave(f"{reason}; every finished week is kept. Resume with:\n  {resume_command()}", outcome.exit_code)


def _leave(message: str, code: int) -> None:
    click.echo(message, err=True)
    raise SystemExit(code)
