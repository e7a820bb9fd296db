"""Runs: every agent through the same loop, nothing lost, nothing done twice."""

import asyncio
import json
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import pytest

import stocktake_jax as st
from stocktake_agents import (
    AGENTS,
    TOOLS,
    Agent,
    Heartbeat,
    Limits,
    LogError,
    Outcome,
    Plan,
    ProviderError,
    ToolCall,
    Turn,
    UsageError,
    parse_seeds,
    policy_agent,
    progress,
    run,
)
from stocktake_agents.arms import Arm, Lens
from stocktake_agents.conversation import NUDGE, Message
from stocktake_agents.log import EpisodeLog, read_events
from stocktake_agents.scripted import ScriptedProvider, scripted
from stocktake_agents.simple import planner

PLAIN = Arm("plain", "These are the rules.", TOOLS, lambda tape: Lens(), {})
PlayPlan = Callable[..., Outcome]
Streams = Callable[[str], dict[str, list[bytes]]]


class Wrapped:
    """A planner with something done before each of its turns."""

    def __init__(self, tape: st.Tape, before: Callable[[Sequence[Message]], None]) -> None:
        self._inner = ScriptedProvider(planner, tape)
        self._before = before

    async def turn(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> Turn:
        self._before(messages)
        return await self._inner.turn(messages, tools)


def planner_that(before: Callable[[Sequence[Message]], None]) -> Agent:
    """Passes for the planner in every header, so that its runs can be told from the planner's by nothing else."""
    return Agent("planner", lambda tape, repeat: Wrapped(tape, before))


def saying(*turns: Turn) -> Agent:
    """Says the given turns over and over, whatever it reads."""

    class Parrot:
        async def turn(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> Turn:
            position = sum(message["role"] == "assistant" for message in messages)
            turn: Turn = turns[position % len(turns)]
            return turn

    return Agent("parrot", lambda tape, repeat: Parrot())


def order(qty: int = 0) -> ToolCall:
    return ToolCall("a", "place_order", json.dumps({"rationale": "As before.", "qty": qty}))


def files(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.iterdir()}


def test_every_agent_plays_to_the_end(play_plan: PlayPlan, streams: Streams) -> None:
    for model in AGENTS:
        outcome = play_plan(model, "25,mint:7", model)
        assert outcome.exit_code == 0
        assert outcome.turns == 52
        for stream in streams(model).values():
            events = [json.loads(line) for line in stream[1:]]
            assert [event["event"] for event in events] == ["turn", "result", "week"] * 26 + ["end"]
            assert events[-1]["counts"]["errors"] == 0
            assert events[-1]["total"] == pytest.approx(sum(sum(e["costs"].values()) for e in events[2::3]))


def test_the_second_run_asks_nothing_and_changes_nothing(play_plan: PlayPlan, tmp_path: Path) -> None:
    play_plan()
    before = files(tmp_path / "out")
    outcome = play_plan()
    assert outcome.exit_code == 0
    assert outcome.turns == 0
    assert files(tmp_path / "out") == before


def test_concurrency_does_not_show_in_the_logs(play_plan: PlayPlan, streams: Streams) -> None:
    play_plan("random", "0-9", "one", concurrency=1)
    play_plan("random", "0-9", "eight", concurrency=8)
    assert streams("one") == streams("eight")


def test_a_log_cut_anywhere_resumes_to_the_same_bytes(play_plan: PlayPlan, streams: Streams, tmp_path: Path) -> None:
    play_plan("random", "25", "whole")
    whole = (tmp_path / "whole" / "published-25.jsonl").read_bytes()
    (tmp_path / "out").mkdir()
    for cut in [0, 40, *range(1_000, len(whole), len(whole) // 6), len(whole) - 1]:
        (tmp_path / "out" / "published-25.jsonl").write_bytes(whole[:cut])
        assert play_plan("random", "25").exit_code == 0
        assert streams("out") == streams("whole")


@pytest.mark.parametrize("concurrency", [1, 8])
def test_ctrl_c_stops_between_turns_and_the_run_resumes(
    play_plan: PlayPlan, streams: Streams, concurrency: int
) -> None:
    turns = []

    def interrupt_once(messages: Sequence[Message]) -> None:
        turns.append(len(messages))
        if len(turns) == 40:
            signal.raise_signal(signal.SIGINT)

    handler = signal.getsignal(signal.SIGINT)
    outcome = play_plan(planner_that(interrupt_once), "0-4", concurrency=concurrency)
    assert signal.getsignal(signal.SIGINT) is handler
    assert outcome.exit_code == 130
    assert outcome.turns == len(turns) < 5 * 26
    assert "user" in outcome.statuses.values()
    resumed = play_plan("planner", "0-4")
    assert resumed.exit_code == 0
    assert resumed.turns == 5 * 26 - len(turns)
    play_plan("planner", "0-4", "whole")
    assert streams("out") == streams("whole")


@pytest.mark.parametrize("terminal", [False, True])
def test_a_run_shows_that_it_lives_and_that_it_drains(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    monkeypatch.setenv("FORCE_COLOR" if terminal else "NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")

    class Slow(Wrapped):
        async def turn(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> Turn:
            turn = await super().turn(messages, tools)
            await asyncio.sleep(4 * progress.REDRAW_SECONDS)
            return turn

    def interrupt(messages: Sequence[Message]) -> None:
        signal.raise_signal(signal.SIGINT)

    agent = Agent("planner", lambda tape, repeat: Slow(tape, interrupt))
    outcome = run(Plan(agent, PLAIN, parse_seeds("25"), tmp_path / "out"), Heartbeat("planner"))
    assert (outcome.exit_code, outcome.turns) == (130, 1)
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err.count("press Ctrl-C again to abort at once") == 1
    assert "0/1 done, 1 running, 0 waiting, oldest call" in captured.err


def test_a_second_ctrl_c_aborts_and_the_run_resumes(play_plan: PlayPlan, streams: Streams) -> None:
    turns = []

    def interrupt_twice(messages: Sequence[Message]) -> None:
        turns.append(len(messages))
        if len(turns) == 10:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        play_plan(planner_that(interrupt_twice))
    assert play_plan("planner").turns > 0
    play_plan("planner", out="whole")
    assert streams("out") == streams("whole")


def test_the_answer_is_on_disk_before_the_world_moves(
    play_plan: PlayPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_disk = []
    place_order = st.Episode.place_order

    def watched(episode: st.Episode, *arguments: Any, **named: Any) -> dict[str, Any]:
        last = read_events(tmp_path / "out" / "published-25.jsonl")[0][-1]
        on_disk.append(last["event"] == "turn" and last["week"] == episode.week)
        return place_order(episode, *arguments, **named)

    monkeypatch.setattr(st.Episode, "place_order", watched)
    play_plan("planner", "25")
    assert on_disk == [True] * 26


@pytest.mark.parametrize("agent", ["planner", policy_agent("policy", st.policies.floor(), jax.random.key(0))])
def test_neither_world_nor_disk_is_moved_on_the_event_loop(
    play_plan: PlayPlan, monkeypatch: pytest.MonkeyPatch, agent: str | Agent
) -> None:
    threads: dict[str, set[int]] = {"world": set(), "disk": set()}

    def spied(method: Callable[..., Any], name: str) -> Callable[..., Any]:
        def spy(*arguments: Any, **named: Any) -> Any:
            threads[name].add(threading.get_ident())
            return method(*arguments, **named)

        return spy

    monkeypatch.setattr(st.Episode, "__init__", spied(st.Episode.__init__, "world"))
    monkeypatch.setattr(st.Episode, "place_order", spied(st.Episode.place_order, "world"))
    monkeypatch.setattr(EpisodeLog, "record", spied(EpisodeLog.record, "disk"))
    play_plan(agent, "25")
    assert all(threads.values())
    assert threading.get_ident() not in threads["world"] | threads["disk"]


def test_the_world_is_compiled_before_anyone_is_asked(play_plan: PlayPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[int] = []
    at_turns: list[int] = []
    init = st.Episode.__init__

    def counted(episode: st.Episode, tape: st.Tape) -> None:
        init(episode, tape)
        built.append(int(tape.id))

    monkeypatch.setattr(st.Episode, "__init__", counted)
    play_plan(planner_that(lambda messages: at_turns.append(len(built))), "25")
    assert at_turns[0] == 2  # one desk to compile, one to play


def test_an_agent_that_never_calls_a_tool_is_reminded_and_then_ended(play_plan: PlayPlan, streams: Streams) -> None:
    outcome = play_plan(saying(Turn(text="Let me think.", stop="end")), "25", limits=Limits(nudges=2))
    assert list(outcome.statuses.values()) == ["no_tool_call"]
    assert outcome.exit_code == 0
    [stream] = streams("out").values()
    events = [json.loads(line) for line in stream[1:]]
    assert [event.get("nudge") for event in events if event["event"] == "result"] == [NUDGE, NUDGE, None]
    assert events[-1]["status"] == "no_tool_call"
    assert events[-1]["week"] == 0
    assert play_plan(saying(Turn(stop="end")), "25", limits=Limits(nudges=2)).turns == 0


def test_reminders_start_anew_every_week(play_plan: PlayPlan) -> None:
    silence = Turn(text="Hm.", stop="end")
    assert list(play_plan(saying(silence, silence, Turn(calls=(order(),))), "25").statuses.values()) == ["ok"]


def test_an_agent_that_never_commits_is_ended(play_plan: PlayPlan, streams: Streams) -> None:
    outcome = play_plan(saying(Turn(calls=(order(500),))), "25", limits=Limits(turns=4))
    assert list(outcome.statuses.values()) == ["invalid_actions"]
    [stream] = streams("out").values()
    end = json.loads(stream[-1])
    assert end["counts"] == {
        "turns": 4, "nudges": 0, "errors": 4, "unwrapped": 0, "suspected_parser_failures": 0,
    }  # fmt: skip


def test_levers_alone_do_not_hold_up_a_week_forever(play_plan: PlayPlan) -> None:
    outcome = play_plan(saying(Turn(calls=(ToolCall("a", "buy_audit", "{}"),))), "25")
    assert list(outcome.statuses.values()) == ["invalid_actions"]


def test_a_provider_that_fails_leaves_its_episode_to_be_resumed(play_plan: PlayPlan, streams: Streams) -> None:
    def fail_in_week_5(messages: Sequence[Message]) -> None:
        if len(messages) == 2 + 5 * 2:
            raise ProviderError("the model is overloaded")

    outcome = play_plan(planner_that(fail_in_week_5), "25")
    assert outcome.exit_code == 3
    assert list(outcome.statuses.values()) == ["provider"]
    assert outcome.problems == ["seed 25: the model is overloaded"]
    assert 0 < play_plan("planner", "25").turns < 26
    play_plan("planner", "25", "whole")
    assert streams("out") == streams("whole")


def test_a_fault_in_one_episode_does_not_cost_the_others_theirs(play_plan: PlayPlan) -> None:
    def stumble(report: dict[str, Any], rng: Any) -> list[Any]:
        if report["suez_count"] < 70:
            raise ZeroDivisionError("a bug")
        return [("place_order", {"rationale": "Calm.", "qty": 0})]

    outcome = play_plan(scripted("stumbling", stumble), "0-9")
    assert outcome.exit_code == 1
    assert set(outcome.statuses.values()) == {"ok", "harness"}
    assert "ZeroDivisionError: a bug" in outcome.problems[0]


@pytest.mark.parametrize(
    ("field", "changed"),
    [
        ("seeds", {"seeds": "1,25,143"}),
        ("model", {"agent": "idle"}),
        ("limits", {"limits": Limits(nudges=9)}),
    ],
)
def test_a_folder_of_other_settings_is_refused_and_kept(
    play_plan: PlayPlan, tmp_path: Path, field: str, changed: dict[str, Any]
) -> None:
    play_plan()
    before = files(tmp_path / "out")
    with pytest.raises(UsageError, match=f"manifest.json was made with {field} "):
        play_plan(**changed)
    assert files(tmp_path / "out") == before


@pytest.mark.parametrize(
    ("file", "field"),
    [("manifest.json", field) for field in ("schema", "package", "world", "prompt", "tools")]
    + [("published-25.jsonl", field) for field in ("schema", "package", "world", "model", "prompt", "tools")]
    + [("published-25.jsonl", field) for field in ("source", "seed", "tape")],
)
def test_a_folder_of_another_version_is_refused_and_kept(
    play_plan: PlayPlan, tmp_path: Path, field: str, file: str
) -> None:
    play_plan("idle", "25")
    path = tmp_path / "out" / file
    if file == "manifest.json":
        manifest = json.loads(path.read_text(encoding="utf-8"))
        manifest["settings"][field] = "other"
        path.write_text(json.dumps(manifest), encoding="utf-8")
    else:
        header, turn, _ = path.read_bytes().split(b"\n", 2)
        path.write_bytes(json.dumps(json.loads(header) | {field: "other"}).encode() + b"\n" + turn + b"\n")
    before = files(tmp_path / "out")
    with pytest.raises(UsageError, match=f"{file} was made with {field} other and this run has {field} "):
        play_plan("idle", "25")
    assert files(tmp_path / "out") == before


def test_an_altered_log_is_refused_where_it_differs(play_plan: PlayPlan, tmp_path: Path) -> None:
    play_plan("floor", "25")
    path = tmp_path / "out" / "published-25.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    week = json.loads(lines[6])
    week["total"] += 1
    path.write_bytes(b"".join([*lines[:6], json.dumps(week).encode() + b"\n", *lines[7:40]]))
    with pytest.raises(UsageError, match=r"published-25\.jsonl, line 7: .* the week event has another total"):
        play_plan("floor", "25")


def test_a_garbled_log_stops_the_run_before_it_starts(play_plan: PlayPlan, tmp_path: Path) -> None:
    play_plan("idle", "1,25")
    path = tmp_path / "out" / "published-25.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:3], b"garbage\n", *lines[4:]]))
    before = files(tmp_path / "out")
    with pytest.raises(LogError, match=r"published-25\.jsonl, line 4"):
        play_plan("idle", "1,25")
    assert files(tmp_path / "out") == before


def test_a_file_in_the_place_of_the_folder_is_refused(play_plan: PlayPlan, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine", encoding="utf-8")
    with pytest.raises(UsageError, match=r"cannot be used .* choose another with --out"):
        play_plan()
    assert (tmp_path / "out").read_text(encoding="utf-8") == "mine"


def test_a_manifest_that_is_none_is_refused(play_plan: PlayPlan, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "manifest.json").write_text("[]", encoding="utf-8")
    with pytest.raises(UsageError, match="is no manifest of a run"):
        play_plan()


def test_the_manifest_tells_what_ran_and_when(play_plan: PlayPlan, tmp_path: Path) -> None:
    play_plan("idle", "25,mint:3")
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["settings"]["seeds"] == ["25", "mint:3"]
    assert manifest["settings"]["world"] == st.world_hash()
    [invocation] = manifest["invocations"]
    assert {"started_utc", "ended_utc", "python", "jax", "git_commit"} <= set(invocation)
    assert invocation["statuses"] == {"ok": 2}
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "manifest.json",
        "minted-3.jsonl",
        "published-25.jsonl",
    ]


def test_no_secret_of_the_environment_reaches_a_file(
    play_plan: PlayPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "canary-7141")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "https://user:canary-7141@example.org")
    play_plan("planner", "25")
    assert not any(b"canary-7141" in path.read_bytes() for path in (tmp_path / "out").iterdir())


def test_a_run_works_outside_the_main_thread(play_plan: PlayPlan) -> None:
    outcomes: list[Outcome] = []
    thread = threading.Thread(target=lambda: outcomes.append(play_plan("idle", "25")))
    thread.start()
    thread.join()
    assert [outcome.exit_code for outcome in outcomes] == [0]
