"""One episode, from the first report to the end event; the same loop plays it and replays it."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import stocktake_jax as st
from stocktake_agents.arms.arm import Arm, Lens
from stocktake_agents.conversation import NUDGE, SHORTER, Conversation
from stocktake_agents.gateway import Line, Stopped
from stocktake_agents.log import EpisodeLog
from stocktake_agents.provider import Turn
from stocktake_agents.tools import Desk, looks_like_a_call
from stocktake_agents.usage import Usage

MODEL_STATUSES = ("ok", "no_tool_call", "invalid_actions", "length", "refusal", "context_overflow")
"""How an episode ends for good: played to the end, or given up on for something that the model did."""


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


class Patience:
    """Counts what an agent does instead of committing a week, and says when it is enough."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._turns = self._nudges = 0
        self._cut = False

    def judge(self, turn: Turn, committed: bool) -> tuple[str, str | None]:
        """The status after an answer, "ok" to go on, and the reminder that follows it."""
        if committed:
            self._turns, self._nudges, self._cut = 0, 0, False
            return "ok", None
        self._turns += 1
        if turn.calls:
            return ("invalid_actions" if self._turns >= self._limits.turns else "ok"), None
        if turn.stop in ("refusal", "context_overflow"):
            return turn.stop, None
        if turn.stop == "length":
            status, reminder, self._cut = ("length" if self._cut else "ok"), SHORTER, True
        else:
            self._nudges += 1
            status, reminder = ("no_tool_call" if self._nudges > self._limits.nudges else "ok"), NUDGE
        if self._turns >= self._limits.turns and status == "ok":
            status = "invalid_actions"
        return status, reminder if status == "ok" else None


async def play(
    line: Line,
    arm: Arm,
    lens: Lens,
    episode: st.Episode,
    log: EpisodeLog,
    limits: Limits,
    deadline: float,
    stopping: Callable[[], bool],
    seat: Seat,
    name: str,
) -> str:
    """Plays an episode to its end, or until it is stopped at the boundary between two turns.

    The world and the disk are moved in worker threads, so that no step ever keeps the event loop from its requests.

    Args:
        line: leads to the agent.
        arm: what the agent is told, and its tools.
        lens: what stands between agent and desk.
        episode: a new desk.
        log: the episode's log, new or unfinished.
        limits: when to give up on an agent.
        deadline: ``time.monotonic`` at which the time for this run is up.
        stopping: whether the run is to stop; asked before each new turn.
        seat: kept up to date.
        name: of the episode, for records.

    Returns:
        How the episode ended, one of ``MODEL_STATUSES``; or "user" when it was stopped.

    Raises:
        ProviderError: the agent cannot answer now.
        UsageError: the log is not this episode's.
    """
    desk = Desk(episode, lens, arm.tools)
    talk = Conversation(arm.system, arm.tools, await asyncio.to_thread(desk.report))
    counts = {"turns": 0, "nudges": 0, "errors": 0, "unwrapped": 0, "suspected_parser_failures": 0}
    patience, usage, usd = Patience(limits), Usage(), 0.0
    status = "ok"
    while status == "ok" and not episode.done:
        recorded = log.next_turn()
        if recorded is not None:
            turn = Turn.from_json(recorded)
        elif stopping():
            return "user"
        else:
            seat.asked_at = time.monotonic()
            try:
                turn = await line.ask(talk.messages, arm.tools, name, episode.week, deadline)
            except Stopped:
                return "user"
            finally:
                seat.asked_at = None
                seat.turns += 1
        week, said = episode.week, turn.to_json()
        request = {"event": "turn", "week": week, "request": talk.request_hash, "turn": said}
        results, events = await asyncio.to_thread(_carry_out, log, request, desk, episode, turn)
        seat.week = episode.week

        status, reminder = patience.judge(turn, episode.week > week)
        talk.add_answer(said, results, reminder)
        counts["turns"] += 1
        counts["nudges"] += reminder is not None
        counts["errors"] += sum(result["error"] for result in results)
        counts["unwrapped"] += sum(result["unwrapped"] for result in results)
        counts["suspected_parser_failures"] += not turn.calls and looks_like_a_call(turn.text, arm.tools)
        usage, usd = usage + (turn.usage or Usage()), usd + (turn.usd or 0.0)

        events.insert(0, {"event": "result", "week": week, "results": results, "nudge": reminder})
        if status != "ok" or episode.done:
            events.append(
                {"event": "end", "status": status, "week": episode.week, "total": float(episode.total_cost),
                 "counts": counts, "usage": asdict(usage), "usd_reported": usd}
            )  # fmt: skip
        await asyncio.to_thread(_record, log, events)
    return status


def _carry_out(
    log: EpisodeLog, request: dict[str, Any], desk: Desk, episode: st.Episode, turn: Turn
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Puts an answer on disk, then moves the world; the results of its calls, and the event of a committed week."""
    log.record(request, durable=True)
    results = [result.to_json() for result in desk.execute(turn.calls)]
    if episode.week == request["week"]:
        return results, []
    played = episode.history[-1]
    costs = {name: float(cost) for name, cost in played["costs"].items()}
    event = {"event": "week", "week": episode.week, "calls": played["calls"], "stated": desk.stated, "costs": costs}
    return results, [event | {"total": float(episode.total_cost)}]


def _record(log: EpisodeLog, events: list[dict[str, Any]]) -> None:
    for event in events:
        log.record(event, durable=event["event"] == "end")
