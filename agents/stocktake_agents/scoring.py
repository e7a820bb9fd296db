"""Scores one can defend: what a run cost against its references, and what its rationales saw, with how sure one can be.

The primary figure is the aggregate dollar skill, Σ(floor - cost) / Σ(floor - oracle) over seeds with headroom; all else
is exploratory (docs/rules.md 5). It stands there twice: over all planned episodes, where one that the model broke off
is completed by the floor policy from there on, and over completed ones alone.
"""

import itertools
import math
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import stocktake_jax as st
from stocktake_agents.arms.posterior import PosteriorLens
from stocktake_agents.comparison import Run
from stocktake_agents.grading.book import GradeBook, rationales
from stocktake_agents.log import read_events
from stocktake_agents.scoreboard import Row
from stocktake_agents.seeds import EpisodeName
from stocktake_agents.simple import floor
from stocktake_jax.metrics import BeliefMetrics, Interval, mean_interval, pooled, ratio_interval

PASS_SKILL = 0.5
"""The skill from which on an episode counts as passed."""


def replayed(log: Path, tape: st.Tape) -> st.Episode:
    """The desk after the accepted calls of a log, in the order in which they were made."""
    episode = st.Episode(tape)
    events, _ = read_events(log)
    for event in events:
        if event["event"] == "week":
            for call in event["calls"]:
                getattr(episode, call["name"])(**call["arguments"])
    return episode


def finish_with_floor(episode: st.Episode) -> float:
    """Total cost in $ when the floor policy plays the remaining weeks."""
    while not episode.done:
        _one_week_of_floor(episode)
    return episode.total_cost


def _one_week_of_floor(episode: st.Episode) -> None:
    [(_, order)] = floor(episode.report(), random.Random(0))
    episode.place_order(**order)


@dataclass(frozen=True)
class Score:
    """How a run did.

    Attributes:
        planned, finished: episodes.
        broken_off: finished ones that the model did not play to the end.
        missing: planned ones without an end, for infrastructure or because the run was stopped.
        all_planned: aggregate dollar skill with broken-off episodes completed by the floor; the primary figure.
        completed: aggregate dollar skill of the episodes that the model completed.
        low_bound, high_bound: the primary figure if every missing seed did as the worst or as the best seed there is.
        mean_skill: over seeds, broken-off episodes completed by the floor.
        median_skill, worst_skill: of a seed.
        derailed: share of seeds that cost more than the floor.
        passed: for k = 1, 2, 4 the chance that k repeats of a seed all reach ``PASS_SKILL``, mean over seeds; None
            where there are fewer repeats.
    """

    planned: int
    finished: int
    broken_off: int
    missing: int
    all_planned: Interval
    completed: Interval
    low_bound: float
    high_bound: float
    mean_skill: Interval
    median_skill: float
    worst_skill: float
    derailed: float
    passed: Mapping[int, float | None]

    @property
    def complete(self) -> bool:
        """Whether nothing is missing."""
        return not self.missing


def score(run: Run) -> Score:
    """Scores a run against the published references; seeds without one, or without headroom, are left out."""
    errors = {EpisodeName("published", seed.seed): seed.oracle_se for seed in st.published_seeds()}
    costs: dict[EpisodeName, list[tuple[Row, float]]] = {}
    completed: dict[EpisodeName, list[tuple[Row, float]]] = {}
    for row in run.rows:
        if row.oracle is None or row.no_headroom:
            continue
        first = row.episode.first
        cost = row.cost
        if cost is None:
            cost = finish_with_floor(replayed(run.folder / f"{row.episode.stem}.jsonl", row.episode.tape()))
        else:
            completed.setdefault(first, []).append((row, cost))
        costs.setdefault(first, []).append((row, cost))
    skills = {name: statistics.fmean(_skill(row, cost) for row, cost in rows) for name, rows in costs.items()}
    every = _dollar_skill(costs, errors)
    scored = list(skills.values())
    missing = [name for name in run.planned_seeds if name not in costs and _has_headroom(name)]
    bounds = [_filled(costs, missing, skill) for skill in (min(scored), max(scored))] if scored else [math.nan] * 2
    reference = math.sqrt(sum(_error_of_skill(rows, errors) ** 2 for rows in costs.values())) / max(len(costs), 1)
    return Score(
        planned=run.planned,
        finished=len(run.rows),
        broken_off=sum(row.cost is None for row in run.rows),
        missing=run.planned - len(run.rows),
        all_planned=every,
        completed=_dollar_skill(completed, errors),
        low_bound=bounds[0],
        high_bound=bounds[1],
        mean_skill=mean_interval(scored, reference_error=reference),
        median_skill=statistics.median(scored) if scored else math.nan,
        worst_skill=min(scored, default=math.nan),
        derailed=sum(skill < 0 for skill in scored) / len(scored) if scored else math.nan,
        passed={k: _pass_power(costs, k) for k in (1, 2, 4)},
    )


def _skill(row: Row, cost: float) -> float:
    return float(st.metrics.skill(cost, row.floor, row.oracle or math.nan))


def _has_headroom(name: EpisodeName) -> bool:
    published = {seed.seed: seed for seed in st.published_seeds()}
    seed = published.get(name.seed) if name.source == "published" else None
    return seed is not None and seed.floor > seed.oracle_mean


