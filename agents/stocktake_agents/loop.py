"""One episode, from the first report to the end event; the same loop plays it and replays it."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import stocktake_jax as st
from stocktake_agents.conversation import NUDGE, Conversation
from stocktake_agents.log import EpisodeLog
from stocktake_agents.provider import Provider, Turn
from stocktake_agents.tools import TOOLS, execute


@dataclass(frozen=True)
class Limits:
    """How long an agent may dither over one week before its episode ends.

    Attributes:
        nudges: reminders for answers without a tool call.
        turns: answers in all.
    """

    nudges: int = 3
    turns: int = 20


@dataclass
class Seat:
    """Where a running episode stands, for those who watch.

    Attributes:
        week: weeks committed.
        turns: answers asked for in this run; those that came out of the log do not count.
        asked_at: when the answer now awaited was asked for (``time.monotonic``), or None.
    """

    week: int = 0
    turns: int = 0
    asked_at: float | None = None


async def play(
    provider: Provider, episode: st.Episode, log: EpisodeLog, limits: Limits, stopping: Callable[[], bool], seat: Seat
) -> str:
    """Plays an episode to its end, or until it is stopped at the boundary between two turns.

    The world and the disk are moved in worker threads, so that no step ever keeps the event loop from its requests.

    Args:
        provider: the agent.
        episode: a new desk.
        log: the episode's log, new or unfinished.
        limits: when to give up on an agent.
        stopping: whether the run is to stop; asked before each new turn.
        seat: kept up to date.

    Returns:
        How the episode ended: "ok", "no_tool_call" or "invalid_actions"; or "user" when it was stopped.

    Raises:
        ProviderError: the agent cannot answer now.
        UsageError: the log is not this episode's.
    """
    talk = Conversation(episode.report(), TOOLS)
    counts = {"turns": 0, "nudges": 0, "errors": 0, "unwrapped": 0}
    status, turns, nudges = "ok", 0, 0
    while status == "ok" and not episode.done:
        recorded = log.next_turn()
        if recorded is None and stopping():
            return "user"
        turn = Turn.from_json(recorded) if recorded is not None else await _ask(provider, talk.messages, seat)
        week = episode.week
        event = {"event": "turn", "week": week, "request": talk.request_hash, "turn": turn.to_json()}
        await asyncio.to_thread(log.record, event, durable=True)
        results = [result.to_json() for result in await asyncio.to_thread(execute, episode, turn.calls)]
        seat.week = episode.week

        turns, nudges = (0, 0) if episode.week > week else (turns + 1, nudges + (not turn.calls))
        if nudges > limits.nudges:
            status = "no_tool_call"
        elif turns >= limits.turns:
            status = "invalid_actions"
        nudge = NUDGE if not turn.calls and status == "ok" else None

        talk.add_answer(turn.to_json(), results, nudge)
        counts["turns"] += 1
        counts["nudges"] += nudge is not None
        counts["errors"] += sum(result["error"] for result in results)
        counts["unwrapped"] += sum(result["unwrapped"] for result in results)

        await asyncio.to_thread(log.record, {"event": "result", "week": week, "results": results, "nudge": nudge})
        if episode.week > week:
            await asyncio.to_thread(log.record, _week_event(episode))
    end = {"event": "end", "status": status, "week": episode.week, "total": float(episode.total_cost), "counts": counts}
    await asyncio.to_thread(log.record, end, durable=True)
    return status


async def _ask(provider: Provider, messages: list[dict[str, Any]], seat: Seat) -> Turn:
    seat.asked_at = time.monotonic()
    try:
        return await provider.turn(messages, TOOLS)
    finally:
        seat.asked_at = None
        seat.turns += 1


def _week_event(episode: st.Episode) -> dict[str, Any]:
    costs = {name: float(cost) for name, cost in episode.history[-1]["costs"].items()}
    return {"event": "week", "week": episode.week, "costs": costs, "total": float(episode.total_cost)}
