"""Scores: null agents land where they must, what was broken off or is missing is counted, beliefs meet the truth."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stocktake_jax as st
from stocktake_agents import AGENTS, Agent, Outcome
from stocktake_agents.comparison import load_run
from stocktake_agents.conversation import Message, latest_report
from stocktake_agents.grading import KeywordGrader
from stocktake_agents.grading.book import GradeBook, rationales
from stocktake_agents.grading.grader import Grade
from stocktake_agents.log import read_events
from stocktake_agents.provider import Turn
from stocktake_agents.scoring import (
    by_group,
    finish_with_floor,
    replayed,
    score,
    seen_by_agent,
    seen_by_floor,
    stockout_flags,
)
from stocktake_agents.scripted import ScriptedProvider
from stocktake_agents.simple import planner

PlayPlan = Callable[..., Outcome]
SEEDS = "1,25,112,143"


class Quitter:
    """A planner that says nothing more from some week on."""

    def __init__(self, tape: st.Tape, week: int) -> None:
        self._inner, self._week = ScriptedProvider(planner, tape), week

    async def turn(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> Turn:
        if latest_report(messages)["week"] >= self._week:
            return Turn(text="I give up.", stop="end")
        return await self._inner.turn(messages, tools)


def test_the_floor_lands_at_zero(play_plan: PlayPlan, tmp_path: Path) -> None:
    play_plan("floor", SEEDS)
    found = score(load_run(tmp_path / "out"))
    assert found.all_planned.estimate == pytest.approx(0.0, abs=1e-4)
    assert found.mean_skill.estimate == pytest.approx(0.0, abs=1e-4)
    assert (found.planned, found.finished, found.broken_off, found.missing) == (4, 4, 0, 0)
    assert found.all_planned == found.completed


def test_the_primary_figure_is_a_ratio_of_dollars_with_the_oracle_s_error_in_it(
    play_plan: PlayPlan, tmp_path: Path
) -> None:
    play_plan("planner", SEEDS)
    run = load_run(tmp_path / "out")
    found = score(run)
    saved = sum(row.floor - (row.cost or 0) for row in run.rows)
    assert found.all_planned.estimate == pytest.approx(saved / sum(row.headroom or 0 for row in run.rows))
    assert found.all_planned.low < found.all_planned.estimate < found.all_planned.high
    assert found.worst_skill == min(row.skill or math.inf for row in run.rows)
    without = replace(run, rows=[replace(row, oracle=row.oracle) for row in run.rows])
    assert score(without) == found  # the same dice each time


def test_a_seed_without_headroom_counts_for_no_skill(play_plan: PlayPlan, tmp_path: Path) -> None:
    play_plan("planner", "11,25")
    found = score(load_run(tmp_path / "out"))
    assert found.all_planned.seeds == 1


def test_what_was_broken_off_is_completed_by_the_floor(play_plan: PlayPlan, tmp_path: Path) -> None:
    play_plan(Agent("quitter", lambda tape, repeat: Quitter(tape, 9)), "25")
    found = score(load_run(tmp_path / "out"))
    assert (found.finished, found.broken_off, found.missing) == (1, 1, 0)
    assert math.isnan(found.completed.estimate)
    log, tape = tmp_path / "out" / "published-25.jsonl", st.published_tape(25)
    episode = replayed(log, tape)
    assert episode.week == 9
    spent = episode.total_cost
    cost = finish_with_floor(episode)
    assert episode.done
    assert cost > spent
    [seed] = [seed for seed in st.published_seeds() if seed.seed == 25]
    assert found.all_planned.estimate == pytest.approx((seed.floor - cost) / (seed.floor - seed.oracle_mean))
    assert finish_with_floor(st.Episode(tape)) == pytest.approx(seed.floor, abs=0.05)


def test_missing_episodes_have_bounds_and_the_score_is_incomplete(play_plan: PlayPlan, tmp_path: Path) -> None:
    play_plan("planner", SEEDS)
    (tmp_path / "out" / "published-112.jsonl").unlink()
    run = load_run(tmp_path / "out")
    found = score(run)
    assert (found.missing, found.complete) == (1, False)
    assert found.low_bound < found.all_planned.estimate < found.high_bound
    assert found.all_planned.seeds == 3
    play_plan("planner", SEEDS)
    whole = score(load_run(tmp_path / "out"))
    assert whole.complete
    assert whole.low_bound == whole.high_bound == pytest.approx(whole.all_planned.estimate)


def test_repeats_are_averaged_within_a_seed_and_pass_together(play_plan: PlayPlan, tmp_path: Path) -> None:
    play_plan("planner", "25,112,143", repeats=2)
    run = load_run(tmp_path / "out")
    found = score(run)
    assert found.all_planned.seeds == 3
    skills = {row.episode.seed: row.skill or 0.0 for row in run.rows}
    passing = sum(skill >= 0.5 for skill in skills.values()) / 3
    assert found.passed == {1: pytest.approx(passing), 2: pytest.approx(passing), 4: None}


def test_a_replayed_desk_is_the_one_that_was_played(play_plan: PlayPlan, tmp_path: Path) -> None:
    play_plan("random", "25,mint:7")
    for name, tape in (("published-25", st.published_tape(25)), ("minted-7", st.mint(np.uint32(7)))):
        log = tmp_path / "out" / f"{name}.jsonl"
        events, _ = read_events(log)
        episode = replayed(log, tape)
        assert episode.total_cost == events[-1]["total"]
        true, _ = stockout_flags(episode)
        weeks = [event for event in events if event["event"] == "week"]
        assert true[1:].tolist() == [week["costs"]["stockout"] > 0 for week in weeks]


def test_the_paper_s_flag_misses_what_came_by_air() -> None:
    differs = 0
    for seed in range(12):
        episode = st.Episode(st.published_tape(seed))
        while not episode.done:
            episode.expedite_air(20)
            episode.place_order("r", 0)
        true, paper = stockout_flags(episode)
        assert (true <= paper).all()
        differs += int((paper & ~true).sum())
    assert differs > 0


# Beliefs.


def book_of(folder: Path, name: str, grade: Callable[[str], Grade | None]) -> GradeBook:
    book = GradeBook(folder, {"grader": name}, name)
    for log in folder.glob("published-*.jsonl"):
        for text in rationales(log).values():
            book.put(text, grade(text))
    return book


def test_naming_everything_every_week_wins_nothing(play_plan: PlayPlan, tmp_path: Path) -> None:
    play_plan("planner", SEEDS)
    run = load_run(tmp_path / "out")
    everything = by_group(
        seen_by_agent(run, book_of(run.folder, "all", lambda text: Grade(dict.fromkeys(st.FACTORS, "x")))), "sound"
    )["all"]
    nothing = by_group(seen_by_agent(run, book_of(run.folder, "none", lambda text: Grade({}))), "sound")["all"]
    assert everything.missed == 0
    assert everything.precision < 0.25
    assert nothing.detected == 0
    assert nothing.undiagnosed_weeks == everything.diagnosed_weeks
    assert nothing.undiagnosed_stockouts == everything.diagnosed_stockouts
    ungraded = by_group(seen_by_agent(run, book_of(run.folder, "mute", lambda text: None)), "sound")["all"]
    assert ungraded.ungraded_weeks == 4 * 25
    assert ungraded.diagnosed_weeks + ungraded.undiagnosed_weeks == 0


def test_groups_pool_to_all(play_plan: PlayPlan, tmp_path: Path) -> None:
    play_plan("planner", SEEDS)
    run = load_run(tmp_path / "out")
    for seen in (seen_by_agent(run, book_of(run.folder, "x", lambda text: Grade({"port": "p"}))), seen_by_floor(run)):
        groups = by_group(seen, "paper")
        for field in ("stress_episodes", "detected", "diagnosed_weeks", "undiagnosed_weeks", "named"):
            assert sum(getattr(groups[group], field) for group in st.PROFILES) == getattr(groups["all"], field)
        truth = sum(int(np.asarray(st.stress_mask(row.episode.tape())).any(axis=1).sum()) for row in run.rows)
        assert groups["all"].diagnosed_weeks + groups["all"].undiagnosed_weeks == truth


def test_the_exact_posterior_sees_more_than_keywords_and_is_right_more_often(
    play_plan: PlayPlan, tmp_path: Path
) -> None:
    import asyncio

    play_plan("planner", SEEDS)
    run = load_run(tmp_path / "out")
    grader = KeywordGrader()
    book = book_of(run.folder, "keyword", lambda text: asyncio.run(grader.grade(text)))
    agent, filtered = (by_group(seen, "sound")["all"] for seen in (seen_by_agent(run, book), seen_by_floor(run)))
    assert filtered.precision > agent.precision
    assert filtered.precision > 0.8
    assert filtered.stress_episodes == agent.stress_episodes


def test_scores_are_plain_numbers(play_plan: PlayPlan, tmp_path: Path) -> None:
    play_plan(replace(AGENTS["planner"], model="p"), "mint:7")
    found = score(load_run(tmp_path / "out"))
    assert math.isnan(found.all_planned.estimate)  # a minted tape has no reference yet
    assert (found.planned, found.finished) == (1, 1)
    assert json.dumps(found.passed) == '{"1": null, "2": null, "4": null}'
