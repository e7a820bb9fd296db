"""One episode, from the first report to the end event; the same loop plays it and replays it."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Any

import stocktake_jax as st
from stocktake_agents.arms.arm import Arm, Lens
from stocktake_agents.conversation import NUDGE, SHORTER, Conversation
from stocktake_agents.gateway import Line, Stopped
from stocktake_agents.log import Record
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
    log: Record,
    limits: Limits,
    deadline: float,
    stopping: Callable[[], bool],
    seat: Seat,
    name: str,
    aside: Callable[..., Awaitable[Any]],
) -> str:
    """Plays an episode to its end, or until it is stopped at the boundary between two turns.

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
        aside: runs a function in another thread, so that neither the world nor the disk ever keeps the event loop from
            its requests.

    Returns:
        How the episode ended, one of ``MODEL_STATUSES``; or "user" when it was stopped.

    Raises:
        ProviderError: the agent cannot answer now.
        UsageError: the log is not this episode's.
    """
    table: Table = await aside(Table, arm, lens, episode, log, limits)
    while table.status == "ok" and not episode.done:
        recorded = log.next_turn()
        if recorded is not None:
            turn = Turn.from_json(recorded)
        elif stopping():
            return "user"
        else:
            seat.asked_at = time.monotonic()
            try:
                turn = await line.ask(table.talk.messages, arm.tools, name, episode.week, deadline)
            except Stopped:
                return "user"
            finally:
                seat.asked_at = None
                seat.turns += 1
        await aside(table.answered, turn)
        seat.week = episode.week
    return table.status


class Table:
    """An episode and all that is kept of it: desk, conversation, log and counts.

    Attributes:
        talk: the conversation so far.
        status: "ok" while the episode goes on, and when it was played to its end.
    """

    def __init__(self, arm: Arm, lens: Lens, episode: st.Episode, log: Record, limits: Limits) -> None:
        self._episode, self._log, self._tools = episode, log, arm.tools
        self._desk = Desk(episode, lens, arm.tools)
        self.talk = Conversation(arm.system, arm.tools, self._desk.report())
        self.status = "ok"
        self._patience = Patience(limits)
        self._counts = {"turns": 0, "nudges": 0, "errors": 0, "unwrapped": 0, "suspected_parser_failures": 0}
        self._usage, self._usd = Usage(), 0.0

    def answered(self, turn: Turn) -> None:
        """Puts an answer on disk, moves the world, and puts down what came of it."""
        episode, week, said = self._episode, self._episode.week, turn.to_json()
        self._log.record({"event": "turn", "week": week, "request": self.talk.request_hash, "turn": said}, durable=True)
        results = [result.to_json() for result in self._desk.execute(turn.calls)]
        committed = episode.week > week
        self.status, reminder = self._patience.judge(turn, committed)
        self.talk.add_answer(said, results, reminder)
        self._count(turn, results, reminder)
        self._log.record({"event": "result", "week": week, "results": results, "nudge": reminder})
        if committed:
            self._log.record(self._week())
        if self.status != "ok" or episode.done:
            self._log.record(self._end(), durable=True)

    def _count(self, turn: Turn, results: list[dict[str, Any]], reminder: str | None) -> None:
        counts = self._counts
        counts["turns"] += 1
        counts["nudges"] += reminder is not None
        counts["errors"] += sum(result["error"] for result in results)
        counts["unwrapped"] += sum(result["unwrapped"] for result in results)
        counts["suspected_parser_failures"] += not turn.calls and looks_like_a_call(turn.text, self._tools)
        self._usage += turn.usage or Usage()
        self._usd += turn.usd or 0.0

    def _week(self) -> dict[str, Any]:
        played = self._episode.history[-1]
        costs = {name: float(cost) for name, cost in played["costs"].items()}
        return {
            "event": "week", "week": self._episode.week, "calls": played["calls"], "stated": self._desk.stated,
            "costs": costs, "total": float(self._episode.total_cost),
        }  # fmt: skip

    def _end(self) -> dict[str, Any]:
        return {
            "event": "end", "status": self.status, "week": self._episode.week,
            "total": float(self._episode.total_cost), "counts": self._counts, "usage": asdict(self._usage),
            "usd_reported": self._usd,
        }  # fmt: skip
