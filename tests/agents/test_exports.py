"""Tables of a run, and runs side by side."""

import ast
import csv
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars
import pytest

import stocktake_jax as st
from stocktake_agents import AGENTS, TOOLS, Limits, Outcome, UsageError, load_rows, parse_seeds
from stocktake_agents.arms import Arm, Lens
from stocktake_agents.comparison import compare, load_run, load_runs
from stocktake_agents.exports import export
from stocktake_agents.manifest import settings_of
from stocktake_agents.seeds import repeated

PLAIN = Arm("plain", "These are the rules.", TOOLS, lambda tape: Lens(), {})
PlayPlan = Callable[..., Outcome]


def table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def exported(play_plan: PlayPlan, tmp_path: Path) -> Path:
    folder = tmp_path / "out"
    play_plan("random", "25,mint:7", repeats=2)
    rows = load_rows(folder, repeated(parse_seeds("25,mint:7"), 2))
    export(folder, rows, settings_of(AGENTS["random"], PLAIN, Limits()))
    return folder


def test_results_have_a_row_an_episode(exported: Path) -> None:
    rows = table(exported / "results.csv")
    assert [(row["source"], row["seed"], row["repeat"]) for row in rows] == [
        ("published", "25", "1"), ("minted", "7", "1"), ("published", "25", "2"), ("minted", "7", "2"),
    ]  # fmt: skip
    assert {row["arm"] for row in rows} == {"plain"}
    assert float(rows[0]["skill"]) < 0
    assert rows[1]["skill"] == ""
    assert rows[0]["cost"] != rows[2]["cost"]  # a repeat rolls its own dice
    assert rows[0]["usd_basis"] == "none"


def test_weeks_add_up_to_results(exported: Path) -> None:
    weeks = table(exported / "weeks.csv")
    assert len(weeks) == 4 * 26
    for row in table(exported / "results.csv"):
        mine = [
            w for w in weeks if (w["source"], w["seed"], w["repeat"]) == (row["source"], row["seed"], row["repeat"])
        ]
        assert [int(week["week"]) for week in mine] == list(range(26))
        costs = sum(float(week[f"cost_{name}"]) for week in mine for name in st.COSTS)
        assert costs == pytest.approx(float(row["cost"]), abs=1e-6)
        assert float(mine[-1]["total"]) == float(row["cost"])
    assert any(week["air"] != "0" for week in weeks)
    assert {week["contract_action"] for week in weeks} > {"", "sign"}


def test_parquet_holds_the_same(exported: Path) -> None:
    for name in ("results", "weeks"):
        frame, rows = polars.read_parquet(exported / f"{name}.parquet"), table(exported / f"{name}.csv")
        assert frame.columns == list(rows[0])
        assert frame.height == len(rows)
    assert polars.read_parquet(exported / "results.parquet")["cost"].sum() == pytest.approx(
        sum(float(row["cost"]) for row in table(exported / "results.csv"))
    )


def test_the_example_of_the_docs_reads_them(exported: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "agents.md").read_text(encoding="utf-8")
    [example] = re.findall(r"```python no-run\n(import csv.*?)```", page, re.DOTALL)
    assert len(example.strip().splitlines()) <= 10
    example = re.sub(r"runs/[^/\"]+", exported.as_posix(), example)
    run = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    spent = dict(ast.literal_eval(run.stdout))
    assert sum(spent.values()) == pytest.approx(sum(float(row["cost"]) for row in table(exported / "results.csv")))


def arm(name: str, **changes: Any) -> Arm:
    return replace(PLAIN, name=name, **changes)


def test_arms_are_compared_on_the_seeds_that_they_share(play_plan: PlayPlan, tmp_path: Path) -> None:
    play_plan("planner", "1,25,112,11", "a", arm=arm("faithful"))
    play_plan("planner", "25,112,143", "b", arm=arm("posterior"))
    play_plan("random", "25", "c", arm=arm("faithful"))
    cells = compare(load_runs([tmp_path / name for name in ("b", "a", "c")]))
    assert [(cell.model, cell.arm, cell.seeds) for cell in cells] == [
        ("planner", "faithful", 2), ("planner", "posterior", 2), ("random", "faithful", 1),
    ]  # fmt: skip
    assert [cell.finished for cell in cells] == [4, 3, 1]
    assert cells[0].difference is None
    assert cells[1].difference == pytest.approx(0.0)  # the script reads no posterior
    assert cells[1].standard_error == pytest.approx(0.0)
    rows = [row for row in load_run(tmp_path / "a").rows if row.episode.seed in (25, 112)]
    skills = [row.skill for row in rows if row.skill is not None]
    assert cells[0].skill == pytest.approx(sum(skills) / 2)
    saved = sum(row.floor - (row.cost or 0) for row in rows)
    assert cells[0].dollar_skill == pytest.approx(saved / sum(row.headroom or 0 for row in rows))


def test_a_difference_between_arms_is_paired_by_seed(play_plan: PlayPlan, tmp_path: Path) -> None:
    play_plan("floor", "1,25,112", "a", arm=arm("faithful"))
    play_plan(replace(AGENTS["planner"], model="floor"), "1,25,112", "b", arm=arm("posterior"))
    [base, shown] = compare(load_runs([tmp_path / "a", tmp_path / "b"]))
    assert base.skill == pytest.approx(0.0, abs=1e-4)
    assert shown.difference == pytest.approx((shown.skill or 0) - (base.skill or 0))
    assert shown.standard_error is not None
    assert shown.standard_error > 0


def test_runs_under_other_words_never_share_a_row_unmarked(play_plan: PlayPlan, tmp_path: Path) -> None:
    play_plan("planner", "25", "a", arm=arm("faithful"))
    play_plan("planner", "25", "b", arm=arm("faithful", system="Other rules.", standard=False))
    play_plan("planner", "25", "c", arm=arm("revealed", privileged=True))
    cells = compare(load_runs([tmp_path / name for name in "abc"]))
    assert cells[0].arm == "faithful"
    assert cells[1].arm.startswith("faithful (own wording ")
    assert [cell.privileged for cell in cells] == [False, False, True]
    play_plan("planner", "1", "d", arm=arm("faithful"))
    with pytest.raises(UsageError, match="both hold planner under faithful"):
        load_runs([tmp_path / "a", tmp_path / "d"])


def test_an_incomplete_run_says_so(play_plan: PlayPlan, tmp_path: Path) -> None:
    play_plan("planner", "1,25", "a", arm=arm("faithful"))
    (tmp_path / "a" / "published-1.jsonl").unlink()
    [cell] = compare(load_runs([tmp_path / "a"]))
    assert (cell.planned, cell.finished) == (2, 1)
