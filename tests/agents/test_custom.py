"""A user's own agent, and the answers of an earlier run: both play, resume and are told what is wrong."""

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stocktake_jax as st
from stocktake_agents import Agent, Outcome, UsageError
from stocktake_agents.custom import ToolError, Tools, act_agent, load_act
from stocktake_agents.log import read_events
from stocktake_agents.recorded import recorded_agent

PlayPlan = Callable[..., Outcome]
Streams = Callable[[str], dict[str, list[bytes]]]
Report = dict[str, Any]


async def curious(report: Report, tools: Tools) -> None:
    """Uses every kind of call: levers with and without answers, a refused one, and an order."""
    if report["week"] % 5 == 0:
        canal = await tools.buy_briefing()
        if canal == "Canal: calm.":
            await tools.lock_freight(weeks=2)
    try:
        await tools.expedite_air(qty=0)
    except ToolError as refused:
        assert "from 1 upwards" in str(refused)  # noqa: PT017
    spot = report["suppliers"][1]["band"]
    qty = 20 if spot == "ontime" else 0
    await tools.place_order(rationale=f"Spot is {spot}.", qty=qty, route="suez", supplier="spot")


def agent(act: Any) -> Agent:
    return act_agent("mine", lambda: act)


def test_an_act_plays_to_the_end_and_its_calls_get_their_answers(play_plan: PlayPlan, tmp_path: Path) -> None:
    outcome = play_plan(agent(curious), "1,25")
    assert list(outcome.statuses.values()) == ["ok", "ok"]
    events, _ = read_events(tmp_path / "out" / "published-25.jsonl")
    weeks = [event for event in events if event["event"] == "week"]
    assert [call["name"] for call in weeks[0]["calls"]] == ["buy_briefing", "lock_freight", "place_order"]
    assert events[-1]["counts"]["errors"] == 26
    turns = [event for event in events if event["event"] == "turn"]
    assert all(len(event["turn"]["calls"]) == 1 for event in turns)


def test_an_act_resumes_in_the_middle_of_a_week(play_plan: PlayPlan, streams: Streams, tmp_path: Path) -> None:
    play_plan(agent(curious), "25", "whole")
    lines = (tmp_path / "whole" / "published-25.jsonl").read_bytes().splitlines(keepends=True)
    for cut in range(2, len(lines), 7):
        folder = tmp_path / f"cut{cut}"
        folder.mkdir()
        (folder / "published-25.jsonl").write_bytes(b"".join(lines[:cut]))
        assert play_plan(agent(curious), "25", folder.name).exit_code == 0
        assert streams(folder.name) == streams("whole")


def test_an_act_that_acts_otherwise_on_resume_is_refused(play_plan: PlayPlan, tmp_path: Path) -> None:
    async def other(report: Report, tools: Tools) -> None:
        await tools.inspect_batch()
        await tools.place_order(rationale="r", qty=0)

    play_plan(agent(curious), "25")
    log = tmp_path / "out" / "published-25.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:3]))  # the briefing of week 0 is on record
    outcome = play_plan(agent(other), "25")
    assert list(outcome.statuses.values()) == ["provider"]
    assert "act alike on the same report" in outcome.problems[0]


def test_each_episode_has_an_act_of_its_own(play_plan: PlayPlan, tmp_path: Path) -> None:
    class Counting:
        def __init__(self) -> None:
            self.weeks = 0

        async def act(self, report: Report, tools: Tools) -> None:
            assert report["week"] == self.weeks
            self.weeks += 1
            await asyncio.sleep(0)
            await tools.place_order(rationale="One more week.", qty=0)

    outcome = play_plan(act_agent("counting", lambda: Counting().act), "0-3", repeats=2)
    assert set(outcome.statuses.values()) == {"ok"}


def test_an_act_that_forgets_its_order_is_reminded_and_then_ended(play_plan: PlayPlan) -> None:
    async def forgetful(report: Report, tools: Tools) -> None:
        await tools.inspect_batch()

    assert list(play_plan(agent(forgetful), "25").statuses.values()) == ["no_tool_call"]


