"""Scores a results folder from its finished logs alone, so that a table can be had again at any time.

Costs are compared to one decimal, the precision of the published figures: the floor policy neither beats nor loses to
its own published cost.
"""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
from rich.table import Table

import stocktake_jax as st
from stocktake_agents.log import read_events
from stocktake_agents.seeds import TapeName

THIN_HEADROOM = 700.0  # below this many dollars between floor and oracle, the skill of a single seed is mostly noise


@dataclass(frozen=True)
class Row:
    """One finished episode.

    Attributes:
        tape: which.
        group: its stress profile.
        status: how it ended.
        weeks: weeks committed.
        cost: dollars over all weeks, or None when the agent did not get to the end.
        floor: dollars the floor policy spends on this tape.
        oracle: mean dollars of the published oracle; None off the fifty published seeds.
    """

    tape: TapeName
    group: str
    status: str
    weeks: int
    cost: float | None
    floor: float
    oracle: float | None

    @property
    def headroom(self) -> float | None:
        """What lies between floor and oracle, in dollars."""
        return None if self.oracle is None else self.floor - self.oracle

    @property
    def thin(self) -> bool:
        """Whether the headroom is too small for the skill of this one seed to say much."""
        return self.headroom is not None and 0 < self.headroom < THIN_HEADROOM

    @property
    def no_headroom(self) -> bool:
        """Whether the floor beats the oracle on this tape, which leaves its skill undefined."""
        return self.headroom is not None and self.headroom <= 0

    @property
    def skill(self) -> float | None:
        """0 at the floor, 1 at the oracle; None where it is undefined or unknown."""
        if self.cost is None or self.oracle is None or self.no_headroom:
            return None
        return float(st.metrics.skill(self.cost, self.floor, self.oracle))

    @property
    def beats_floor(self) -> bool:
        """Whether the episode was completed for less than the floor spends."""
        return self.cost is not None and round(self.cost, 1) < round(self.floor, 1)

    @property
    def below_floor(self) -> bool:
        """Whether a defined skill is negative: the floor would have been cheaper."""
        return self.skill is not None and self.cost is not None and round(self.cost, 1) > round(self.floor, 1)


@dataclass(frozen=True)
class Summary:
    """The rows of one group. Skills are over completed seeds with headroom; the rest are counted, never averaged.

    Attributes:
        group: a stress profile or "all".
        seeds: finished episodes.
        cost_mean: mean dollars of the completed ones, or None.
        skill_mean, skill_median: over ``skill_seeds`` seeds, or None when there are none.
        below_floor: how many of those have a negative skill.
        beats_floor: how many of all ``seeds`` cost less than the floor.
    """

    group: str
    seeds: int
    cost_mean: float | None
    skill_seeds: int
    skill_mean: float | None
    skill_median: float | None
    below_floor: int
    beats_floor: int


def load_rows(folder: Path, tapes: Iterable[TapeName]) -> list[Row]:
    """Reads the finished episodes among ``tapes``.

    Args:
        folder: a results folder.
        tapes: which to look for; those without a finished log are left out.

    Raises:
        LogError: a log cannot be read.
    """
    ends = {}
    for name in tapes:
        events, _ = read_events(folder / f"{name.stem}.jsonl")
        if events and events[-1]["event"] == "end":
            ends[name] = events[-1]
    references = _references(list(ends))
    return [
        Row(name, group, end["status"], end["week"], end["total"] if end["status"] == "ok" else None, floor, oracle)
        for (name, end), (group, floor, oracle) in zip(ends.items(), references, strict=True)
    ]


def _references(names: Sequence[TapeName]) -> list[tuple[str, float, float | None]]:
    """Group, floor and oracle of every tape: the published figures, or what the tape itself gives."""
    published = {TapeName("published", s.seed): (s.group, s.floor, s.oracle_mean) for s in st.published_seeds()}
    references: dict[TapeName, tuple[str, float, float | None]] = {n: published[n] for n in names if n in published}
    others = [name for name in names if name not in published]
    if others:
        tapes = [name.tape() for name in others]
        costs = st.evaluate(st.policies.floor(), st.stack(tapes), jax.random.key(0), float64=True).total_cost
        for name, tape, cost in zip(others, tapes, costs, strict=True):
            references[name] = (st.PROFILES[int(st.profile(st.tape_features(tape)))], float(cost), None)
    return [references[name] for name in names]


