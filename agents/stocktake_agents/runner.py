"""Plays the episodes of a plan side by side, into a results folder from which it can go on at any time.

A results folder holds ``manifest.json``, one log for every episode, and for agents behind an API ``attempts.jsonl``. An
episode is known by its agent's hash, its tape and its repeat: running the same plan again plays what is missing and
touches nothing else.
"""

import asyncio
import gc
import signal
import threading
import time
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import stocktake_jax as st
from stocktake_agents.arms.arm import Arm
from stocktake_agents.clock import utc_now
from stocktake_agents.errors import LogError, ProviderError, UsageError
from stocktake_agents.gateway import Direct, Gateway, Line, Retries
from stocktake_agents.journal import Journal
from stocktake_agents.log import EpisodeLog, check_same, read_events
from stocktake_agents.loop import MODEL_STATUSES, Limits, Seat, play
from stocktake_agents.manifest import Manifest, settings_of, texts_of
from stocktake_agents.progress import Heartbeat
from stocktake_agents.provider import Agent, Deadlines
from stocktake_agents.seeds import EpisodeName


@dataclass(frozen=True)
class Plan:
    """What to run.

    Attributes:
        agent: who plays.
        arm: what it is told and shown.
        episodes: on which tapes, and how often.
        out: the results folder.
        concurrency: episodes at a time, and the most requests at a time.
        limits: when to give up on an agent.
        deadlines: how long to wait for answers.
        retries: how often to ask again.
        max_usd: the most that all runs into the folder may cost together; None for no limit.
    """

    agent: Agent
    arm: Arm
    episodes: tuple[EpisodeName, ...]
    out: Path
    concurrency: int = 8
    limits: Limits = field(default_factory=Limits)
    deadlines: Deadlines = field(default_factory=Deadlines)
    retries: Retries = field(default_factory=Retries)
    max_usd: float | None = None

    def log_path(self, name: EpisodeName) -> Path:
        """Where the log of an episode lies."""
        return self.out / f"{name.stem}.jsonl"

    def check(self) -> None:
        """Refuses what cannot work, before anything is written.

        Raises:
            UsageError: a script or a policy cannot read this arm's reports, or a budget is set for a model whose price
                is unknown.
        """
        if not (self.agent.reads or self.arm.plain):
            raise UsageError(
                f"{self.agent.model} knows the report by its own keys, which the arm {self.arm.name} renames: "
                "choose another arm, or a model that reads."
            )
        service = self.agent.service
        if self.max_usd is not None and service is not None and not service.free and service.price is None:
            raise UsageError(
                f"--max-usd needs the price of {self.agent.model}, which is unknown: give it with --prices FILE."
            )


