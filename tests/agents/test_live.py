"""Whole runs against a server that fails: nothing lost, nothing done twice, and the same scores as on a quiet day."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import stocktake_jax as st
from stocktake_agents import Agent, Outcome, UsageError
from stocktake_agents.errors import LogError
from stocktake_agents.gateway import Gateway, Retries
from stocktake_agents.log import EpisodeLog
from stocktake_agents.prices import Price
from stocktake_agents.provider import Deadlines
from stocktake_agents.wires import api_agent
from tests.agents.loopback import TRANSPORT_FAULTS, Loopback

PlayPlan = Callable[..., Outcome]
Streams = Callable[[str], dict[str, list[bytes]]]

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "run_llm.py"
CANARY = "sk-canary-0123456789abcdef"
MODELS = {"anthropic": "anthropic/fake", "openai": "openai/fake", "openrouter": "openrouter/a/fake", "local": "local/f"}
QUIRKS = dict.fromkeys(("malformed", "doubled", "out_of_range", "silent", "unknown_tool", "twice"), 0.03)
STORM = dict.fromkeys(TRANSPORT_FAULTS, 0.04)
SOON = Retries(attempts=8, first_wait=0.005, most_wait=0.02)
PRICE = Price(input=3.0, output=15.0, cache_read=0.3, cache_write_5m=3.75, cache_write_1h=6.0, as_of="2026-11-30")


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for provider in MODELS:
        monkeypatch.setenv(f"{provider.upper()}_API_KEY", CANARY)


def agent(provider: str, server: Loopback, price: Price | None = None, **options: Any) -> Agent:
    model = MODELS[provider]
    return api_agent(model, base_url=server.url(provider), prices={} if price is None else {model: price}, **options)


def conversations(server: Loopback) -> set[bytes]:
    """What was asked, however often."""
    return {request.content for request in server.requests if request.method == "POST"}


def bodies(streams: Mapping[str, list[bytes]]) -> dict[str, list[bytes]]:
    """Logs without their headers, in which the servers' ports differ."""
    return {name: lines[1:] for name, lines in streams.items()}


