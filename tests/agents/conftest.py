"""Shared by the tests of the harness: small plans, and what two results folders have in common."""

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stocktake_agents import AGENTS, TOOLS, Agent, Heartbeat, Outcome, Plan, parse_seeds, run
from stocktake_agents.arms import Arm, Lens
from stocktake_agents.seeds import repeated

Streams = dict[str, list[bytes]]

# Tests of the harness need rules to show, not the shipped ones.
PLAIN = Arm("plain", "These are the rules.", TOOLS, lambda tape: Lens(), {})


@pytest.fixture(autouse=True)
def ctrl_c_is_heard() -> None:
    """Shells start background jobs with Ctrl-C ignored, and the tests press it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def play_plan(tmp_path: Path) -> Callable[..., Outcome]:
    """Runs an agent, by name or as an object, on seeds into a folder below ``tmp_path``."""

    def play(
        agent: str | Agent = "planner",
        seeds: str = "1,25",
        out: str = "out",
        arm: Arm = PLAIN,
        repeats: int = 1,
        **settings: Any,
    ) -> Outcome:
        contestant = AGENTS[agent] if isinstance(agent, str) else agent
        plan = Plan(contestant, arm, repeated(parse_seeds(seeds), repeats), tmp_path / out, **settings)
        return run(plan, Heartbeat("test", quiet=True))

    return play


@pytest.fixture
def streams(tmp_path: Path) -> Callable[[str], Streams]:
    """The logs in a folder below ``tmp_path``, line by line, the time of creation taken out of their headers."""

    def read(out: str) -> Streams:
        logs = {}
        for path in sorted((tmp_path / out).glob("*-*.jsonl")):
            header, *events = path.read_bytes().splitlines(keepends=True)
            fields = json.loads(header)
            del fields["created_utc"]
            logs[path.name] = [json.dumps(fields).encode(), *events]
        return logs

    return read
