"""What servers say when they refuse: every provider's error body read into one form, and what it asks of the caller."""

import json
import re
from dataclasses import dataclass
from typing import Any

from stocktake_agents.errors import Fault

MAX_SHOWN = 400  # characters of a server's words in a message of ours

_NO_CREDIT = {"insufficient_quota", "billing_error", "billing_hard_limit_reached"}
_NO_ACCESS = {"model_not_found", "invalid_api_key", "authentication_error", "permission_error"}
_THROTTLED = {"rate_limit_exceeded", "rate_limit_error"}
_OVERFLOW_KINDS = {"context_length_exceeded", "exceed_context_size_error", "request_too_large"}
_OVERFLOW = re.compile(
    r"context[ _-](window|length|size|limit)|maximum model length|(prompt|input) is too long|"
    r"longer than the (model|maximum)|token count.{0,40} exceeds|too many input tokens",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Complaint:
    """A refusal in a server's own words.

    Attributes:
        where: the HTTP status as it came, for messages.
        status: the status that counts: an error inside a 200 brings its own.
        message: the server's words in full, keys taken out.
        kinds: its codes and types.
        param: the parameter it blames, where it says so in a field.
    """

    where: str
    status: int
    message: str
    kinds: frozenset[str] = frozenset()
    param: str | None = None

    @property
    def overflow(self) -> bool:
        """Whether the conversation no longer fits the model's context."""
        told = self.kinds & _OVERFLOW_KINDS or _OVERFLOW.search(self.message)
        return self.status in (400, 413, 422) and bool(told)

    @property
    def fault(self) -> Fault:
        """Of which kind it is."""
        if self.status == 402 or self.kinds & _NO_CREDIT or "credit balance is too low" in self.message:
            return Fault.QUOTA
        if self.status in (401, 403, 404) or self.kinds & _NO_ACCESS or "not a valid model ID" in self.message:
            return Fault.ACCOUNT
        if self.status == 429 or self.kinds & _THROTTLED:
            return Fault.THROTTLED
        if self.status in (408, 409, 425) or self.status >= 500:
            return Fault.TRANSIENT
        return Fault.REJECTED

    def __str__(self) -> str:
        return f"{self.where}: {shorten(self.message)}"


def read_complaint(status: int, text: str) -> Complaint:
    """Reads the body of an answer that is an error: JSON in any provider's form, an HTML page or plain text.

    Args:
        status: HTTP status; 200 for an error that came in the place of an answer.
        text: the body, keys taken out.
    """
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        return Complaint(f"HTTP {status}", status, plain(text))
    error = (body.get("error") or body) if isinstance(body, dict) else body
    if not isinstance(error, dict):
        return Complaint(f"HTTP {status}", _status(status, None, frozenset()), plain(str(error)))

    said = [error.get("message") or error.get("detail") or error.get("code") or json.dumps(error)]
    metadata = error.get("metadata")
    if isinstance(metadata, dict) and metadata.get("raw"):  # a router's copy of what the host behind it said
        said.append(metadata["raw"])
    kinds = frozenset(str(error[key]).lower() for key in ("code", "type") if error.get(key) is not None)
    counts = _status(status, error.get("code"), kinds)
    return Complaint(
        where=f"HTTP {status}" if counts == status else f"HTTP {status} with an error in it",
        status=counts,
        message=plain(" / ".join(words if isinstance(words, str) else json.dumps(words) for words in said)),
        kinds=kinds,
        param=error["param"] if isinstance(error.get("param"), str) else None,
    )


def _status(status: int, code: Any, kinds: frozenset[str]) -> int:
    """The status that counts. A 200 that is an error counts as what it says, or else as the server's own failure."""
    if status != 200:
        return status
    if isinstance(code, int) and 400 <= code < 600:
        return code
    return 400 if kinds & _OVERFLOW_KINDS or any(kind.startswith("invalid") for kind in kinds) else 500


def plain(text: str) -> str:
    """Text on one line, an HTML page without its tags."""
    if re.match(r"\s*<(!doctype|html|head|body)", text, re.IGNORECASE):
        text = "an HTML page: " + re.sub(r"<(script|style).*?</\1>|<[^>]*>", " ", text, flags=re.IGNORECASE | re.DOTALL)
    return " ".join(text.split()) or "an empty answer"


def shorten(text: str) -> str:
    """The beginning of a long text."""
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 3] + "..."
