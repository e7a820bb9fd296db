"""What a run says while it goes on."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stocktake_agents import Heartbeat, Outcome, progress
from stocktake_agents.loop import Seat
from stocktake_agents.provider import Turn
from stocktake_agents.wires import api_agent
from tests.agents.loopback import Loopback

PlayPlan = Callable[..., Outcome]


def said(heartbeat: Heartbeat, monkeypatch: pytest.MonkeyPatch, seats: dict[object, Seat]) -> None:
    """Lets it beat a few times, a line each time."""
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    monkeypatch.setattr(progress, "REDRAW_SECONDS", 0.01)

    async def beats() -> None:
        task = asyncio.create_task(heartbeat.beat(5, ["one"], seats, threading.Event()))
        await asyncio.sleep(0.05)
        task.cancel()

    asyncio.run(beats())


def test_warnings_are_told_once_and_then_counted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    heartbeat = Heartbeat("a model")
    heartbeat.spending = lambda: (1.25, 3)
    for _ in range(7):
        heartbeat.warn("throttled", "slow down")
    heartbeat.warn("transient", "502")
    said(heartbeat, monkeypatch, {"two": Seat(week=3, asked_at=0.0)})
    err = capsys.readouterr().err
    assert err.count("slow down") == 1
    assert err.count("502") == 1
    assert "1/5 done, 1 running, 3 waiting" in err
    assert "oldest call" in err
    assert "$1.25 and 3 answers unpriced" in err
    assert "tried again: 7 throttled, 1 transient" in err


@pytest.mark.parametrize(
    ("spent", "unpriced", "words"),
    [(1.256, 0, "$1.26"), (0.0, 0, "$0.00"), (None, 7, "7 answers unpriced"), (2.0, 7, "$2.00 and 7 answers unpriced")],
)
def test_what_has_no_price_never_looks_free(spent: float | None, unpriced: int, words: str) -> None:
    assert progress.dollars(spent, unpriced) == words


def test_a_quiet_one_says_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    heartbeat = Heartbeat("a model", quiet=True)
    heartbeat.warn("throttled", "slow down")
    said(heartbeat, monkeypatch, {})
    assert capsys.readouterr().err == ""


def test_more_than_one_host_is_reported(play_plan: PlayPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENROUTER_API_KEY", "sk-canary-0123456789abcdef")
    with Loopback() as server:
        agent = api_agent("openrouter/vendor/fake", base_url=server.url("openrouter"), prices={})
        assert agent.service is not None
        connect = agent.service.connect

        class Wandering:
            """Every other answer comes from another host."""

            def __init__(self, wire: Any) -> None:
                self._wire = wire
                self._count = 0

            def __getattr__(self, name: str) -> Any:
                return getattr(self._wire, name)

            async def turn(self, messages: Any, tools: Any) -> Turn:
                self._count += 1
                turn: Turn = await self._wire.turn(messages, tools)
                return replace(turn, host=f"host {self._count % 2}")

        service = replace(agent.service, connect=lambda deadlines, most: Wandering(connect(deadlines, most)))
        outcome = play_plan(replace(agent, service=service), "25")
        steady = play_plan(agent, "25", "steady")
    assert outcome.exit_code == 0
    assert "more than one host" in outcome.problems[0]
    assert "--openrouter-provider" in outcome.problems[0]
    assert steady.problems == []


def test_the_manifest_counts_hosts(play_plan: PlayPlan, tmp_path: Path) -> None:
    with Loopback() as server:
        play_plan(api_agent("local/fake", base_url=server.url("local"), prices={}), "25")
    assert '"served_hosts": {' in (tmp_path / "out" / "manifest.json").read_text(encoding="utf-8")
