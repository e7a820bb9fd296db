"""Freight: the multiplier on the base rate of every sea shipment (docs/rules.md 1, Freight)."""

from random import Random

import jax.numpy as jnp
import numpy as np

from stocktake_jax.chain import Chain
from stocktake_jax.fields import Params, number
from stocktake_jax.randomness import Array, rounded_normal
from stocktake_jax.rounding import fraction, rounded_product
from stocktake_jax.symptoms import Symptoms, log_density

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
