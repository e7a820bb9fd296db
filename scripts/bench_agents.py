"""Measures what the harness adds to the models' own time: per call, for a whole run, on the event loop, in memory."""

import asyncio
import gc
import json
import statistics
import tempfile
import time
import tracemalloc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

import stocktake_jax as st
from stocktake_agents.arm_names import make_arm
from stocktake_agents.conversation import Conversation, Message, latest_report
from stocktake_agents.log import EpisodeLog
from stocktake_agents.progress import Heartbeat
from stocktake_agents.provider import Agent, Deadlines, Service, Turn
from stocktake_agents.runner import Plan, run
from stocktake_agents.scripted import as_turn
from stocktake_agents.seeds import parse_seeds
from stocktake_agents.simple import floor
from stocktake_agents.tools import Desk

EPILOG = """
\b
Example:
  python scripts/bench_agents.py --json > agents.json

A fake provider in this process answers every request after a fixed time with the floor policy's order. Targets, on two
cores: under 5 ms a call at the median with 64 episodes at a time; 200 episodes in 60 s when answers take no time; the
event loop never late by 100 ms; under 1 MB of memory an episode.
"""


@dataclass
class Clock:
    """What a fake provider saw: seconds from an answer to the next request of its episode, and the loop's delays."""

    seconds: float
    answered: dict[int, float]
    beyond: list[float]
    late: list[float]


class FakeWire:
    """Answers after a fixed time, and watches how late the loop is for a timer."""

    sent: Mapping[str, Any] = {}
    dropped: Mapping[str, str] = {}

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._watch = asyncio.get_running_loop().create_task(self._watched())

    async def turn(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> Turn:
        arrived = time.monotonic()
        if (left := self._clock.answered.pop(id(messages), None)) is not None:
            self._clock.beyond.append(arrived - left)
        if self._clock.seconds:
            await asyncio.sleep(self._clock.seconds)
        turn = as_turn(floor(latest_report(messages), None), len(messages))  # type: ignore[arg-type]
        self._clock.answered[id(messages)] = time.monotonic()
        return turn

    async def _watched(self) -> None:
        while True:
            due = time.monotonic() + 0.005
            await asyncio.sleep(0.005)
            self._clock.late.append(time.monotonic() - due)

    async def look_up(self) -> Mapping[str, Any]:
        return {"context": None, "max_output": None}

    async def close(self) -> None:
        self._watch.cancel()


def fake_agent(clock: Clock) -> Agent:
    """An agent behind a service, so that all that stands between runs as with a real one."""

    def connect(deadlines: Deadlines, connections: int) -> FakeWire:
        return FakeWire(clock)

    return Agent("fake", service=Service("local", "fake", "", connect, 1000, free=True), reads=True)


def played(episodes: int, seconds: float, concurrency: int) -> tuple[Clock, float]:
    """Plays that many episodes; what the provider saw, and the wall time after everything was compiled."""
    clock = Clock(seconds, {}, [], [])
    with tempfile.TemporaryDirectory() as folder:
        plan = Plan(
            fake_agent(clock), make_arm("faithful"), parse_seeds(f"mint:0-{episodes - 1}"), Path(folder), concurrency
        )
        start = time.monotonic()
        outcome = run(plan, Heartbeat("fake", quiet=True))
        if outcome.exit_code:
            raise SystemExit(f"Error: the run failed: {outcome.problems[:1]}")
        return clock, time.monotonic() - start


def memory_of_an_episode(count: int) -> float:
    """Bytes that each of ``count`` idle episodes in its last week holds on to, as Python's allocator counts."""
    arm = make_arm("faithful")
    held = []
    with tempfile.TemporaryDirectory() as folder:
        gc.collect()
        tracemalloc.start()
        for seed in range(count):
            tape = st.published_tape(seed)
            episode = st.Episode(tape)
            desk = Desk(episode, arm.open(tape), arm.tools)
            talk = Conversation(arm.system, arm.tools, desk.report())
            log = EpisodeLog(Path(folder) / f"{seed}.jsonl", {}, "now")
            while episode.week < 25:
                turn = as_turn(floor(latest_report(talk.messages), None), len(talk.messages))  # type: ignore[arg-type]
                talk.add_answer(turn.to_json(), [r.to_json() for r in desk.execute(turn.calls)], None)
            held.append((episode, desk, talk, log))
        gc.collect()
        size = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        for *_, log in held:
            log.close()
    return size / count


@click.command(help=__doc__, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--quick", is_flag=True, help="Little of everything, to see that it runs.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON and nothing else on stdout.")
def main(quick: bool, as_json: bool) -> None:
    played(1, 0.0, 1)  # compiles
    slow, _ = played(4 if quick else 64, 0.01 if quick else 1.0, 64)
    count = 4 if quick else 200
    fast, seconds = played(count, 0.0, 64)
    rows = [
        ("harness time a call, median", 1000 * statistics.median(slow.beyond), "ms", "5"),
        ("harness time a call, 95th percentile", 1000 * sorted(slow.beyond)[int(0.95 * len(slow.beyond))], "ms", ""),
        ("event loop late, worst, answers after 1 s", 1000 * max(slow.late), "ms", "100"),
        ("event loop late, worst, answers at once", 1000 * max(fast.late), "ms", "100"),
        (f"{count} episodes, answers at once", seconds, "s", "60"),
        ("weeks a second, answers at once", count * 26 / seconds, "weeks/s", ""),
        ("memory of an idle episode", memory_of_an_episode(2 if quick else 20) / 1e6, "MB", "1"),
    ]
    if as_json:
        fields = ("name", "value", "unit", "target")
        click.echo(json.dumps([dict(zip(fields, row, strict=True)) for row in rows], indent=2))
        return
    table = Table("what", "value", "unit", "target below")
    for name, value, unit, target in rows:
        table.add_row(name, f"{value:.3g}", unit, target)
    Console().print(table)


if __name__ == "__main__":
    main()
