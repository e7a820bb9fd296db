"""Runs side by side: arms of one agent, agents under one arm, on the seeds that they have in common.

What an arm adds is an intervention: the same agent plays the same tapes and is told or shown something more. So the
difference between two arms, seed by seed, prices what was added (docs/arms.md).
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from stocktake_agents.conversation import digest
from stocktake_agents.errors import UsageError
from stocktake_agents.manifest import read_manifest
from stocktake_agents.scoreboard import Row, averaged, load_rows
from stocktake_agents.seeds import EpisodeName

REFERENCE = "faithful"


@dataclass(frozen=True)
class Run:
    """A results folder, read.

    Attributes:
        folder: where it lies.
        model: who played, and how hard it was to think.
        arm: the arm, marked where its words are not the shipped ones.
        privileged: whether it showed what no report shows.
        planned: episodes planned.
        rows: the finished ones.
        planned_seeds: the first repeat of each planned tape.
    """

    folder: Path
    model: str
    arm: str
    privileged: bool
    planned: int
    rows: list[Row]
    planned_seeds: tuple[EpisodeName, ...] = ()

    @property
    def seeds(self) -> dict[EpisodeName, Row]:
        """One row a seed, repeats averaged, of those with a completed episode and headroom."""
        repeats: dict[EpisodeName, list[Row]] = {}
        for row in self.rows:
            repeats.setdefault(row.episode.first, []).append(row)
        rows = {name: averaged(rows) for name, rows in repeats.items()}
        return {name: row for name, row in rows.items() if row.skill is not None}


def load_run(folder: Path) -> Run:
    """Reads a results folder.

    Raises:
        UsageError: it is none.
        LogError: a log cannot be read.
    """
    manifest = read_manifest(folder)
    settings = manifest["settings"]
    names = _planned(manifest)
    arm = settings["arm"]
    if not settings["arm_details"]["standard"]:
        arm += f" (own wording {digest([settings['prompt'], settings['arm_details']])[:8]})"
    asked = [
        f"{name} {settings['settings'][name]}" for name in ("effort", "temperature") if name in settings["settings"]
    ]
    model = settings["model"] + (f" ({', '.join(asked)})" if asked else "")
    privileged, seeds = settings["arm_details"]["privileged"], tuple(dict.fromkeys(name.first for name in names))
    return Run(folder, model, arm, privileged, len(names), load_rows(folder, names), seeds)


def episodes_of(folder: Path) -> list[EpisodeName]:
    """The episodes that the runs into a results folder planned.

    Raises:
        UsageError: it is none.
    """
    return _planned(read_manifest(folder))


def _planned(manifest: Mapping[str, Any]) -> list[EpisodeName]:
    repeats = max((invocation.get("repeats", 1) for invocation in manifest["invocations"]), default=1)
    return [
        EpisodeName(*_source_and_seed(text), repeat=repeat)
        for repeat in range(1, repeats + 1)
        for text in manifest["settings"]["seeds"]
    ]


def _source_and_seed(text: str) -> tuple[str, int]:
    return ("minted", int(text.removeprefix("mint:"))) if text.startswith("mint:") else ("published", int(text))


def load_runs(folders: Sequence[Path]) -> list[Run]:
    """Reads results folders, and looks that no two of them say the same of the same.

    Raises:
        UsageError: two folders hold the same agent under the same arm.
    """
    runs = [load_run(folder) for folder in folders]
    seen: dict[tuple[str, str], Run] = {}
    for run in runs:
        other = seen.setdefault((run.model, run.arm), run)
        if other is not run:
            raise UsageError(
                f"{other.folder} and {run.folder} both hold {run.model} under {run.arm}: name one of them."
            )
    return runs


@dataclass(frozen=True)
class Cell:
    """An agent under an arm, on the seeds that all its arms have in common.

    Attributes:
        model, arm, privileged: see ``Run``.
        planned, finished: episodes.
        seeds: how many are in common.
        dollar_skill: Σ(floor - cost) / Σ(floor - oracle) over them.
        skill: mean over them.
        difference: mean skill less that of the reference arm, seed by seed; None for the reference and without one.
        standard_error: of that difference.
    """

    model: str
    arm: str
    privileged: bool
    planned: int
    finished: int
    seeds: int
    dollar_skill: float | None
    skill: float | None
    difference: float | None
    standard_error: float | None


def compare(runs: Sequence[Run], reference: str = REFERENCE) -> list[Cell]:
    """One cell for each run, the arms of an agent together, the reference arm first."""
    cells = []
    for model in dict.fromkeys(run.model for run in runs):
        arms = sorted((run for run in runs if run.model == model), key=lambda run: run.arm != reference)
        seeds = [run.seeds for run in arms]
        common = [name for name in seeds[0] if all(name in other for other in seeds)]
        base = seeds[0] if arms[0].arm == reference else None
        for run, rows in zip(arms, seeds, strict=True):
            paired = None if base is None or base is rows else [base[name] for name in common]
            cells.append(_cell(run, [rows[name] for name in common], paired))
    return cells


def _cell(run: Run, rows: Sequence[Row], base: Sequence[Row] | None) -> Cell:
    skills = [row.skill or 0.0 for row in rows]
    headroom = sum(row.headroom or 0.0 for row in rows)
    saved = sum(row.floor - (row.cost or 0.0) for row in rows)
    difference = error = None
    if base:
        gains = [skill - (row.skill or 0.0) for skill, row in zip(skills, base, strict=True)]
        difference = statistics.fmean(gains)
        error = statistics.stdev(gains) / math.sqrt(len(gains)) if len(gains) > 1 else None
    return Cell(
        run.model, run.arm, run.privileged, run.planned, len(run.rows), len(rows),
        saved / headroom if rows else None, statistics.fmean(skills) if rows else None, difference, error,
    )  # fmt: skip


def comparison_table(cells: Sequence[Cell]) -> Table:
    """The cells for people."""
    table = Table("agent", "arm", title="Arms, on the seeds that all arms of an agent have in common")
    for heading in ("episodes", "seeds", "dollar skill", "mean skill", "against faithful"):
        table.add_column(heading, justify="right")
    for cell in cells:
        against = ""
        if cell.difference is not None:
            against = f"{cell.difference:+.2f}" + (
                "" if cell.standard_error is None else f" ± {cell.standard_error:.2f}"
            )
        arm = cell.arm + (" (privileged)" if cell.privileged else "")
        finished = f"{cell.finished}/{cell.planned}" + ("" if cell.finished == cell.planned else " INCOMPLETE")
        table.add_row(cell.model, arm, finished, str(cell.seeds), _two(cell.dollar_skill), _two(cell.skill), against)
    return table


def as_json(cells: Sequence[Cell]) -> list[Mapping[str, Any]]:
    """The cells as plain JSON."""
    return [vars(cell) for cell in cells]


def _two(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.2f}"