@dataclass
class Outcome:
    """How a run went.

    Attributes:
        statuses: of every planned episode, in the plan's order. Beside ``loop.MODEL_STATUSES``, which are final:
            "provider", "timeout" and "quota" (infrastructure), "harness" (a fault of ours) and "user" (stopped), all of
            which leave the episode to be resumed.
        problems: what went wrong, for people to read.
        turns: answers asked for in this run.
        interrupted: whether Ctrl-C stopped it.
        spent: $ of all runs into the folder; None for an agent in this process, and where no answer has a known cost.
        unpriced: answers of unknown cost.
    """

    statuses: dict[EpisodeName, str]
    problems: list[str] = field(default_factory=list)
    turns: int = 0
    interrupted: bool = False
    spent: float | None = None
    unpriced: int = 0

    @property
    def complete(self) -> bool:
        """Whether all planned episodes are over."""
        return all(status in MODEL_STATUSES for status in self.statuses.values())

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
        UsageError: the plan cannot work, or the folder cannot be written, or holds results of other settings or of
            another version.
        LogError: a log in the folder cannot be read.
        KeyboardInterrupt: Ctrl-C was pressed a second time.
    """
    plan.check()
    try:
        plan.out.mkdir(parents=True, exist_ok=True)
        settings = settings_of(plan.agent, plan.arm, plan.limits)
        seeds = list(dict.fromkeys(str(name.first) for name in plan.episodes))
        manifest = Manifest(plan.out, settings | {"seeds": seeds}, texts_of(plan.arm))
        outcome = Outcome({name: _standing(plan, name, settings) for name in plan.episodes})
        if outcome.complete:
            outcome.spent, outcome.unpriced = manifest.last.get("spent_usd"), manifest.last.get("unpriced", 0)
            return outcome
        manifest.begin(_means(plan))
    except OSError as error:
        raise UsageError(
            f"the results folder {plan.out} cannot be used ({error}): choose another with --out."
        ) from error
    this_run = _Run(plan, settings, outcome, heartbeat)
    try:
        asyncio.run(this_run.all())
    finally:
        manifest.finish(outcome.status_counts, outcome.turns, this_run.facts)
    return outcome


def _means(plan: Plan) -> dict[str, Any]:
    """By what means a run goes about its work; none of it changes what is asked."""
    means: dict[str, Any] = {"concurrency": plan.concurrency, "repeats": max(name.repeat for name in plan.episodes)}
    if plan.agent.service is not None:
        service = plan.agent.service
        means |= {"deadlines": asdict(plan.deadlines), "retries": asdict(plan.retries), "max_usd": plan.max_usd}
        means |= {"provider": service.provider, "base_url": service.base_url, "free": service.free}
        means |= {"price": None if service.price is None else asdict(service.price)}
    return means


def _standing(plan: Plan, name: EpisodeName, settings: dict[str, Any]) -> str:
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


def _identity(name: EpisodeName, tape: st.Tape, settings: Mapping[str, Any]) -> dict[str, Any]:
    """What an episode's log depends on."""
    return {**settings, **asdict(name), "tape": st.tape_digest(tape)}


