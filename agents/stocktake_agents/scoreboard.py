"""Scores a results folder from its finished logs alone, so that a table can be had again at any time.

Costs are compared to one decimal, the precision of the published figures: the floor policy neither beats nor loses to
its own published cost.
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import jax
from rich.markup import escape
from rich.table import Table

import stocktake_jax as st
from stocktake_agents.arms.arm import Arm
from stocktake_agents.conversation import digest
from stocktake_agents.estimate import Estimate
from stocktake_agents.journal import cost_of
from stocktake_agents.log import read_events
from stocktake_agents.provider import Service, Turn
from stocktake_agents.seeds import EpisodeName
from stocktake_agents.usage import Usage

THIN_HEADROOM = 700.0  # below this many dollars between floor and oracle, the skill of a single seed is mostly noise


@dataclass(frozen=True)
class Row:
    """One finished episode.

    Attributes:
        episode: which.
        group: its stress profile.
        status: how it ended.
        weeks: weeks committed.
        cost: dollars over all weeks, or None when the agent did not get to the end.
        floor: dollars the floor policy spends on this tape.
        oracle: mean dollars of the published oracle; None off the fifty published seeds.
        counts: answers, reminders, refused calls and the like.
        usage: tokens of all its answers.
        usd: what they cost, $; None where that is unknown.
        usd_basis: how that is known: "free", "reported", "priced" or "unpriced"; "none" without a provider.
    """

    episode: EpisodeName
    group: str
    status: str
    weeks: int
    cost: float | None
    floor: float
    oracle: float | None
    counts: Mapping[str, int] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)
    usd: float | None = None
    usd_basis: str = "none"

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
    """The rows of one group. The unit is the seed: repeats are averaged first. Skills are over seeds with headroom and
    a completed episode; the rest are counted, never averaged.

    Attributes:
        group: a stress profile or "all".
        seeds: with a finished episode.
        episodes: finished ones.
        cost_mean: mean dollars of the completed ones, or None.
        skill_mean, skill_median: over ``skill_seeds`` seeds, or None when there are none.
        below_floor: how many of those have a negative skill.
        beats_floor: how many of all ``seeds`` cost less than the floor on average.
    """

    group: str
    seeds: int
    episodes: int
    cost_mean: float | None
    skill_seeds: int
    skill_mean: float | None
    skill_median: float | None
    below_floor: int
    beats_floor: int


def load_rows(folder: Path, episodes: Iterable[EpisodeName], service: Service | None = None) -> list[Row]:
    """Reads the finished ones of some episodes.

    Args:
        folder: a results folder.
        episodes: which to look for; those without a finished log are left out.
        service: the API behind the agent, which says what tokens cost.

    Raises:
        LogError: a log cannot be read.
    """
    finished = {}
    for name in episodes:
        events, _ = read_events(folder / f"{name.stem}.jsonl")
        if events and events[-1]["event"] == "end":
            finished[name] = events
    rows = []
    for (name, events), (group, floor, oracle) in zip(finished.items(), _references(list(finished)), strict=True):
        end = events[-1]
        cost = end["total"] if end["status"] == "ok" else None
        usd, basis = _usd(events, service)
        rows.append(
            Row(
                name, group, end["status"], end["week"], cost, floor, oracle, end["counts"], Usage(**end["usage"]), usd,
                basis,
            )
        )  # fmt: skip
    return rows


def _usd(events: Sequence[Mapping[str, Any]], service: Service | None) -> tuple[float | None, str]:
    """What the answers of an episode cost, and how that is known; one answer of unknown cost makes the sum unknown."""
    if service is None:
        return None, "none"
    costs = [cost_of(Turn.from_json(event["turn"]), service) for event in events if event["event"] == "turn"]
    bases = {basis for _, basis in costs}
    if "unpriced" in bases:
        return None, "unpriced"
    return sum(usd or 0.0 for usd, _ in costs), " and ".join(sorted(bases)) or "none"


def _references(names: Sequence[EpisodeName]) -> list[tuple[str, float, float | None]]:
    """Group, floor and oracle of every tape: the published figures, or what the tape itself gives."""
    published: dict[EpisodeName, tuple[str, float, float | None]] = {
        EpisodeName("published", s.seed): (s.group, s.floor, s.oracle_mean) for s in st.published_seeds()
    }
    tapes_named = dict.fromkeys(name.first for name in names)
    references = {name: published[name] for name in tapes_named if name in published}
    others = [name for name in tapes_named if name not in published]
    if others:
        tapes = [name.tape() for name in others]
        costs = st.evaluate(st.policies.floor(), st.stack(tapes), jax.random.key(0), float64=True).total_cost
        for name, tape, cost in zip(others, tapes, costs, strict=True):
            references[name] = (st.PROFILES[int(st.profile(st.tape_features(tape)))], float(cost), None)
    return [references[name.first] for name in names]


def summarise(rows: Sequence[Row], group: str) -> Summary:
    """Sums up the rows of a group, or of all for "all"."""
    seeds: dict[EpisodeName, list[Row]] = {}
    for row in rows:
        if group in ("all", row.group):
            seeds.setdefault(row.episode.first, []).append(row)
    per_seed = [averaged(repeats) for repeats in seeds.values()]
    costs = [row.cost for row in per_seed if row.cost is not None]
    skills = [row.skill for row in per_seed if row.skill is not None]
    return Summary(
        group=group,
        seeds=len(per_seed),
        episodes=sum(len(repeats) for repeats in seeds.values()),
        cost_mean=statistics.fmean(costs) if costs else None,
        skill_seeds=len(skills),
        skill_mean=statistics.fmean(skills) if skills else None,
        skill_median=statistics.median(skills) if skills else None,
        below_floor=sum(row.below_floor for row in per_seed),
        beats_floor=sum(row.beats_floor for row in per_seed),
    )


def averaged(repeats: Sequence[Row]) -> Row:
    """One row for a seed, at the mean cost of its completed repeats; skill is linear in cost, so it averages too."""
    costs = [row.cost for row in repeats if row.cost is not None]
    return replace(repeats[0], episode=repeats[0].episode.first, cost=statistics.fmean(costs) if costs else None)


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
                "seed": row.episode.seed, "source": row.episode.source, "repeat": row.episode.repeat,
                "group": row.group, "status": row.status, "weeks": row.weeks, "cost": row.cost,
                "floor": row.floor, "oracle": row.oracle, "skill": row.skill,
                "beats_floor": row.beats_floor, "thin_headroom": row.thin, "negative_headroom": row.no_headroom,
                "counts": dict(row.counts), "usage": asdict(row.usage), "usd": row.usd, "usd_basis": row.usd_basis,
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
            str(row.episode), row.group, status, _number(row.cost, 1), _number(row.floor, 1), _number(row.oracle, 1),
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
    table = Table(first_column, title=escape(title))
    for heading in ("seeds", "mean cost", "skill mean (median)", "below floor", "beats floor"):
        table.add_column(heading, justify="right")
    for label, s in lines:
        skill = f"{_number(s.skill_mean, 2)} ({_number(s.skill_median, 2)})"
        below = f"{s.below_floor}/{s.skill_seeds}"
        table.add_row(label, str(s.seeds), _number(s.cost_mean, 1), skill, below, f"{s.beats_floor}/{s.seeds}")
    return table


def _number(value: float | None, digits: int) -> str:
    return "n/a" if value is None else f"{round(value, digits) + 0.0:.{digits}f}"  # + 0.0 turns -0.0 into 0.0


def label(model: str, arm: Arm) -> str:
    """A row's name: rows under other rules than the shipped ones, or with more in view than a report, say so."""
    marks = [
        *(["own wording " + digest(arm.system)[:8]] if not arm.standard else []),
        *(["privileged"] * arm.privileged),
    ]
    return f"{model} [{', '.join([arm.name, *marks])}]"


def estimate_table(title: str, expected: Estimate) -> Table:
    """What a run would take, from the low end to the high one."""
    table = Table("", "low", "high", title=escape(f"{title}: {expected.episodes} episodes"))
    for name, unit in (("calls", ""), ("prompt_tokens", ""), ("output_tokens", ""), ("largest_prompt", " tokens")):
        low, high = getattr(expected, name)
        table.add_row(name.replace("_", " "), f"{low:,}{unit}", f"{high:,}{unit}")
    costs = ("unpriced", "unpriced") if expected.usd is None else [f"${end:,.2f}" for end in expected.usd]
    table.add_row("cost", *costs)
    table.add_row("time", *(f"{hours:.1f} h" for hours in expected.hours))
    return table