def everything_in(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


@pytest.mark.parametrize("provider", MODELS)
def test_a_stormy_run_ends_like_a_quiet_one(
    provider: str, play_plan: PlayPlan, streams: Streams, tmp_path: Path
) -> None:
    with Loopback(faults=QUIRKS, key=CANARY) as server:
        quiet = play_plan(agent(provider, server), "1,25,112", "quiet")
        asked = conversations(server)
    assert quiet.exit_code == 0, quiet.problems
    storm = {"retries": SOON, "deadlines": Deadlines(attempt=0.5)}
    with Loopback(faults=QUIRKS | STORM, key=CANARY) as server:
        stormy = play_plan(agent(provider, server), "1,25,112", "stormy", **storm)
        assert {request.fault for request in server.requests} >= {"throttled", "unavailable", "drop", None}
        assert len(server.requests) > len(asked)
        assert conversations(server) == asked
    assert stormy.exit_code == 0, stormy.problems
    assert bodies(streams("stormy")) == bodies(streams("quiet"))
    faults = json.loads((tmp_path / "stormy" / "manifest.json").read_text())["invocations"][0]["faults"]
    assert faults["throttled"] > 0
    assert faults["transient"] > 0
    assert CANARY.encode() not in everything_in(tmp_path)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGKILL")
@pytest.mark.parametrize("provider", ["anthropic", pytest.param("openai", marks=pytest.mark.slow)])
def test_three_kills_and_a_torn_line_leave_the_same_run(provider: str, tmp_path: Path) -> None:
    with Loopback(faults=QUIRKS | {"throttled": 0.05, "drop": 0.05}, latency=0.01, key=CANARY) as server:
        command = [
            sys.executable, str(SCRIPT), "--model", MODELS[provider], "--seeds", "1,25,112,143", "--json", "--quiet",
            "--base-url", server.url(provider), "--concurrency", "2",
        ]  # fmt: skip
        whole = subprocess.run([*command, "--out", "whole"], cwd=tmp_path, capture_output=True, timeout=300)
        assert whole.returncode == 0, whole.stderr
        asked = conversations(server)
        dice = random.Random(7)
        for kill in range(3):
            process = subprocess.Popen([*command, "--out", "killed"], cwd=tmp_path, stderr=subprocess.PIPE)
            enough = len(server.requests) + dice.randint(5, 40)
            while len(server.requests) < enough and process.poll() is None:
                time.sleep(0.002)
            process.send_signal(signal.SIGKILL)
            _, said = process.communicate(timeout=60)
            assert process.returncode == -signal.SIGKILL, said
            unfinished = [p for p in (tmp_path / "killed").glob("pub*.jsonl") if b'"event":"end"' not in p.read_bytes()]
            if kill == 1:
                with unfinished[0].open("ab") as log:
                    log.write(b'{"event":"turn","week":')
        before = len(server.requests)
        last = subprocess.run([*command, "--out", "killed"], cwd=tmp_path, capture_output=True, timeout=300)
        assert last.returncode == 0, last.stderr
        assert len(server.requests) > before
        assert conversations(server) == asked
        done = len(server.requests)
        again = subprocess.run([*command, "--out", "killed"], cwd=tmp_path, capture_output=True, timeout=300)
        assert again.returncode == 0
        assert len(server.requests) == done

    def logs(folder: str) -> dict[str, bytes]:
        return {path.name: path.read_bytes().partition(b"\n")[2] for path in (tmp_path / folder).glob("pub*.jsonl")}

    assert len(logs("whole")) == 4
    assert logs("killed") == logs("whole")
    facts = [json.loads(run.stdout) for run in (whole, last, again)]
    assert facts[0]["rows"] == facts[1]["rows"] == facts[2]["rows"]
    assert facts[1]["complete"]
    for name in ("results.csv", "weeks.csv"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_64_episodes_at_once_leave_the_event_loop_to_its_requests(
    play_plan: PlayPlan, streams: Streams, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loops: set[int] = set()
    workers: set[int] = set()
    for owner, name in ((st.Episode, "place_order"), (st.Episode, "__init__"), (EpisodeLog, "record"), (os, "fsync")):
        work = getattr(owner, name)

        def watched(*arguments: Any, work: Any = work, **named: Any) -> Any:
            workers.add(threading.get_ident())
            return work(*arguments, **named)

        monkeypatch.setattr(owner, name, watched)
    ask = Gateway.ask

    async def asked(*arguments: Any) -> Any:
        loops.add(threading.get_ident())
        return await ask(*arguments)

    monkeypatch.setattr(Gateway, "ask", asked)
    with Loopback(latency=0.05, bodies=False) as server:
        outcome = play_plan(agent("local", server), "0-63", "crowd", concurrency=64)
        assert outcome.exit_code == 0, outcome.problems
        assert 32 < server.peak <= 64
    assert len(loops) == 1
    assert workers
    assert not loops & workers
    with Loopback(bodies=False) as server:
        assert play_plan(agent("local", server), "0-63", "alone", concurrency=1).exit_code == 0
    assert bodies(streams("crowd")) == bodies(streams("alone"))
    assert max(path.stat().st_size for path in (tmp_path / "crowd").glob("pub*.jsonl")) < 1_000_000


def test_a_wrong_key_stops_the_whole_run_at_once(play_plan: PlayPlan, tmp_path: Path) -> None:
    with Loopback(key="another-key-altogether") as server:
        outcome = play_plan(agent("anthropic", server), "0-19", concurrency=2)
        assert len(server.requests) <= 2
    assert outcome.exit_code == 3
    assert set(outcome.statuses.values()) == {"provider"}
    assert len(outcome.problems) == 1
    assert CANARY.encode() not in everything_in(tmp_path) + outcome.problems[0].encode()


def test_a_missing_model_stops_the_whole_run_at_once(play_plan: PlayPlan) -> None:
    with Loopback() as server:
        missing = api_agent("openai/missing", base_url=server.url("openai"), prices={})
        outcome = play_plan(missing, "0-19", concurrency=2)
        assert len(server.requests) <= 2
    assert (outcome.exit_code, set(outcome.statuses.values())) == (3, {"provider"})


def test_what_the_model_does_has_a_status_of_its_own(play_plan: PlayPlan) -> None:
    for fault, status in (("refusal", "refusal"), ("length", "length"), ("silent", "no_tool_call")):
        with Loopback(faults={fault: 1.0}) as server:
            outcome = play_plan(agent("openai", server), "25", fault)
        assert list(outcome.statuses.values()) == [status]
        assert outcome.exit_code == 0
    with Loopback(faults={"malformed": 1.0}) as server:
        assert list(play_plan(agent("local", server), "25", "bad").statuses.values()) == ["invalid_actions"]
    with Loopback(context=3_000) as server:
        assert list(play_plan(agent("local", server), "25", "context").statuses.values()) == ["context_overflow"]


def test_a_server_that_cuts_conversations_is_found_out_and_the_run_resumes(play_plan: PlayPlan) -> None:
    with Loopback(context=4_096, silent_context=True) as server:
        cut = play_plan(agent("local", server), "25")
        assert (cut.exit_code, list(cut.statuses.values())) == (3, ["provider"])
        assert "context_truncated_by_server" in cut.problems[0]
        server.context = 200_000
        assert play_plan(agent("local", server), "25").exit_code == 0


def test_a_budget_ends_a_run_within_it_and_a_larger_one_resumes_it(play_plan: PlayPlan, tmp_path: Path) -> None:
    with Loopback() as server:
        poor = agent("openai", server, PRICE, max_output_tokens=500)
        outcome = play_plan(poor, "0-3", max_usd=0.5, concurrency=4)
        assert outcome.exit_code == 3
        assert "quota" in outcome.status_counts
        assert outcome.spent is not None
        assert 0.3 < outcome.spent <= 0.5
        again = play_plan(poor, "0-3", max_usd=0.5, concurrency=4)
        assert again.spent is not None
        assert outcome.spent <= again.spent <= 0.5
        rich = play_plan(poor, "0-3", max_usd=100.0, concurrency=4)
        assert (rich.exit_code, rich.unpriced) == (0, 0)
    with Loopback() as server:
        unpriced = agent("openai", server)
        with pytest.raises(UsageError, match="--max-usd needs the price of openai/fake"):
            play_plan(unpriced, "0", "none", max_usd=1.0)
        assert server.requests == []
        assert not (tmp_path / "none").exists()
        free = play_plan(agent("local", server), "0", "free", max_usd=1.0)
        assert (free.exit_code, free.spent, free.unpriced) == (0, 0.0, 0)
        unknown = play_plan(unpriced, "0", "unknown")
        assert (unknown.spent, unknown.unpriced) == (None, len([r for r in server.requests if "responses" in r.path]))


def test_another_host_a_dropped_parameter_and_who_served_stand_in_the_manifest(
    play_plan: PlayPlan, tmp_path: Path
) -> None:
    with Loopback(refuses=("temperature",)) as server:
        outcome = play_plan(agent("openrouter", server, temperature=0.0), "25")
        assert outcome.exit_code == 0
    invocation = json.loads((tmp_path / "out" / "manifest.json").read_text())["invocations"][0]
    assert "temperature" in invocation["dropped"]
    assert "temperature" not in invocation["sent"]
    assert invocation["served_models"]
    assert len(invocation["served_hosts"]) == 1
    assert invocation["deadlines"] == {"connect": 10.0, "idle": 600.0, "attempt": 900.0, "episode": 14_400.0}
    settings = json.loads((tmp_path / "out" / "manifest.json").read_text())["settings"]
    assert settings["settings"]["temperature"] == 0.0


def test_other_settings_are_refused_by_name(play_plan: PlayPlan) -> None:
    with Loopback() as server:
        play_plan(agent("openai", server), "25")
        asked = len(server.requests)
        with pytest.raises(UsageError, match="was made with settings"):
            play_plan(agent("openai", server, effort="low"), "25")
        with pytest.raises(UsageError, match="was made with model openai/fake"):
            play_plan(agent("local", server), "25")
        assert len(server.requests) == asked


def test_repeats_are_episodes_of_their_own_and_can_be_added(play_plan: PlayPlan, tmp_path: Path) -> None:
    with Loopback() as server:
        one = agent("local", server)
        play_plan(one, "25", repeats=1)
        asked = len(server.requests)
        outcome = play_plan(one, "25", repeats=3)
        assert len(server.requests) == 3 * asked
    assert [str(name) for name in outcome.statuses] == ["25", "25 (repeat 2)", "25 (repeat 3)"]
    assert {path.name for path in (tmp_path / "out").glob("pub*")} == {
        "published-25.jsonl", "published-25-r2.jsonl", "published-25-r3.jsonl",
    }  # fmt: skip


def test_a_torn_attempt_journal_is_mended_and_a_garbled_one_is_named(play_plan: PlayPlan, tmp_path: Path) -> None:
    with Loopback() as server:
        play_plan(agent("local", server), "25")
        journal = tmp_path / "out" / "attempts.jsonl"
        journal.write_bytes(journal.read_bytes() + b'{"event":"as')
        play_plan(agent("local", server), "25", repeats=2)
        journal.write_bytes(b"?\n" + journal.read_bytes())
        with pytest.raises(LogError, match=r"attempts.jsonl, line 1"):
            play_plan(agent("local", server), "25", repeats=3)
