"""What an agent saw, and whether it helped: detection, diagnosis and knowing-doing (docs/rules.md 5)."""

import dataclasses
import math
from collections.abc import Iterable
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

Definition = Literal["paper", "sound", "bounded"]
DEFINITIONS: tuple[Definition, ...] = ("paper", "sound", "bounded")


@dataclasses.dataclass(frozen=True)
class BeliefMetrics:
    """Counts of one episode, or of several pooled with ``pooled``, and the rates they give; NaN where undefined.

    Attributes:
        stress_episodes: runs of consecutive stressed weeks of one factor that could be detected.
        detected: those whose factor was named in or after their first week (and soon enough, if bounded).
        missed: the others.
        undetectable: runs that begin in the last week, which no rationale follows, and so counted apart; 0 under
            ``paper``, where they are missed.
        lag_sum: weeks from onset to detection, over the detected.
        diagnosed_weeks: stressed weeks in which a factor truly under stress was named.
        diagnosed_stockouts: those of them with a stockout.
        undiagnosed_weeks, undiagnosed_stockouts: the same with no such factor named.
        ungraded_weeks: weeks with a rationale that could not be graded; they count for nothing else.
        named: namings, one for each factor and week.
        named_stressed: those of a factor truly under stress in that week.
    """

    stress_episodes: int
    detected: int
    missed: int
    undetectable: int
    lag_sum: int
    diagnosed_weeks: int
    diagnosed_stockouts: int
    undiagnosed_weeks: int
    undiagnosed_stockouts: int
    ungraded_weeks: int
    named: int
    named_stressed: int

    @property
    def mean_lag(self) -> float:
        """Weeks from onset to detection, mean over the detected."""
        return _ratio(self.lag_sum, self.detected)

    @property
    def detection(self) -> float:
        """Share of the stress episodes that were detected."""
        return _ratio(self.detected, self.stress_episodes)

    @property
    def knowing_doing(self) -> float:
        """Share of the diagnosed weeks with a stockout: it was known, and the shelf was empty."""
        return _ratio(self.diagnosed_stockouts, self.diagnosed_weeks)

    @property
    def not_knowing(self) -> float:
        """Share of the undiagnosed weeks with a stockout."""
        return _ratio(self.undiagnosed_stockouts, self.undiagnosed_weeks)

    @property
    def precision(self) -> float:
        """Share of the namings that were right. Whoever names everything always is caught by this alone."""
        return _ratio(self.named_stressed, self.named)


def belief_metrics(
    stressed: ArrayLike,
    named: ArrayLike,
    stockout: ArrayLike,
    graded: ArrayLike | None = None,
    definition: Definition = "paper",
) -> BeliefMetrics:
    """Perception and its use over one episode.

    What is named in the rationale of decision week w, written after reading week w's report, belongs to week w. So
    names count in weeks 1 to 25: row 0 and names in row 26 are ignored.

    Args:
        stressed: bool ``[27, 6]``, which factors are truly under stress (``stress_mask``).
        named: bool ``[27, 6]``, which factors the rationale of a week named.
        stockout: bool ``[27]``, whether the week had a stockout.
        graded: bool ``[27]``, whether the week's rationale could be graded; all were if None.
        definition: ``paper``: every stress episode can be detected at any time after its onset, and the last week is a
            stressed week that nobody diagnosed. ``sound``: what begins in the last week cannot be detected and is
            counted apart, and the last week counts for nothing. ``bounded``: as ``sound``, and a stress episode can be
            detected until one week after its end.

    Raises:
        ValueError: no such definition, or arrays of other shapes.
    """
    if definition not in DEFINITIONS:
        raise ValueError(f"definition is {definition!r}; it must be {', '.join(map(repr, DEFINITIONS))}.")
    stress, names, empty = (np.asarray(x, bool) for x in (stressed, named, stockout))
    known = np.ones(len(empty), bool) if graded is None else np.asarray(graded, bool)
    if stress.ndim != 2 or names.shape != stress.shape or {empty.shape, known.shape} != {stress.shape[:1]}:
        raise ValueError(
            f"stressed is {list(stress.shape)}, named {list(names.shape)}, stockout {list(empty.shape)} and graded "
            f"{list(known.shape)}; they must be [weeks, factors], [weeks, factors], [weeks] and [weeks]."
        )
    last = len(stress) - 1
    weeks = np.arange(last + 1)
    written = (weeks > 0) & (weeks < last)
    names = names & (written & known)[:, None]
    stress = stress & (weeks > 0)[:, None]

    lags: list[int] = []
    missed = undetectable = 0
    for factor, onset, end in _stress_episodes(stress):
        if definition != "paper" and onset == last:
            undetectable += 1
            continue
        closes = end + 1 if definition == "bounded" else last
        seen = np.flatnonzero(names[onset : closes + 1, factor])
        if len(seen):
            lags.append(int(seen[0]))
        else:
            missed += 1

    counted = stress.any(axis=1) & (known | ~written)
    if definition != "paper":
        counted &= weeks < last
    diagnosed = (names & stress).any(axis=1)
    return BeliefMetrics(
        stress_episodes=len(lags) + missed,
        detected=len(lags),
        missed=missed,
        undetectable=undetectable,
        lag_sum=sum(lags),
        diagnosed_weeks=_count(counted & diagnosed),
        diagnosed_stockouts=_count(counted & diagnosed & empty),
        undiagnosed_weeks=_count(counted & ~diagnosed),
        undiagnosed_stockouts=_count(counted & ~diagnosed & empty),
        ungraded_weeks=_count(written & ~known),
        named=_count(names),
        named_stressed=_count(names & stress),
    )


def pooled(metrics: Iterable[BeliefMetrics]) -> BeliefMetrics:
    """The counts of several episodes added up, so that rates pool weeks and stress episodes over seeds."""
    totals = dict.fromkeys((field.name for field in dataclasses.fields(BeliefMetrics)), 0)
    for episode in metrics:
        for name in totals:
            totals[name] += getattr(episode, name)
    return BeliefMetrics(**totals)


def _stress_episodes(stressed: np.ndarray) -> Iterable[tuple[int, int, int]]:
    """(factor, first week, last week) of every maximal run of stressed weeks."""
    for factor, column in enumerate(stressed.T):
        edges = np.flatnonzero(np.diff(np.concatenate([[False], column, [False]]).astype(np.int8)))
        for onset, after in edges.reshape(-1, 2):
            yield factor, int(onset), int(after) - 1


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else math.nan


def _count(mask: np.ndarray) -> int:
    return int(np.count_nonzero(mask))