def test_a_fault_in_an_act_is_shown_and_leaves_the_episode_open(play_plan: PlayPlan) -> None:
    async def faulty(report: Report, tools: Tools) -> None:
        if report["week"] == 3:
            raise KeyError("suez_cuont")
        await tools.place_order(rationale="r", qty=0)

    outcome = play_plan(agent(faulty), "25")
    assert (outcome.exit_code, list(outcome.statuses.values())) == (3, ["provider"])
    assert "suez_cuont" in outcome.problems[0]
    assert "test_custom.py" in outcome.problems[0]


def test_an_act_that_calls_on_after_its_order_is_told(play_plan: PlayPlan) -> None:
    async def eager(report: Report, tools: Tools) -> None:
        await tools.place_order(rationale="r", qty=0)
        await tools.place_order(rationale="r", qty=0)

    outcome = play_plan(agent(eager), "25")
    assert "return instead" in outcome.problems[0]


def test_an_act_never_sees_the_tape(play_plan: PlayPlan) -> None:
    seen: list[set[str]] = []

    async def looking(report: Report, tools: Tools) -> None:
        seen.append(set(report) | set(vars(tools)))
        await tools.place_order(rationale="r", qty=0)

    play_plan(agent(looking), "25")
    report = st.Episode(st.published_tape(25)).report()
    assert set.union(*seen) <= {*report, "_call", "realized_fill", "freight_lock"}


GOOD = """
async def act(report, tools):
    await tools.place_order(rationale="From a file.", qty=0)

class Agent:
    async def act(self, report, tools):
        await tools.place_order(rationale="From a class.", qty=0)

def plain(report, tools):
    pass
"""


def test_agents_come_from_files(play_plan: PlayPlan, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(GOOD, encoding="utf-8")
    for name, words in (("act", "From a file."), ("Agent", "From a class.")):
        assert play_plan(load_act(path, name), "25", name).exit_code == 0
        events, _ = read_events(tmp_path / name / "published-25.jsonl")
        assert words in json.dumps(events)
    before = load_act(path, "act").settings
    path.write_text(GOOD + "# changed\n", encoding="utf-8")
    assert load_act(path, "act").settings != before
    for name in ("plain", "missing"):
        with pytest.raises(UsageError, match="async function of"):
            load_act(path, name)
    path.write_text("import nowhere_to_be_found", encoding="utf-8")
    with pytest.raises(UsageError, match=r"cannot be loaded \(ModuleNotFoundError"):
        load_act(path, "act")
    with pytest.raises(UsageError, match="cannot be loaded"):
        load_act(tmp_path / "none.py", "act")


def test_recorded_answers_play_the_same_run_again(play_plan: PlayPlan, tmp_path: Path) -> None:
    play_plan("random", "25,mint:7", "first", repeats=2)
    again = recorded_agent(tmp_path / "first")
    outcome = play_plan(again, "25,mint:7", "second", repeats=2)
    assert outcome.exit_code == 0
    for path in (tmp_path / "first").glob("*-*.jsonl"):
        first, second = (read_events(folder / path.name)[0] for folder in (tmp_path / "first", tmp_path / "second"))
        assert first[1:] == second[1:]
    more = play_plan(again, "1", "third")
    assert "the record ends after 0 answers" in more.problems[0]
    with pytest.raises(UsageError, match="has no logs"):
        recorded_agent(tmp_path / "nothing")
    assert recorded_agent(tmp_path / "second").settings == again.settings


@pytest.mark.parametrize("page", ["README.md", "docs/agents.md"])
def test_the_docs_show_an_agent_that_plays(page: str, play_plan: PlayPlan, tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / page).read_text(encoding="utf-8")
    [shown] = re.findall(r"```python\n(async def act\(.*?)```", text, re.DOTALL)
    assert len(shown.strip().splitlines()) <= 10
    path = tmp_path / "mine.py"
    path.write_text(shown, encoding="utf-8")
    assert list(play_plan(load_act(path, "act"), "2,25").statuses.values()) == ["ok", "ok"]
