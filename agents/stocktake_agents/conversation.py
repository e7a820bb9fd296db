"""What an agent reads: the rules once, the report of week 0, and one report for every week it commits.

Messages are plain JSON objects in no provider's dialect; a provider translates them into its own.

- ``{"role": "system" | "user", "content": text}``
- ``{"role": "assistant", "turn": Turn.to_json()}``; its ``extra`` is the provider's own form of the same
- ``{"role": "tool", "id": call id, "name": tool, "content": text, "error": bool, "unwrapped": bool}``

The report that follows a committed week is the result of the ``place_order`` call that committed it, so that no
user message has to stand between a tool's result and the next answer.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Message = dict[str, Any]

NUDGE = "No tool was called, so nothing has happened. Call place_order to commit this week; order 0 to order nothing."
SHORTER = "The answer was cut off before it called a tool, so nothing has happened. Answer shorter, with a tool call."


class Conversation:
    """The messages of one episode so far, and a hash that names them.

    Attributes:
        messages: what the next answer is to; only ever appended to.
    """

    def __init__(self, system: str, tools: Sequence[Mapping[str, Any]], report: Mapping[str, Any]) -> None:
        """Opens with the rules and the report of week 0; ``tools`` go into the hash."""
        self.messages: list[Message] = []
        self._hash = hashlib.sha256(canonical(tools))
        self._add({"role": "system", "content": system})
        self._add({"role": "user", "content": json.dumps(report)})

    @property
    def request_hash(self) -> str:
        """Names the request that the next answer is to: its messages and its tools."""
        return self._hash.hexdigest()

    def add_answer(self, turn: Mapping[str, Any], results: Iterable[Mapping[str, Any]], nudge: str | None) -> None:
        """Appends an answer and what came of it.

        Args:
            turn: the answer, ``Turn.to_json()``.
            results: of its calls, ``Result.to_json()`` each.
            nudge: the reminder that follows an answer without a call, or None.
        """
        self._add({"role": "assistant", "turn": turn})
        for result in results:
            self._add({"role": "tool", **result})
        if nudge is not None:
            self._add({"role": "user", "content": nudge})

    def _add(self, message: Message) -> None:
        self.messages.append(message)
        self._hash.update(canonical(message) + b"\n")


def latest_report(messages: Sequence[Message]) -> dict[str, Any]:
    """The report that the next answer is about."""
    for message in reversed(messages):
        if message["role"] == "tool" and message["name"] == "place_order" and not message["error"]:
            return dict(json.loads(message["content"]))
    return dict(json.loads(messages[1]["content"]))


def canonical(value: Any) -> bytes:
    """A JSON value as bytes, whatever the order of its keys."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode("ascii")


def digest(value: Any) -> str:
    """SHA-256 of a JSON value."""
    return hashlib.sha256(canonical(value)).hexdigest()
