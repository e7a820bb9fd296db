"""The skill score (docs/rules.md 5)."""

import numpy as np
from numpy.typing import ArrayLike


def skill(cost: ArrayLike, floor: ArrayLike, oracle: ArrayLike) -> np.ndarray | float:
    """Share of the floor's excess over the oracle that a policy saves: 0 at the floor, 1 at the oracle.

    Args:
        cost, floor, oracle: total costs of the same tapes in $, scalars or arrays that broadcast.

    Returns:
        ``(floor - cost) / (floor - oracle)``, NaN where the headroom ``floor - oracle`` is not positive: such a
        seed has no scale and is left out of every mean.

    >>> skill([7000.0, 6000.0], 7000.0, 6500.0)
    array([0., 2.])
    """
    cost, floor, oracle = (np.asarray(x, np.float64) for x in (cost, floor, oracle))
    headroom = floor - oracle
    scaled = (floor - cost) / np.where(headroom > 0, headroom, np.nan)
    return scaled if scaled.ndim else float(scaled)