def summarise(rows: Sequence[Row], group: str) -> Summary:
    """Sums up the rows of a group, or of all for "all"."""
    rows = [row for row in rows if group in ("all", row.group)]
    costs = [row.cost for row in rows if row.cost is not None]
    skills = [row.skill for row in rows if row.skill is not None]
    return Summary(
        group=group,
        seeds=len(rows),
        cost_mean=statistics.fmean(costs) if costs else None,
        skill_seeds=len(skills),
        skill_mean=statistics.fmean(skills) if skills else None,
        skill_median=statistics.median(skills) if skills else None,
        below_floor=sum(row.below_floor for row in rows),
        beats_floor=sum(row.beats_floor for row in rows),
    )


def summaries(rows: Sequence[Row]) -> list[Summary]:
    """One summary for every group that has rows, and one for all."""
    return [
        summarise(rows, group)
        for group in (*st.PROFILES, "all")
        if group == "all" or any(r.group == group for r in rows)
    ]


def as_json(rows: Sequence[Row]) -> dict[str, Any]:
    """Rows and summaries as plain JSON; what is undefined or unknown is null."""
    return {
        "rows": [
            {
                "seed": row.tape.seed, "source": row.tape.source, "group": row.group, "status": row.status,
                "weeks": row.weeks, "cost": row.cost, "floor": row.floor, "oracle": row.oracle, "skill": row.skill,
                "beats_floor": row.beats_floor, "thin_headroom": row.thin, "negative_headroom": row.no_headroom,
            }
            for row in rows
        ],
        "groups": [vars(summary) for summary in summaries(rows)],
    }  # fmt: skip


def seed_table(rows: Sequence[Row]) -> Table:
    """One line for every episode."""
    table = Table("seed", "group", "status", title="Episodes", caption=_footnote(rows), caption_justify="left")
    for heading in ("cost", "floor", "oracle", "skill"):
        table.add_column(heading, justify="right")
    table.add_column("beats floor", justify="center")
    for row in rows:
        mark = "*" if row.thin else "!" if row.no_headroom else ""
        status = row.status if row.status == "ok" else f"{row.status} (week {row.weeks})"
        table.add_row(
            str(row.tape), row.group, status, _number(row.cost, 1), _number(row.floor, 1), _number(row.oracle, 1),
            _number(row.skill, 2) + mark, "yes" if row.beats_floor else "no",
        )  # fmt: skip
    return table


def _footnote(rows: Sequence[Row]) -> str | None:
    notes = []
    if any(row.thin for row in rows):
        notes.append(f"* headroom (floor - oracle) under {THIN_HEADROOM:.0f}: the skill of this seed is noisy")
    if any(row.no_headroom for row in rows):
        notes.append("! negative headroom: left out of every skill mean, counted in beats floor")
    return "\n".join(notes) or None


def score_table(title: str, first_column: str, lines: Iterable[tuple[str, Summary]]) -> Table:
    """One line for every (label, summary)."""
    table = Table(first_column, title=title)
    for heading in ("seeds", "mean cost", "skill mean (median)", "below floor", "beats floor"):
        table.add_column(heading, justify="right")
    for label, s in lines:
        skill = f"{_number(s.skill_mean, 2)} ({_number(s.skill_median, 2)})"
        below = f"{s.below_floor}/{s.skill_seeds}"
        table.add_row(label, str(s.seeds), _number(s.cost_mean, 1), skill, below, f"{s.beats_floor}/{s.seeds}")
    return table


def _number(value: float | None, digits: int) -> str:
    return "n/a" if value is None else f"{round(value, digits) + 0.0:.{digits}f}"  # + 0.0 turns -0.0 into 0.0
