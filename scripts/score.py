"""Scores finished runs: cost against the references, arms side by side, and what graded rationales saw."""

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from stocktake_agents.cli import exit_codes
from stocktake_agents.comparison import Run, as_json, compare, comparison_table, load_runs
from stocktake_agents.grading.book import books
from stocktake_agents.scoring import Score, Seen, by_group, score, seen_by_agent, seen_by_floor
from stocktake_jax.metrics import DEFINITIONS, BeliefMetrics, Interval

EPILOG = """
\b
Examples:
  python scripts/score.py runs/planner-published runs/planner-posterior-published
  python scripts/grade.py runs/planner-published; python scripts/score.py runs/planner-published --definition sound

\b
The primary figure is the aggregate dollar skill over all planned episodes; all else is exploratory. Beliefs are scored
for every grades-*.jsonl in a folder (scripts/grade.py makes them). Reads files and asks nobody.
Exit codes: 0 scored, 1 a log cannot be read, 2 bad use.
"""


@click.command(
    help=__doc__, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"], "show_default": True}
)
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--definition", type=click.Choice(DEFINITIONS), default="paper", help="Of detection and stressed weeks.")
@click.option("--json", "as_json_", is_flag=True, help="Print the result as JSON and nothing else on stdout.")
def main(runs: tuple[Path, ...], definition: str, as_json_: bool) -> None:
    with exit_codes():
        loaded = load_runs(runs)
        cells = compare(loaded)
        scores = [score(run) for run in loaded]
        beliefs = {str(run.folder): _beliefs(run) for run in loaded}
    if as_json_:
        facts = {
            "arms": as_json(cells),
            "scores": {str(run.folder): _plain(asdict(one)) for run, one in zip(loaded, scores, strict=True)},
            "beliefs": {folder: _belief_json(seen, definition) for folder, seen in beliefs.items() if seen},
            "definition": definition,
        }
        click.echo(json.dumps(facts, indent=2))
        return
    console = Console()
    console.print(_score_table(loaded, scores))
    if len(loaded) > 1:
        console.print(comparison_table(cells))
    for folder, seen in beliefs.items():
        if seen:
            console.print(_belief_table(folder, seen, definition))


def _beliefs(run: Run) -> dict[str, list[Seen]]:
    graded = {f"graded by {book.grader}": seen_by_agent(run, book) for book in books(run.folder)}
    return graded | {"floor, exact posterior": seen_by_floor(run)} if graded else {}


def _score_table(runs: list[Run], scores: list[Score]) -> Table:
    table = Table("run", title="Skill: 0 at the floor, 1 at the paper's oracle")
    for heading in ("episodes", "dollar skill, all planned (primary)", "completed", "mean skill", "median", "worst"):
        table.add_column(heading, justify="right")
    table.add_column("derailed", justify="right")
    for run, one in zip(runs, scores, strict=True):
        episodes = f"{one.finished}/{one.planned}" + (f", {one.broken_off} broken off" if one.broken_off else "")
        primary = _interval(one.all_planned)
        if not one.complete:
            episodes += " INCOMPLETE"
            primary += f", if complete {one.low_bound:.2f} to {one.high_bound:.2f}"
        table.add_row(
            f"{run.model}, {run.arm}", episodes, primary, _interval(one.completed), _interval(one.mean_skill),
            _number(one.median_skill), _number(one.worst_skill), _percent(one.derailed),
        )  # fmt: skip
    return table


def _belief_table(folder: str, seen: dict[str, list[Seen]], definition: str) -> Table:
    table = Table("who", "group", title=f"{folder}: beliefs, definition {definition}")
    for heading in (
        "detected",
        "mean lag",
        "precision",
        "knowing-doing (weeks)",
        "paper's flag",
        "undiagnosed",
        "ungraded",
    ):
        table.add_column(heading, justify="right")
    for who, episodes in seen.items():
        paper = by_group(episodes, definition, paper_flag=True)
        for group, found in by_group(episodes, definition).items():
            table.add_row(
                who, group, f"{found.detected}/{found.stress_episodes}", _number(found.mean_lag),
                _number(found.precision), f"{_number(found.knowing_doing)} ({found.diagnosed_weeks})",
                _number(paper[group].knowing_doing), f"{_number(found.not_knowing)} ({found.undiagnosed_weeks})",
                str(found.ungraded_weeks),
            )  # fmt: skip
    return table


def _belief_json(seen: dict[str, list[Seen]], definition: str) -> dict[str, Any]:
    def rates(found: BeliefMetrics) -> dict[str, Any]:
        names = ("mean_lag", "detection", "knowing_doing", "not_knowing", "precision")
        return _plain(asdict(found) | {name: getattr(found, name) for name in names})

    return {
        who: {
            flag: {group: rates(found) for group, found in by_group(episodes, definition, flag == "paper_flag").items()}
            for flag in ("true_flag", "paper_flag")
        }
        for who, episodes in seen.items()
    }


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(entry) for key, entry in value.items()}
    return None if isinstance(value, float) and math.isnan(value) else value


def _interval(found: Interval) -> str:
    if math.isnan(found.estimate):
        return "n/a"
    return f"{found.estimate:.2f} [{_number(found.low)}, {_number(found.high)}]"


def _percent(share: float) -> str:
    return "n/a" if math.isnan(share) else f"{share:.0%}"


def _number(value: float) -> str:
    return "n/a" if math.isnan(value) else f"{value:.2f}"


if __name__ == "__main__":
    main()
