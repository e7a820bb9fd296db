"""Scores: which seeds count where, read from logs alone."""

import io
import json
import statistics
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

import stocktake_jax as st
from stocktake_agents import EpisodeName, Outcome, load_rows, parse_seeds, summaries
from stocktake_agents.arms import Arm, Lens
from stocktake_agents.log import encode
from stocktake_agents.scoreboard import Row, as_json, label, score_table, seed_table, summarise

PlayPlan = Callable[..., Outcome]


def row(cost: float | None, seed: int = 25, floor: float = 6000.0, oracle: float | None = 5000.0) -> Row:
    status, weeks = ("ok", 26) if cost is not None else ("no_tool_call", 3)
    return Row(EpisodeName("published", seed), "isolated", status, weeks, cost, floor, oracle)


@pytest.fixture
def finished(tmp_path: Path) -> Callable[[dict[int, float]], list[Row]]:
    """Rows of published seeds that ended at the given costs."""

    def finish(costs: dict[int, float]) -> list[Row]:
        for seed, total in costs.items():
            end = {"event": "end", "status": "ok", "week": 26, "total": total, "counts": {}, "usage": {}}
            (tmp_path / f"published-{seed}.jsonl").write_bytes(encode({"event": "header"}) + encode(end))
        return load_rows(tmp_path, parse_seeds("published"))

    return finish


def test_published_models_score_what_the_paper_prints(finished: Callable[[dict[int, float]], list[Row]]) -> None:
    printed = {
        "claude_sonnet_5": (0.49, 0.45, 9, 40),
        "gpt_5_4": (0.62, 0.65, 8, 42),
        "deepseek_v4_pro": (-0.23, 0.15, 22, 28),
        "grok_4_5": (-0.13, -0.08, 28, 21),
    }
    assert printed.keys() == st.published_seeds()[0].model_costs.keys()
    for model, (mean, median, below, beats) in printed.items():
        rows = finished({seed.seed: seed.model_costs[model] for seed in st.published_seeds()})
        summary = summarise(rows, "all")
        assert summary.skill_mean == pytest.approx(mean, abs=0.0051)
        assert summary.skill_median == pytest.approx(median, abs=0.0051)
        assert (summary.below_floor, summary.skill_seeds) == (below, 49)
        assert (summary.beats_floor, summary.seeds) == (beats, 50)


def test_negative_headroom_and_thin_seeds_are_those_of_the_paper(
    finished: Callable[[dict[int, float]], list[Row]],
) -> None:
    rows = finished({seed.seed: 5000.0 for seed in st.published_seeds()})
    assert [r.episode.seed for r in rows if r.no_headroom] == [11]
    assert [r.episode.seed for r in rows if r.thin] == [36, 160, 164]
    [seed_11] = [r for r in rows if r.no_headroom]
    assert seed_11.skill is None
    assert seed_11.beats_floor


def test_the_floor_neither_beats_nor_loses_to_its_rounded_self() -> None:
    assert not row(5999.96, floor=6000.0).beats_floor
    assert not row(6000.04, floor=6000.0).below_floor
    assert row(5999.9, floor=6000.0).beats_floor
    assert row(6000.1, floor=6000.0).below_floor


def test_what_was_not_completed_is_counted_and_never_averaged() -> None:
    summary = summarise([row(5500.0, 1), row(None, 25), row(7000.0, 112)], "all")
    assert (summary.seeds, summary.episodes) == (3, 3)
    assert summary.cost_mean == 6250.0
    assert (summary.skill_mean, summary.skill_seeds) == (-0.25, 2)
    assert (summary.below_floor, summary.beats_floor) == (1, 1)


def test_nothing_to_average_is_not_a_number_nor_an_error() -> None:
    assert summarise([], "all").skill_mean is None
    summary = summarise([row(None, 1), row(4000.0, 25, oracle=None)], "all")
    assert (summary.skill_mean, summary.skill_median, summary.skill_seeds) == (None, None, 0)


def test_repeats_are_averaged_before_seeds() -> None:
    again = replace(row(5000.0, 25), episode=EpisodeName("published", 25, 2))
    summary = summarise([row(6000.0, 25), again, row(5000.0, 1)], "all")
    assert (summary.seeds, summary.episodes, summary.skill_seeds) == (2, 3, 2)
    assert summary.skill_mean == pytest.approx((0.5 + 1.0) / 2)
    assert summary.cost_mean == 5250.0
    given_up = replace(row(None, 25), episode=EpisodeName("published", 25, 2))
    assert summarise([row(6000.0, 25), given_up], "all").cost_mean == 6000.0


def test_tapes_without_published_figures_have_a_floor_and_a_group(play_plan: PlayPlan, tmp_path: Path) -> None:
    play_plan("floor", "2,mint:7")
    rows = load_rows(tmp_path / "out", parse_seeds("2,mint:7"))
    for r in rows:
        assert r.cost == pytest.approx(r.floor, abs=1e-6)
        assert r.group in st.PROFILES
        assert (r.oracle, r.skill, r.beats_floor) == (None, None, False)


def test_only_finished_episodes_are_scored(play_plan: PlayPlan, tmp_path: Path) -> None:
    play_plan("planner", "1,25")
    path = tmp_path / "out" / "published-1.jsonl"
    path.write_bytes(path.read_bytes()[:-10])
    assert [r.episode.seed for r in load_rows(tmp_path / "out", parse_seeds("1,25,143"))] == [25]


def test_json_and_tables_agree(finished: Callable[[dict[int, float]], list[Row]]) -> None:
    rows = finished({11: 6000.0, 25: 5000.0, 36: 5000.0, 1: 7000.0})
    board = json.loads(json.dumps(as_json(rows), allow_nan=False))
    assert [group["group"] for group in board["groups"]] == ["isolated", "persistent", "all"]
    skills = [r["skill"] for r in board["rows"] if r["skill"] is not None]
    assert board["groups"][-1]["skill_mean"] == pytest.approx(statistics.fmean(skills))
    assert [r["thin_headroom"] for r in board["rows"]] == [False, False, False, True]
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(seed_table(rows), score_table("title", "group", [(s.group, s) for s in summaries(rows)]))
    text = console.export_text()
    assert "n/a!" in text
    assert "* headroom (floor - oracle) under 700" in text
    assert "! negative headroom" in text
    assert f"{board['groups'][-1]['skill_mean']:.2f}" in text


def test_labels_tell_arms_and_wordings_apart_and_survive_printing() -> None:
    arm = Arm("posterior", "The rules.", (), lambda tape: Lens(), {})
    own = label("a/model", replace(arm, standard=False))
    assert label("a/model", arm) == "a/model [posterior]"
    assert own.startswith("a/model [posterior, own wording ")
    assert label("a/model", replace(arm, standard=False, system="Other rules.")) != own
    assert label("a/model", replace(arm, privileged=True)) == "a/model [posterior, privileged]"
    console = Console(file=io.StringIO(), width=100)
    console.print(score_table(label("a/model", arm), "group", []))
    assert "a/model [posterior]" in console.file.getvalue()  # type: ignore[attr-defined]
