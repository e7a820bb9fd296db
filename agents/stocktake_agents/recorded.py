"""Seats the answers of an earlier run, so that they can be played again under other rules or another version."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import stocktake_jax as st
from stocktake_agents.conversation import Message, digest
from stocktake_agents.errors import ProviderError, UsageError
from stocktake_agents.log import read_events
from stocktake_agents.provider import Agent, Provider, Turn


class RecordedProvider:
    """Gives the answers of one log in order, whatever it is asked."""

    def __init__(self, turns: Sequence[Mapping[str, Any]]) -> None:
        self._turns = turns

    async def turn(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> Turn:
        """See ``Provider``."""
        position = sum(message["role"] == "assistant" for message in messages)
        if position >= len(self._turns):
            raise ProviderError(f"the record ends after {len(self._turns)} answers.")
        return Turn.from_json(self._turns[position])


def recorded_agent(folder: Path) -> Agent:
    """An agent that answers as the run in ``folder`` did, episode by episode.

    Raises:
        UsageError: there is no log in the folder.
        LogError: a log cannot be read.
    """
    turns: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    for path in sorted(folder.glob("*-*.jsonl")):
        events, _ = read_events(path)
        if events:
            said = [event["turn"] for event in events if event["event"] == "turn"]
            turns[events[0]["tape"], events[0]["repeat"]] = said
    if not turns:
        raise UsageError(f"recorded/{folder} has no logs: name the results folder of a run.")

    def open_seat(tape: st.Tape, repeat: int) -> Provider:
        return RecordedProvider(turns.get((st.tape_digest(tape), repeat), []))

    contents = digest([[*key, said] for key, said in sorted(turns.items())])
    return Agent(f"recorded/{folder.name}", open_seat, {"answers": contents}, reads=True)
