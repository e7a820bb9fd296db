"""What a filter reads of a weekly report, and the densities it weighs it with."""

from typing import Protocol

import jax.numpy as jnp
import numpy as np

from stocktake_jax.randomness import Array


class Symptoms(Protocol):
    """The fields of an ``Observation`` that tell of a factor's state; int32, see there."""

    counts: Array
    pos_units: Array
    demand_forecast: Array
    freight_index: Array
    freight_outlook: Array
    berth_wait: Array
    wait_outlook: Array
    aql_result: Array
    supplier_band: Array
    lead_slip: Array
    fill: Array


def log_density(value: Array, mean: Array, sd: Array) -> Array:
    """Log density of N(mean, sd) at a reading (a scalar), in the float type of ``mean``, whose shape it has."""
    z = (value.astype(mean.dtype) - mean) / sd
    return -0.5 * z * z - jnp.log(sd) - np.array(0.5 * np.log(2 * np.pi), mean.dtype)