class _Run:
    """The episodes of one run and what they share.

    Attributes:
        facts: what came out about the provider, for the manifest.
    """

    def __init__(self, plan: Plan, settings: Mapping[str, Any], outcome: Outcome, heartbeat: Heartbeat) -> None:
        self.facts: dict[str, Any] = {}
        self._plan = plan
        self._settings = settings
        self._outcome = outcome
        self._stop = threading.Event()
        self._heartbeat = heartbeat
        self._seats: dict[object, Seat] = {}
        self._ended: list[EpisodeName] = []
        self._fatal: UsageError | LogError | None = None
        self._halt: ProviderError | None = None
        # One thread, first come, first served: many would only take turns at the interpreter, and each episode would
        # wait for all.
        self._worker = ThreadPoolExecutor(1, "world")

    async def all(self) -> None:
        """Plays what is waiting."""
        waiting = [name for name, status in self._outcome.statuses.items() if status == "waiting"]
        heart = asyncio.create_task(self._heartbeat.beat(len(waiting), self._ended, self._seats, self._stop))
        try:
            with _first_ctrl_c(self._stop):
                await self._aside(self._warm_up, waiting[0])
                # What JAX has built by now stays. Left to the collector, a full pass over it would stop all threads for
                # a tenth of a second, now and then.
                gc.collect()
                gc.freeze()
                async with self._lines() as open_line:
                    limit = asyncio.Semaphore(self._plan.concurrency)
                    await asyncio.gather(*(self._one(name, open_line, limit) for name in waiting))
        finally:
            self._outcome.interrupted = self._stop.is_set()
            heart.cancel()
            with suppress(asyncio.CancelledError):
                await heart
            self._worker.shutdown(wait=False)
            gc.unfreeze()
        if self._fatal is not None:
            raise self._fatal

    def _warm_up(self, name: EpisodeName) -> None:
        """Compiles all that an episode needs before anyone is asked."""
        tape = name.tape()
        episode = st.Episode(tape)
        self._plan.arm.open(tape).report(episode.report(), episode)

    @asynccontextmanager
    async def _lines(self) -> AsyncIterator[Callable[[st.Tape, int], Line]]:
        """What opens the line of an episode to its agent."""
        plan, service = self._plan, self._plan.agent.service
        if service is None:
            seat = plan.agent.open
            if seat is None:
                raise UsageError(f"the agent {plan.agent.model} has neither a service nor a way to take its seat.")
            yield lambda tape, repeat: Direct(seat(tape, repeat))
            return
        async with AsyncExitStack() as stack:
            journal = stack.enter_context(Journal(plan.out, service))
            wire = service.connect(plan.deadlines, plan.concurrency)
            stack.push_async_callback(wire.close)
            gateway = Gateway(
                wire, service, journal, deadlines=plan.deadlines, retries=plan.retries, concurrency=plan.concurrency,
                max_usd=plan.max_usd, stopping=self._stopping, warn=self._heartbeat.warn,
            )  # fmt: skip
            self._heartbeat.spending = lambda: (journal.known, journal.unpriced)
            try:
                yield lambda tape, repeat: gateway
            finally:
                self._outcome.spent, self._outcome.unpriced = journal.known, journal.unpriced
                self.facts = {
                    "sent": dict(wire.sent), "dropped": dict(wire.dropped), "served_models": dict(journal.models),
                    "served_hosts": dict(journal.hosts), "faults": dict(journal.faults), "spent_usd": journal.known,
                    "unpriced": journal.unpriced,
                }  # fmt: skip
                if len(journal.hosts) > 1:
                    hosts = ", ".join(f"{host} {count}" for host, count in journal.hosts.most_common())
                    self._outcome.problems.append(
                        f"the answers came from more than one host ({hosts}): pin one with --openrouter-provider."
                    )

    async def _one(
        self, name: EpisodeName, open_line: Callable[[st.Tape, int], Line], limit: asyncio.Semaphore
    ) -> None:
        async with limit:
            if self._stopping():
                self._outcome.statuses[name] = self._stopped_by
                return
            seat = self._seats[name] = Seat()
            try:
                status = await self._play(name, open_line, seat)
                self._outcome.statuses[name] = self._stopped_by if status == "user" else status
            except (UsageError, LogError) as error:
                self._fatal = self._fatal or error
            except ProviderError as error:
                self._outcome.statuses[name] = error.fault.status
                if not error.fault.stops_run:
                    self._outcome.problems.append(f"seed {name}: {error}")
                elif self._halt is None:
                    self._halt = error
                    self._outcome.problems.append(f"seed {name}: {error} No episode can go on, so the run stops.")
            except Exception:  # a fault of ours in one episode must not cost the others theirs
                self._outcome.statuses[name] = "harness"
                self._outcome.problems.append(f"seed {name}: {traceback.format_exc()}")
            finally:
                self._outcome.turns += seat.turns
                del self._seats[name]
                self._ended.append(name)

    async def _play(self, name: EpisodeName, open_line: Callable[[st.Tape, int], Line], seat: Seat) -> str:
        plan = self._plan
        deadline = time.monotonic() + plan.deadlines.episode
        tape = await self._aside(name.tape)
        identity = _identity(name, tape, self._settings)
        log = await self._aside(EpisodeLog, plan.log_path(name), identity, utc_now())
        try:
            episode = await self._aside(st.Episode, tape)
            lens = await self._aside(plan.arm.open, tape)
            line = await self._aside(open_line, tape, name.repeat)
            return await play(
                line, plan.arm, lens, episode, log, plan.limits, deadline, self._stopping, seat, name.stem, self._aside
            )
        finally:
            log.close()

    async def _aside(self, work: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._worker, work, *arguments)

    def _stopping(self) -> bool:
        return self._stop.is_set() or self._fatal is not None or self._halt is not None

    @property
    def _stopped_by(self) -> str:
        return "user" if self._halt is None else self._halt.fault.status


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
