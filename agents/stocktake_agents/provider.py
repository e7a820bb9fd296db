"""What an agent is to the harness: something that answers a conversation with one turn of tool calls.

A model behind an API, a scripted agent and a JAX policy all come in through ``Provider``. The harness asks nothing
else of them, so they share tools, checks, logs, resume and scores.
"""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import stocktake_jax as st
from stocktake_agents.conversation import Message, latest_report

Call = tuple[str, dict[str, Any]]
Script = Callable[[dict[str, Any], random.Random], list[Call]]


@dataclass(frozen=True)
class ToolCall:
    """One call as the model wrote it. ``arguments`` is raw text: nothing has parsed it yet, and it may be anything."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class Turn:
    """One answer of a model.

    Attributes:
        text: what it said beside its calls.
        calls: its tool calls in order, each with an id of its own.
        stop: why the answer ended, in the provider's words.
        usage: what the provider says it used; empty for agents that run in this process.
        extra: provider-native content which must go back unchanged with the next request; JSON or None.
    """

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    stop: str = "tool_calls"
    usage: Mapping[str, Any] = field(default_factory=dict)
    extra: Any = None

    def __post_init__(self) -> None:
        if len({call.id for call in self.calls}) < len(self.calls):
            raise ValueError("two calls of one turn share an id: a provider gives every call its own")

    def to_json(self) -> dict[str, Any]:
        """The turn as a plain JSON object; ``from_json`` is its inverse."""
        return {**asdict(self), "calls": [asdict(call) for call in self.calls]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Turn":
        """Reads back what ``to_json`` wrote."""
        return cls(**{**data, "calls": tuple(ToolCall(**call) for call in data["calls"])})


class Provider(Protocol):
    """Answers a conversation. ``ProviderError`` says that no answer can be had now and leaves the episode open."""

    async def turn(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> Turn:
        """One answer to ``messages``, given the schemas of ``tools``."""
        ...


@dataclass(frozen=True)
class Agent:
    """A contestant: its name, how it takes its seat before a tape, and the settings that go into its hash."""

    model: str
    open: Callable[[st.Tape], Provider]
    settings: Mapping[str, Any] = field(default_factory=dict)


class ScriptedProvider:
    """Seats a script: a pure function of the week's report and of a generator seeded by (tape id, week)."""

    def __init__(self, script: Script, tape: st.Tape) -> None:
        self._script = script
        self._tape_id = int(tape.id)

    async def turn(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> Turn:
        """See ``Provider``."""
        report = latest_report(messages)
        calls = self._script(report, random.Random(f"{self._tape_id}:{report['week']}"))
        return as_turn(calls, len(messages))


def scripted(model: str, script: Script) -> Agent:
    """An agent that follows ``script`` on every tape."""
    return Agent(model, lambda tape: ScriptedProvider(script, tape))


def as_turn(calls: Sequence[Call], position: int) -> Turn:
    """Writes calls the way a model would; ``position`` in the conversation keeps their ids apart."""
    return Turn(
        calls=tuple(
            ToolCall(f"call-{position}-{i}", name, json.dumps(arguments)) for i, (name, arguments) in enumerate(calls)
        )
    )
