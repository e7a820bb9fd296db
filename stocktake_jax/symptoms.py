"""What a filter reads of a weekly report, and the weight of a reading: its density, or the mass of its cell."""

from typing import Protocol

import jax.numpy as jnp
import numpy as np
from flax import struct
from jax.scipy.special import ndtr

from stocktake_jax.randomness import Array

# Standard deviations from the mean beyond which the CDF has no digits left in float32.
_FAR = -12.0


class Symptoms(Protocol):
    """The fields of an ``Observation`` that tell of a factor's state; int32, see there."""

    counts: Array
    canal_band: Array
    pos_units: Array
    demand_forecast: Array
    freight_index: Array
    freight_outlook: Array
    berth_wait: Array
    wait_outlook: Array
    aql_result: Array
    supplier_band: Array
    supplier_otif: Array
    supplier_lead: Array
    lead_slip: Array
    fill: Array
    briefing: Array
    audit: Array


class Clues(struct.PyTreeNode):
    """What a report tells of its week once it is laid beside the report before; int32 scalars, -1 for "not told".

    Attributes:
        suez_blocked: 1 if ships at Suez found it blocked, 0 if they passed.
        suez_recovering: 1 if a ship that passed Suez lost time to the recovery, 0 if it lost none.
        cape_slow: 1 if a ship at its decisive point by the Cape lost time, 0 if it lost none.
        port_blocked: 1 if ships that were due were held, 0 if they landed.
        multiplier: the week's exact market multiplier in 1/10,000.
        last_multiplier: the same for the week before, if it was not told at the time.
        last_index: the freight index of the week before; always there.
        defects: ``[2]``, least and greatest defect fraction in 1/100,000 that agree with what was lost on landing;
            always there, and wide open where nothing landed.
    """

    suez_blocked: Array
    suez_recovering: Array
    cape_slow: Array
    port_blocked: Array
    multiplier: Array
    last_multiplier: Array
    last_index: Array
    defects: Array


def log_density(value: Array, mean: Array, sd: Array) -> Array:
    """Log density of N(mean, sd) at a reading (a scalar), in the float type of ``mean``, whose shape it has."""
    z = (value.astype(mean.dtype) - mean) / sd
    return -0.5 * z * z - jnp.log(sd) - np.array(0.5 * np.log(2 * np.pi), mean.dtype)


def log_mass(first: Array, last: Array, mean: Array, sd: Array, least: Array, most: Array | None = None) -> Array:
    """Log probability that ``clip(round(N(mean, sd)), least, most)`` is one of ``first..last``.

    A whole number k is rounded to from [k - 1/2, k + 1/2), so a run of them is one interval, whose mass is a
    difference of two values of the normal CDF. At a bound the clip piles up all that lies beyond it: the interval
    has no end there.

    Args:
        first, last: int32 scalars, within the bounds; equal for a reading that is shown as it is.
        mean: float ``[...]``, in steps: in the unit of the reading, in which it is a whole number.
        sd: float scalar, in steps.
        least, most: int32 scalars; no upper bound if None.

    Returns:
        Float, of the shape and type of ``mean``.
    """
    half, log_root = np.array(0.5, mean.dtype), np.array(0.5 * np.log(2 * np.pi), mean.dtype)
    sd = jnp.maximum(sd, np.array(1e-6, mean.dtype))  # without noise all the mass is in one cell
    low, high = (first.astype(mean.dtype) - half - mean) / sd, (last.astype(mean.dtype) + half - mean) / sd
    width = (last - first + 1).astype(mean.dtype) / sd
    open_below, open_above = first <= least, jnp.array(False) if most is None else last >= most
    low, high = jnp.where(open_below, -jnp.inf, low), jnp.where(open_above, jnp.inf, high)
    width = jnp.where(open_below | open_above, jnp.inf, width)
    # To the right of the mean the mirror image has the small numbers, which can be told apart.
    mirrored = low + high > 0
    low, high = jnp.where(mirrored, -high, low), jnp.where(mirrored, -low, high)
    mass = ndtr(high) - ndtr(low)

    # Where that difference loses its digits: a narrow cell is its density times its width, to the second order, and
    # far out, where the CDF vanishes, the mass lies at the near end and dies off exponentially from there.
    middle = jnp.where(width < 0.01, high - width / 2, 0)
    narrow = jnp.log(width * (1 + width * width * (middle * middle - 1) / 24)) - middle * middle / 2
    edge = jnp.minimum(high, -1)
    far = jnp.log(jnp.expm1(edge * width) / edge) - edge * edge / 2
    usual = jnp.log(jnp.where(mass > 0, mass, 1))
    return jnp.where(width < 0.01, narrow - log_root, jnp.where(high < _FAR, far - log_root, usual))


def log_if(fits: Array, told: Array, dtype: jnp.dtype) -> Array:
    """Log likelihood of a plain fact: 0 in the states that it fits, ``-inf`` in the others, 0 if it was not told.

    Args:
        fits: bool ``[states]``.
        told: bool scalar.
        dtype: float type of the result.
    """
    return jnp.where(fits | ~told, np.array(0, dtype), -jnp.inf)
