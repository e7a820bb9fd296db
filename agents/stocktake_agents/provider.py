"""What an agent is to the harness: something that answers a conversation with one turn of tool calls.

A model behind an API, a scripted agent and a JAX policy all come in through ``Provider``. The harness asks nothing
else of them, so they share tools, checks, logs, resume and scores.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import stocktake_jax as st
from stocktake_agents.conversation import Message
from stocktake_agents.prices import Price
from stocktake_agents.usage import Usage


@dataclass(frozen=True)
class ToolCall:
    """One call as the model wrote it. ``arguments`` is raw text: nothing has parsed it yet, and it may be anything."""

    id: str
    name: str
    arguments: str


STOPS = ("calls", "end", "length", "refusal", "context_overflow")


@dataclass(frozen=True)
class Turn:
    """One answer of a model.

    Attributes:
        text: what it said beside its calls.
        calls: its tool calls in order, each with an id of its own.
        stop: why the answer ended, one of ``STOPS``: with calls, by itself, cut at the token limit, refused, or
            because the conversation no longer fits the model's context.
        usage: tokens used; None for agents that run in this process.
        usd: what the provider says the answer cost, $; None if it does not say.
        model: the model that answered, in the provider's words.
        host: who served it, where a provider passes requests on.
        request_id: the provider's name for the request.
        extra: provider-native content which must go back unchanged with the next request; JSON or None.
    """

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    stop: str = "calls"
    usage: Usage | None = None
    usd: float | None = None
    model: str | None = None
    host: str | None = None
    request_id: str | None = None
    extra: Any = None

    def __post_init__(self) -> None:
        if self.stop not in STOPS:
            raise ValueError(f"stop is {self.stop!r}: it must be one of {', '.join(STOPS)}")
        if len({call.id for call in self.calls}) < len(self.calls):
            raise ValueError("two calls of one turn share an id: a provider gives every call its own")

    def to_json(self) -> dict[str, Any]:
        """The turn as a plain JSON object; ``from_json`` is its inverse."""
        usage = None if self.usage is None else dict(vars(self.usage))
        return vars(self) | {"calls": [dict(vars(call)) for call in self.calls], "usage": usage}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Turn":
        """Reads back what ``to_json`` wrote."""
        calls = tuple(ToolCall(**call) for call in data["calls"])
        usage = None if data["usage"] is None else Usage(**data["usage"])
        return cls(**{**data, "calls": calls, "usage": usage})


class Provider(Protocol):
    """Answers a conversation. ``ProviderError`` says that no answer can be had now and leaves the episode open."""

    async def turn(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> Turn:
        """One answer to ``messages``, given the schemas of ``tools``. Makes one attempt: retries are the harness's."""
        ...


class Wire(Provider, Protocol):
    """A provider at the far end of a network, one for all episodes of a run; it keeps nothing of a conversation.

    Attributes:
        sent: the parameters of its requests beside model, conversation and tools.
        dropped: optional parameters that the model refused and that are no longer sent.
    """

    sent: Mapping[str, Any]
    dropped: Mapping[str, str]

    async def look_up(self) -> Mapping[str, Any]:
        """What the provider says of the model: ``context`` and ``max_output`` in tokens, or None where it is silent.

        Raises:
            ProviderError: the key is refused, there is no such model, or the provider cannot be reached.
        """
        ...

    async def close(self) -> None:
        """Closes its connections."""
        ...


@dataclass(frozen=True)
class Deadlines:
    """How long to wait, in seconds.

    Attributes:
        connect: for a connection.
        idle: for the next byte of an answer; answers do not stream, so a model that thinks long sends none for long.
        attempt: for a whole answer.
        episode: for an episode, in one run.
    """

    connect: float = 10.0
    idle: float = 600.0
    attempt: float = 900.0
    episode: float = 14_400.0


@dataclass(frozen=True)
class Service:
    """The API behind an agent.

    Attributes:
        provider: "anthropic", "openai", "openrouter" or "local".
        model: the provider's name for the model.
        base_url: where requests go, without credentials.
        connect: opens a wire with these deadlines and at least so many connections.
        max_output_tokens: the most tokens of one answer.
        price: dollars for tokens, or None when it is unknown.
        free: whether nobody sends a bill.
        local: whether it is a server of the user's own, which may cut conversations short in silence.
    """

    provider: str
    model: str
    base_url: str
    connect: Callable[[Deadlines, int], Wire]
    max_output_tokens: int
    price: Price | None = None
    free: bool = False
    local: bool = False


@dataclass(frozen=True)
class Agent:
    """A contestant.

    Attributes:
        model: its name.
        open: how it takes its seat for one repeat of a tape, when it runs in this process. It looks at the tape only
            to seed its own dice.
        settings: what goes into its hash beside the name.
        service: the API behind it, when it does not run in this process.
        reads: whether it reads the conversation as text. Scripts and policies know the plain report by its keys and
            cannot play where those are renamed.
    """

    model: str
    open: Callable[[st.Tape, int], Provider] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    service: Service | None = None
    reads: bool = False
