"""Plays the episodes of a plan side by side, into a results folder from which it can go on at any time.

A results folder holds ``manifest.json`` and one log for every tape. An episode is known by its agent's hash and its
tape: running the same plan again plays what is missing and touches nothing else.
"""

import asyncio
import signal
import threading
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import stocktake_jax as st
from stocktake_agents.errors import LogError, ProviderError, UsageError
from stocktake_agents.log import EpisodeLog, check_same, read_events
from stocktake_agents.loop import Limits, Seat, play
from stocktake_agents.manifest import Manifest, settings_of, utc_now
from stocktake_agents.progress import Heartbeat
from stocktake_agents.provider import Agent
from stocktake_agents.seeds import TapeName

ENDED = ("ok", "no_tool_call", "invalid_actions")
"""Statuses after which an episode is over. Of the others, "provider", "harness" and "user" leave it to be resumed."""


@dataclass(frozen=True)
class Plan:
    """What to run.

    Attributes:
        agent: who plays.
        tapes: on which tapes.
        out: the results folder.
        concurrency: episodes at a time.
        limits: when to give up on an agent.
    """

    agent: Agent
    tapes: tuple[TapeName, ...]
    out: Path
    concurrency: int = 8
    limits: Limits = field(default_factory=Limits)

    def log_path(self, name: TapeName) -> Path:
        """Where the log of a tape lies."""
        return self.out / f"{name.stem}.jsonl"


@dataclass
class Outcome:
    """How a run went.

    Attributes:
        statuses: of every planned episode, in the plan's order.
        problems: what went wrong, for people to read.
        turns: answers asked for in this run.
        interrupted: whether Ctrl-C stopped it.
    """

    statuses: dict[TapeName, str]
    problems: list[str] = field(default_factory=list)
    turns: int = 0
    interrupted: bool = False

    @property
    def complete(self) -> bool:
        """Whether all planned episodes are over."""
        return all(status in ENDED for status in self.statuses.values())

    @property
    def status_counts(self) -> dict[str, int]:
        """How many episodes stand how."""
        return dict(Counter(self.statuses.values()))

    @property
    def exit_code(self) -> int:
        """0 all planned episodes ended, 1 the harness failed, 3 incomplete but resumable, 130 stopped by Ctrl-C."""
        if self.complete:
            return 0
        if "harness" in self.statuses.values():
            return 1
        return 130 if self.interrupted else 3


def run(plan: Plan, heartbeat: Heartbeat) -> Outcome:
    """Plays every episode of the plan that has not ended yet.

    Args:
        plan: what to run.
        heartbeat: shows how far it is.

    Returns:
        How it went; the results themselves are in the folder.

    Raises:
        UsageError: the folder cannot be written, or holds results of other settings or of another version.
        LogError: a log in the folder cannot be read.
        KeyboardInterrupt: Ctrl-C was pressed a second time.
    """
    try:
        plan.out.mkdir(parents=True, exist_ok=True)
        settings = settings_of(plan.agent, plan.limits)
        manifest = Manifest(plan.out, settings | {"seeds": [str(name) for name in plan.tapes]})
        outcome = Outcome({name: _standing(plan, name, settings) for name in plan.tapes})
        if outcome.complete:
            return outcome
        manifest.begin()
    except OSError as error:
        raise UsageError(
            f"the results folder {plan.out} cannot be used ({error}): choose another with --out."
        ) from error
    asyncio.run(_Run(plan, settings, outcome, heartbeat).all())
    manifest.finish(outcome.status_counts, outcome.turns)
    return outcome


def _standing(plan: Plan, name: TapeName, settings: dict[str, Any]) -> str:
    """How an episode ended according to its log, or "waiting"."""
    path = plan.log_path(name)
    events, _ = read_events(path)
    if not events:
        return "waiting"
    check_same(path, events[0], settings | asdict(name))
    if events[-1]["event"] == "end":
        return str(events[-1]["status"])
    check_same(path, events[0], _identity(name, name.tape(), settings))
    return "waiting"


def _identity(name: TapeName, tape: st.Tape, settings: Mapping[str, Any]) -> dict[str, Any]:
    """What an episode's log depends on."""
    return {**settings, **asdict(name), "tape": st.tape_digest(tape)}


class _Run:
    """The episodes of one run and what they share."""

    def __init__(self, plan: Plan, settings: Mapping[str, Any], outcome: Outcome, heartbeat: Heartbeat) -> None:
        self._plan = plan
        self._settings = settings
        self._outcome = outcome
        self._stop = threading.Event()
        self._heartbeat = heartbeat
        self._seats: dict[object, Seat] = {}
        self._ended: list[TapeName] = []
        self._fatal: UsageError | LogError | None = None

    async def all(self) -> None:
        """Plays what is waiting."""
        waiting = [name for name, status in self._outcome.statuses.items() if status == "waiting"]
        heart = asyncio.create_task(self._heartbeat.beat(len(waiting), self._ended, self._seats, self._stop))
        try:
            with _first_ctrl_c(self._stop):
                await asyncio.to_thread(lambda: st.Episode(waiting[0].tape()))  # compiles before anyone is asked
                limit = asyncio.Semaphore(self._plan.concurrency)
                await asyncio.gather(*(self._one(name, limit) for name in waiting))
        finally:
            self._outcome.interrupted = self._stop.is_set()
            heart.cancel()
            with suppress(asyncio.CancelledError):
                await heart
        if self._fatal is not None:
            raise self._fatal

    async def _one(self, name: TapeName, limit: asyncio.Semaphore) -> None:
        async with limit:
            if self._stopping():
                self._outcome.statuses[name] = "user"
                return
            seat = self._seats[name] = Seat()
            try:
                self._outcome.statuses[name] = await self._play(name, seat)
            except (UsageError, LogError) as error:
                self._fatal = self._fatal or error
            except ProviderError as error:
                self._outcome.statuses[name] = "provider"
                self._outcome.problems.append(f"seed {name}: {error}")
            except Exception:  # a fault of ours in one episode must not cost the others theirs
                self._outcome.statuses[name] = "harness"
                self._outcome.problems.append(f"seed {name}: {traceback.format_exc()}")
            finally:
                self._outcome.turns += seat.turns
                del self._seats[name]
                self._ended.append(name)

    async def _play(self, name: TapeName, seat: Seat) -> str:
        tape = await asyncio.to_thread(name.tape)
        identity = _identity(name, tape, self._settings)
        log = await asyncio.to_thread(EpisodeLog, self._plan.log_path(name), identity, utc_now())
        try:
            episode = await asyncio.to_thread(st.Episode, tape)
            provider = await asyncio.to_thread(self._plan.agent.open, tape)
            return await play(provider, episode, log, self._plan.limits, self._stopping, seat)
        finally:
            log.close()

    def _stopping(self) -> bool:
        return self._stop.is_set() or self._fatal is not None


@contextmanager
def _first_ctrl_c(stop: threading.Event) -> Iterator[None]:
    """While open, the first Ctrl-C sets ``stop``; the next does what it did before, which aborts the event loop."""
    if threading.current_thread() is not threading.main_thread():  # Python delivers signals to the main thread only
        yield
        return

    def handle(signum: int, frame: FrameType | None) -> None:
        stop.set()
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
