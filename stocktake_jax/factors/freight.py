"""Freight: the multiplier on the base rate of every sea shipment (docs/rules.md 1, Freight)."""

from random import Random

import jax.numpy as jnp
import numpy as np

from stocktake_jax.chain import Chain
from stocktake_jax.fields import Params, number
from stocktake_jax.randomness import Array, rounded_normal
from stocktake_jax.rounding import fraction, rounded_product
from stocktake_jax.symptoms import Clues, Symptoms, log_density, log_mass

STEPS = 10_000
"""Multipliers are stored as whole numbers of 1/10,000."""

CHAIN = Chain.from_rows(
    {
        "slack": {"slack": 0.93, "normal": 0.07},
        "normal": {"tightening:0": 0.06, "slack": 0.04, "normal": 0.90},
        **{f"tightening:{a}": {"spike:0": 0.18, "normal": 0.25, f"tightening:{a + 1}": 0.57} for a in range(5)},
        "tightening:5": {"spike:0": 0.18, "normal": 0.82},
        **{f"spike:{age}": {f"spike:{age + 1}": 0.80, "normal": 0.20} for age in range(5)},
        "spike:5": {"normal": 1.0},
    }
)
LAYOUT = CHAIN.layout
START = LAYOUT.index("normal")
STRESS = LAYOUT.mask("spike")

BANDS = ("slack", "normal", "jump", "tight", "spike")
"""Levels of the mean multiplier: tightening and a spike share the jump in their first week."""
BAND = np.array(
    [
        2 if label in ("tightening:0", "spike:0") else {"slack": 0, "normal": 1, "tightening": 3, "spike": 4}[regime]
        for label, regime in zip(LAYOUT.labels, LAYOUT.regimes, strict=True)
    ],
    np.int32,
)

READINGS = ("freight_multiplier", "freight_outlook")
BASELINE = (STEPS, STEPS)
WORDS = 2


class FreightParams(Params):
    """Numbers of the freight process."""

    chain: Chain = CHAIN
    mean: Array = number((0.7, 1.0, 1.8, 1.8, 4.0), "mean multiplier by band", most=1000)
    sd: Array = number(0.15, "standard deviation of the multiplier", most=100)
    outlook_sd: Array = number(0.25, "standard deviation of the outlook", most=100)
    least: Array = number(0.1, "least multiplier and least outlook", most=1000)


def read(params: FreightParams, state: Array, previous: list[Array], words: list[Array]) -> list[Array]:
    """Readings of a state just entered: multiplier and outlook, in 1/10,000."""
    mean = params.mean[BAND][state]
    least = jnp.round(params.least.astype(jnp.float32) * np.float32(STEPS)).astype(jnp.int32)
    spreads = (params.sd, params.outlook_sd)
    return [jnp.maximum(least, rounded_normal(w, mean, sd, STEPS)) for w, sd in zip(words, spreads, strict=True)]


def replay(params: FreightParams, source: Random, state: int, previous: list[int]) -> tuple[int, list[int]]:
    """The next state and its readings on CPython's stream."""
    state = params.chain.replay(source, state)
    mean, least = float(params.mean[BAND[state]]), float(params.least)
    draws = [max(least, round(source.gauss(mean, float(sd)), 4)) for sd in (params.sd, params.outlook_sd)]
    return state, [round(draw * STEPS) for draw in draws]


def index(steps: Array, dtype: jnp.dtype) -> Array:
    """The index shown for a stored multiplier (int32): 100 times it, rounded, 100 being the normal rate."""
    return rounded_product(np.int32(100), fraction(steps, STEPS, dtype))


def published_log_likelihood(params: FreightParams, seen: Symptoms) -> Array:
    """Log likelihood ``[states]`` of the week's symptoms as the published filter has it: densities at the indices."""
    mean = 100 * params.mean[BAND]
    index = log_density(seen.freight_index, mean, 100 * params.sd)
    return index + log_density(seen.freight_outlook, mean, 100 * params.outlook_sd)


def index_cell(shown: Array, dtype: jnp.dtype) -> tuple[Array, Array]:
    """The first and the last stored multiplier (int32, 1/10,000) that show as an index.

    All steps closer to the index than half of it do; the two that lie half-way go where the world's own rounding puts
    them, which depends on the float type.
    """
    per_index = np.int32(STEPS // 100)
    first, last = per_index * shown - per_index // 2, per_index * shown + per_index // 2
    return (
        jnp.where(index(first, dtype) == shown, first, first + 1),
        jnp.where(index(last, dtype) == shown, last, last - 1),
    )


def _log_mass(params: FreightParams, first: Array, last: Array, sd: Array) -> Array:
    least = jnp.round(params.least * STEPS).astype(jnp.int32)
    return log_mass(first, last, params.mean * STEPS, sd * STEPS, least)[BAND]


def _exactly(params: FreightParams, multiplier: Array, shown: Array) -> Array:
    """Log likelihood ``[states]`` of an exact multiplier, given the index that it had shown as; 0 if it is -1.

    P(multiplier | index) = P(multiplier) / P(index), as the one implies the other.
    """
    whole = _log_mass(params, *index_cell(shown, params.sd.dtype), params.sd)
    sharper = _log_mass(params, multiplier, multiplier, params.sd) - whole
    return jnp.where((multiplier >= 0) & (whole > -jnp.inf), sharper, 0)


def log_likelihoods(params: FreightParams, seen: Symptoms, clues: Clues) -> dict[str, Array]:
    """Log likelihoods ``[states]`` of what the report tells of its week, by evidence.

    ``freight_index`` and ``freight_outlook``: mass of all the multipliers that show as the same index.
    ``freight_bill``, given the index: mass of the one multiplier that a shipment at the market's rate was billed at.
    """
    dtype = params.sd.dtype
    return {
        "freight_index": _log_mass(params, *index_cell(seen.freight_index, dtype), params.sd),
        "freight_outlook": _log_mass(params, *index_cell(seen.freight_outlook, dtype), params.outlook_sd),
        "freight_bill": _exactly(params, clues.multiplier, seen.freight_index),
    }


def hindsight(params: FreightParams, seen: Symptoms, clues: Clues) -> dict[str, Array]:
    """Log likelihoods ``[states]`` of what the report tells of the week before.

    ``freight_lock``, given the index of that week: mass of the one multiplier that a lock then fixed.
    """
    return {"freight_lock": _exactly(params, clues.last_multiplier, clues.last_index)}
