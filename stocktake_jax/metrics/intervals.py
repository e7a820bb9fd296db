"""How sure one can be of a mean over seeds (docs/rules.md 5): intervals, paired tests, what could have been seen.

The unit is the seed: average repeats of a seed first. Where a mean is pulled by a few ruined episodes, a percentile
bootstrap of few seeds covers far too little; the studentised one comes nearer, and the t interval stands beside it.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

DRAWS = 10_000


@dataclasses.dataclass(frozen=True)
class Interval:
    """An estimate with a two-sided interval.

    Attributes:
        estimate: of the mean, or of the ratio.
        standard_error: of it, that of the references included.
        low, high: bootstrap-t interval; NaN below two seeds.
        t_low, t_high: Student's interval.
        seeds: how many.
    """

    estimate: float
    standard_error: float
    low: float
    high: float
    t_low: float
    t_high: float
    seeds: int


def mean_interval(
    values: ArrayLike, level: float = 0.95, draws: int = DRAWS, seed: int = 0, reference_error: float = 0.0
) -> Interval:
    """The mean over seeds.

    Args:
        values: one for each seed.
        level: of both intervals.
        draws: of the bootstrap.
        seed: of its dice.
        reference_error: standard error of the mean that comes from the references and not from the seeds.
    """
    values = np.asarray(values, np.float64)
    return ratio_interval(values, np.ones_like(values), level, draws, seed, reference_error)


def ratio_interval(
    above: ArrayLike,
    below: ArrayLike,
    level: float = 0.95,
    draws: int = DRAWS,
    seed: int = 0,
    reference_error: float = 0.0,
) -> Interval:
    """The ratio of two sums over seeds, Σ above / Σ below, such as the aggregate dollar skill.

    Seeds are drawn with replacement; the standard error of each draw is that of the linearised ratio.

    Args:
        above, below: one of each for each seed.
        level, draws, seed, reference_error: as for ``mean_interval``.
    """
    above, below = np.asarray(above, np.float64), np.asarray(below, np.float64)
    n = len(above)
    if n == 0:
        return Interval(math.nan, math.nan, math.nan, math.nan, math.nan, math.nan, 0)
    estimate, own_error = (float(x[0]) for x in _ratio(above[None], below[None]))
    if n == 1:
        return Interval(estimate, math.nan, math.nan, math.nan, math.nan, math.nan, 1)
    error = math.hypot(own_error, reference_error)
    dice = np.random.default_rng(seed).integers(n, size=(draws, n))
    drawn, drawn_error = _ratio(above[dice], below[dice])
    spread = drawn_error > 1e-12 * max(1.0, abs(estimate))  # a draw of one seed n times has no error to divide by
    tail = (1 - level) / 2
    if spread.any():
        pivots = (drawn[spread] - estimate) / drawn_error[spread]
        first, last = np.quantile(pivots, [tail, 1 - tail])
    else:
        first = last = 0.0
    t = float(stdtrit(n - 1, 1 - tail))
    return Interval(
        estimate,
        error,
        estimate - last * error,
        estimate - first * error,
        estimate - t * error,
        estimate + t * error,
        n,
    )


def _ratio(above: np.ndarray, below: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ratio of sums and its standard error by the delta method, along the last axis."""
    n = above.shape[-1]
    ratio = above.sum(axis=-1) / below.sum(axis=-1)
    residuals = (above - ratio[..., None] * below) / below.mean(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        return ratio, np.sqrt((residuals**2).sum(axis=-1) / (n - 1) / n)


def sign_flip_test(differences: ArrayLike, draws: int = 20_000, seed: int = 0) -> float:
    """Two-sided p-value for paired differences with mean zero, by flipping their signs: exact up to sixteen seeds.

    Args:
        differences: one for each common seed.
        draws: random flips where there are more.
        seed: of their dice.
    """
    from scipy.stats import permutation_test  # takes longer to import than all of jax

    values = np.asarray(differences, np.float64)
    if len(values) < 2 or not values.any():
        return 1.0
    if len(values) <= 16:
        draws = 2**16
    found = permutation_test(
        (values,), np.mean, permutation_type="samples", n_resamples=draws, vectorized=True,
        rng=np.random.default_rng(seed),
    )  # fmt: skip
    return float(found.pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values adjusted for their number, step by step from the smallest (Holm, 1979)."""
    adjusted = [1.0] * len(p_values)
    worst = 0.0
    for rank, i in enumerate(np.argsort(p_values, kind="stable")):
        worst = max(worst, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = worst
    return adjusted


def detectable_difference(differences: ArrayLike, level: float = 0.95, power: float = 0.8) -> float:
    """The smallest true mean of paired differences that a t test on as many seeds would find with that power."""
    values = np.asarray(differences, np.float64)
    if len(values) < 2:
        return math.nan
    freedom = len(values) - 1
    quantiles = stdtrit(freedom, 1 - (1 - level) / 2) + stdtrit(freedom, power)
    return float(quantiles * values.std(ddof=1) / math.sqrt(len(values)))
