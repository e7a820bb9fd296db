"""How far two graders agree: raw counts, kappa and PABAK by process, and the paper's two shares of weeks."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

import stocktake_jax as st


@dataclass(frozen=True)
class Agreement:
    """Two graders on the weeks that both graded.

    Attributes:
        weeks: how many.
        both, first, second, neither: namings by both, by one alone, by none, int ``[6]`` by process.
        exact: share of weeks with the same set of names.
        stressed: share of weeks with the same names among the processes truly under stress.
    """

    weeks: int
    both: np.ndarray
    first: np.ndarray
    second: np.ndarray
    neither: np.ndarray
    exact: float
    stressed: float

    @property
    def observed(self) -> np.ndarray:
        """Share of weeks in which they agree, float ``[6]``."""
        return _ratio(self.both + self.neither, self.weeks)

    @property
    def kappa(self) -> np.ndarray:
        """Cohen's kappa, float ``[6]``: agreement beyond chance; NaN where both always say the same. Rare names make
        it small whatever the agreement, hence ``pabak`` beside it."""
        one, other = _ratio(self.both + self.first, self.weeks), _ratio(self.both + self.second, self.weeks)
        chance = one * other + (1 - one) * (1 - other)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(chance < 1, (self.observed - chance) / (1 - chance), np.nan)

    @property
    def pabak(self) -> np.ndarray:
        """Kappa adjusted for prevalence and bias, float ``[6]``: twice the observed agreement less one."""
        return 2 * self.observed - 1


def agreement(
    first: Sequence[tuple[np.ndarray, np.ndarray]],
    second: Sequence[tuple[np.ndarray, np.ndarray]],
    stressed: Sequence[np.ndarray],
) -> Agreement:
    """Compares two graders.

    Args:
        first, second: of each episode what was named, bool ``[27, 6]``, and what was graded, bool ``[27]``.
        stressed: of each episode what was truly under stress, bool ``[27, 6]``.
    """
    empty = np.zeros((0, len(st.FACTORS)), bool)
    common = [one[1] & other[1] for one, other in zip(first, second, strict=True)]
    a, b, truth = (
        np.concatenate([empty, *(grid[weeks] for grid, weeks in zip(grids, common, strict=True))])
        for grids in ([named for named, _ in first], [named for named, _ in second], stressed)
    )
    return Agreement(
        weeks=len(a),
        both=(a & b).sum(axis=0),
        first=(a & ~b).sum(axis=0),
        second=(~a & b).sum(axis=0),
        neither=(~a & ~b).sum(axis=0),
        exact=float((a == b).all(axis=1).mean()) if len(a) else math.nan,
        stressed=float(((a & truth) == (b & truth)).all(axis=1).mean()) if len(a) else math.nan,
    )


def _ratio(part: np.ndarray, whole: int) -> np.ndarray:
    return part / whole if whole else np.full(len(st.FACTORS), np.nan)