def _dollar_skill(
    costs: Mapping[EpisodeName, Sequence[tuple[Row, float]]], errors: Mapping[EpisodeName, float]
) -> Interval:
    saved = [rows[0][0].floor - statistics.fmean(cost for _, cost in rows) for rows in costs.values()]
    headroom = [rows[0][0].headroom or 0.0 for rows in costs.values()]
    if not saved:
        return mean_interval([])
    # The denominator has the oracle's own sampling error: d(a/b) = -(a/b) db / b.
    ratio, whole = sum(saved) / sum(headroom), sum(headroom)
    reference = abs(ratio) / whole * math.sqrt(sum(errors.get(name, 0.0) ** 2 for name in costs))
    return ratio_interval(saved, headroom, reference_error=reference)


def _error_of_skill(rows: Sequence[tuple[Row, float]], errors: Mapping[EpisodeName, float]) -> float:
    row = rows[0][0]
    skill = statistics.fmean(_skill(row, cost) for _, cost in rows)
    return abs(skill) / (row.headroom or math.inf) * errors.get(row.episode.first, 0.0)


def _filled(
    costs: Mapping[EpisodeName, Sequence[tuple[Row, float]]], missing: Sequence[EpisodeName], skill: float
) -> float:
    published = {seed.seed: seed for seed in st.published_seeds()}
    gaps = [published[name.seed].floor - published[name.seed].oracle_mean for name in missing]
    saved = sum(rows[0][0].floor - statistics.fmean(cost for _, cost in rows) for rows in costs.values())
    whole = sum(rows[0][0].headroom or 0.0 for rows in costs.values())
    return (saved + skill * sum(gaps)) / (whole + sum(gaps))


def _pass_power(costs: Mapping[EpisodeName, Sequence[tuple[Row, float]]], k: int) -> float | None:
    """The chance that k repeats drawn without replacement all pass, mean over seeds."""
    chances = []
    for rows in costs.values():
        if len(rows) < k:
            return None
        passes = sum(_skill(row, cost) >= PASS_SKILL for row, cost in rows)
        chances.append(math.comb(passes, k) / math.comb(len(rows), k))
    return statistics.fmean(chances) if chances else None


# Perception.


@dataclass(frozen=True)
class Seen:
    """One episode as the belief metrics need it.

    Attributes:
        group: stress profile of its tape.
        stressed: bool ``[27, 6]``.
        named: bool ``[27, 6]``.
        graded: bool ``[27]``.
        stockout: bool ``[27]``, weeks with demand that was not served.
        paper_stockout: bool ``[27]``, the paper's flag: last week's stock and this week's arrivals by sea fell short of
            demand; it does not see what came by air.
    """

    group: str
    stressed: np.ndarray
    named: np.ndarray
    graded: np.ndarray
    stockout: np.ndarray
    paper_stockout: np.ndarray

    def metrics(self, definition: Any, paper_flag: bool = False) -> BeliefMetrics:
        """Under a definition, with either flag for a stockout."""
        flag = self.paper_stockout if paper_flag else self.stockout
        return st.metrics.belief_metrics(self.stressed, self.named, flag, self.graded, definition)


def stockout_flags(episode: st.Episode) -> tuple[np.ndarray, np.ndarray]:
    """The true flag and the paper's, bool ``[27]`` each, of a desk's committed weeks."""
    true, paper = np.zeros(27, bool), np.zeros(27, bool)
    reports = [*(week["report"] for week in episode.history), episode.report()]
    for before, after in itertools.pairwise(reports):
        week = after["week"]
        true[week] = sum(after["served"].values()) < after["pos_units"]
        paper[week] = before["inventory"] + after["arrived"] < after["pos_units"]
    return true, paper


def seen_by_agent(run: Run, book: GradeBook) -> list[Seen]:
    """What a run's rationales named, by a grader."""
    found = []
    for row in run.rows:
        log, tape = run.folder / f"{row.episode.stem}.jsonl", row.episode.tape()
        named, graded = book.marks(rationales(log))
        flags = stockout_flags(replayed(log, tape))
        found.append(Seen(row.group, np.asarray(st.stress_mask(tape)), named, graded, *flags))
    return found


def seen_by_floor(run: Run) -> list[Seen]:
    """What the exact filter would have named to the floor policy on the same tapes: a factor whose posterior is at
    least one half. It does not act on it, which is the point."""
    found = []
    for name, group in {row.episode.first: row.group for row in run.rows}.items():
        tape = name.tape()
        episode, lens = st.Episode(tape), PosteriorLens()
        named = np.zeros((27, len(st.FACTORS)), bool)
        while True:
            posterior = lens.report(episode.report(), episode)["posterior"]
            named[episode.week] = [posterior[factor]["stress"] >= 0.5 for factor in st.FACTORS]
            if episode.done:
                break
            _one_week_of_floor(episode)
        mask, graded = np.asarray(st.stress_mask(tape)), np.ones(27, bool)
        found.append(Seen(group, mask, named, graded, *stockout_flags(episode)))
    return found


def by_group(seen: Sequence[Seen], definition: Any, paper_flag: bool = False) -> dict[str, BeliefMetrics]:
    """Pooled belief metrics of each stress profile and of all."""
    return {
        group: pooled(one.metrics(definition, paper_flag) for one in seen if group in ("all", one.group))
        for group in (*st.PROFILES, "all")
    }
