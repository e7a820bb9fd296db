"""Shared by the tests of the harness: small plans, and what two results folders have in common."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stocktake_agents import AGENTS, Agent, Heartbeat, Outcome, Plan, parse_seeds, run

Streams = dict[str, list[bytes]]


@pytest.fixture
def play_plan(tmp_path: Path) -> Callable[..., Outcome]:
    """Runs an agent, by name or as an object, on seeds into a folder below ``tmp_path``."""

    def play(agent: str | Agent = "planner", seeds: str = "1,25", out: str = "out", **settings: Any) -> Outcome:
        contestant = AGENTS[agent] if isinstance(agent, str) else agent
        plan = Plan(contestant, parse_seeds(seeds), tmp_path / out, **settings)
        return run(plan, Heartbeat("test", quiet=True))

    return play


@pytest.fixture
def streams(tmp_path: Path) -> Callable[[str], Streams]:
    """The logs in a folder below ``tmp_path``, line by line, the time of creation taken out of their headers."""

    def read(out: str) -> Streams:
        logs = {}
        for path in sorted((tmp_path / out).glob("*.jsonl")):
            header, *events = path.read_bytes().splitlines(keepends=True)
            fields = json.loads(header)
            del fields["created_utc"]
            logs[path.name] = [json.dumps(fields).encode(), *events]
        return logs

    return read
