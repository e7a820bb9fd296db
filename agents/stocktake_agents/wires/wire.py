"""What the three dialects share: one attempt at one answer, with the optional parameters that a model puts up with."""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stocktake_agents.conversation import Message
from stocktake_agents.errors import Fault
from stocktake_agents.provider import ToolCall, Turn
from stocktake_agents.wires.complaints import Complaint, shorten
from stocktake_agents.wires.connection import Answer, Connection, Refused


@dataclass(frozen=True)
class Setup:
    """What a run asks of its model; no key is in it.

    Attributes:
        provider: "anthropic", "openai", "openrouter" or "local".
        model: the provider's name for the model.
        base_url: where requests go.
        max_output_tokens: the most tokens of one answer.
        effort: how hard to think, in the provider's word; None leaves it to the model.
        temperature: sampling temperature; None leaves it to the model.
        hosts: the only hosts which may serve it, where a provider passes requests on; empty leaves it to the provider.
    """

    provider: str
    model: str
    base_url: str
    max_output_tokens: int
    effort: str | None = None
    temperature: float | None = None
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Option:
    """A parameter that a request can do without.

    Attributes:
        name: what it is called in ``dropped``.
        body: what it adds to a request.
        pattern: how servers name it when they refuse it, a regular expression.
        headers: what it adds to the headers.
    """

    name: str
    body: Mapping[str, Any]
    pattern: str
    headers: Mapping[str, str] = field(default_factory=dict)


class ModelWire(ABC):
    """A ``Wire``, but for the dialect: where requests go, what they say and how answers are read.

    Attributes:
        path: of its requests.
        sent: the parameters of its requests beside model, conversation and tools.
        dropped: optional parameters the model refused, with its words; later requests leave them out.
    """

    path: str
    sent: Mapping[str, Any]
    dropped: Mapping[str, str]

    def __init__(self, setup: Setup, connection: Connection) -> None:
        self.setup = setup
        self._connection = connection
        self._options = self.options()
        self._drop({})

    async def turn(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> Turn:
        """One answer to ``messages``; the one thing tried again at once is a request without a refused option.

        Raises:
            ProviderError: there is no usable answer.
        """
        asked = {"model": self.setup.model, **self.request(messages, tools)}
        while True:
            kept = self._kept()
            headers = {name: value for option in kept for name, value in option.headers.items()}
            try:
                answer = await self._connection.post(self.path, {**asked, **self.sent}, headers)
                return self.read(answer, messages)
            except Refused as refused:
                if refused.complaint.overflow:
                    return Turn(stop="context_overflow")
                option = blamed(refused.complaint, kept)
                if option is None:
                    raise
                # Another request under way may have dropped it already; the first words stay.
                self._drop({option.name: shorten(refused.complaint.message), **self.dropped})

    async def close(self) -> None:
        """Closes the connections."""
        await self._connection.close()

    def _kept(self) -> list[Option]:
        return [option for option in self._options if option.name not in self.dropped]

    def _drop(self, dropped: Mapping[str, str]) -> None:
        self.dropped = dropped
        self.sent = merged(self.fixed(), *(option.body for option in self._kept()))

    @abstractmethod
    def fixed(self) -> dict[str, Any]:
        """The parameters that every request has."""

    @abstractmethod
    def options(self) -> list[Option]:
        """The parameters that a request can do without."""

    @abstractmethod
    def request(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The conversation and the tools, in the dialect."""

    @abstractmethod
    def read(self, answer: Answer, messages: Sequence[Message]) -> Turn:
        """The turn that an answer is; raises ``ProviderError`` when it is none."""

    @abstractmethod
    async def look_up(self) -> Mapping[str, Any]:
        """What the provider says of the model: ``context`` and ``max_output`` in tokens, or None where it is silent."""


def temperature(setup: Setup, headers: Mapping[str, str] | None = None) -> list[Option]:
    """The one sampling parameter, if it was asked for."""
    if setup.temperature is None:
        return []
    return [Option("temperature", {"temperature": setup.temperature}, "temperature", headers or {})]


def blamed(complaint: Complaint, options: Sequence[Option]) -> Option | None:
    """The one option that a server refused, or None: where it could be two or a part of the conversation, none is."""
    if complaint.status not in (400, 422) or complaint.fault is not Fault.REJECTED:
        return None
    text = complaint.param or complaint.message
    if re.search(r"\b(messages|input)(\.\d|\[)", text):
        return None
    named = [option for option in options if re.search(option.pattern, text, re.IGNORECASE)]
    return named[0] if len(named) == 1 else None


def merged(*bodies: Mapping[str, Any]) -> dict[str, Any]:
    """Objects laid over one another, inner objects too."""
    whole: dict[str, Any] = {}
    for body in bodies:
        for key, value in body.items():
            old = whole.get(key)
            whole[key] = merged(old, value) if isinstance(old, dict) and isinstance(value, Mapping) else value
    return whole


def own_ids(given: Sequence[Any], messages: Sequence[Message]) -> list[str]:
    """An id for every call of a turn: the model's own, or a made one where that is missing or taken."""
    turns = sum(message["role"] == "assistant" for message in messages)
    ids: list[str] = []
    for index, name in enumerate(given):
        if not isinstance(name, str) or not name or name in ids:
            name = f"call_{turns}_{index}"
            while name in ids or name in given:
                name += "_"
        ids.append(name)
    return ids


def whole(arguments: str) -> bool:
    """Whether arguments are a complete JSON object."""
    try:
        return isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        return False


def raw_text(arguments: Any) -> str:
    """Arguments as text, for servers which send them as JSON already."""
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def own_calls(message: Message) -> list[ToolCall]:
    """The calls of an earlier turn."""
    return [ToolCall(**call) for call in message["turn"]["calls"]]


def count(value: Any) -> int:
    """A number of tokens; what is missing or no number counts as 0."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def inner(value: Any, key: str) -> dict[str, Any]:
    """The object under a key, or an empty one."""
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def text_or_none(value: Any) -> str | None:
    """A text, or None for anything else."""
    return value if isinstance(value, str) else None


def objects(value: Any) -> list[dict[str, Any]]:
    """The objects of a list; nothing for what is no list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
