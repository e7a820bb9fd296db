"""Seats a script: a pure function of the week's report and of a generator seeded by (tape id, repeat, week)."""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import stocktake_jax as st
from stocktake_agents.arms.belief_track import with_statements
from stocktake_agents.conversation import Message, latest_report
from stocktake_agents.provider import Agent, ToolCall, Turn

Call = tuple[str, dict[str, Any]]
Script = Callable[[dict[str, Any], random.Random], list[Call]]


class ScriptedProvider:
    """A provider that answers every week with the calls of a script."""

    def __init__(self, script: Script, tape: st.Tape, repeat: int = 1) -> None:
        self._script = script
        self._dice = f"{int(tape.id)}" if repeat == 1 else f"{int(tape.id)}/{repeat}"

    async def turn(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> Turn:
        """See ``Provider``."""
        report = latest_report(messages)
        calls = self._script(report, random.Random(f"{self._dice}:{report['week']}"))
        return with_statements(as_turn(calls, len(messages)), tools, report)


def scripted(model: str, script: Script) -> Agent:
    """An agent that follows ``script`` on every tape."""
    return Agent(model, lambda tape, repeat: ScriptedProvider(script, tape, repeat))


def as_turn(calls: Sequence[Call], position: int) -> Turn:
    """Writes calls the way a model would; ``position`` in the conversation keeps their ids apart."""
    return Turn(
        calls=tuple(
            ToolCall(f"call-{position}-{i}", name, json.dumps(arguments)) for i, (name, arguments) in enumerate(calls)
        )
    )
