"""Demand: what the market asks for each week (docs/rules.md 1, Demand)."""

from random import Random

import jax.numpy as jnp
import numpy as np

from stocktake_jax.chain import Chain
from stocktake_jax.fields import Params, number
from stocktake_jax.randomness import Array, rounded_normal
from stocktake_jax.symptoms import Clues, Symptoms, log_density, log_mass

CHAIN = Chain.from_rows(
    {
        "normal": {"promo_spike:0": 0.03, "seasonal_lift:0": 0.015, "structural_decline": 0.005, "normal": 0.95},
        "structural_decline": {"structural_decline": 0.97, "normal": 0.03},
        **{f"promo_spike:{age}": {f"promo_spike:{age + 1}": 1.0} for age in range(3)},
        "promo_spike:3": {"normal": 1.0},
        **{f"seasonal_lift:{age}": {f"seasonal_lift:{age + 1}": 0.85, "normal": 0.15} for age in range(7)},
        "seasonal_lift:7": {"normal": 1.0},
    }
)
LAYOUT = CHAIN.layout
START = LAYOUT.index("normal")
STRESS = LAYOUT.mask("structural_decline", "promo_spike", "seasonal_lift")

BANDS = ("normal", "decline", "surge", "lift")
"""Levels of mean demand: a promotion and the first week of a seasonal lift share the surge."""
BAND = np.array(
    [
        {"normal": 0, "structural_decline": 1, "promo_spike": 2, "seasonal_lift": 3}[regime]
        - (label == "seasonal_lift:0")
        for label, regime in zip(LAYOUT.labels, LAYOUT.regimes, strict=True)
    ],
    np.int32,
)

READINGS = ("pos_units", "demand_forecast")
BASELINE = (20, 20)
WORDS = 2


class DemandParams(Params):
    """Numbers of the demand process."""

    chain: Chain = CHAIN
    mean: Array = number((20.0, 14.0, 26.0, 30.0), "mean demand by band", unit="units/week", most=1000)
    sd: Array = number(4.0, "standard deviation of realized demand", unit="units/week", most=100)
    forecast_sd: Array = number(6.0, "standard deviation of the forecast", unit="units/week", most=100)


def read(params: DemandParams, state: Array, previous: list[Array], words: list[Array]) -> list[Array]:
    """Readings of a state just entered: realized demand and forecast, whole units."""
    mean = params.mean[BAND][state]
    spreads = (params.sd, params.forecast_sd)
    return [jnp.maximum(0, rounded_normal(word, mean, sd)) for word, sd in zip(words, spreads, strict=True)]


def replay(params: DemandParams, source: Random, state: int, previous: list[int]) -> tuple[int, list[int]]:
    """The next state and its readings on CPython's stream."""
    state = params.chain.replay(source, state)
    mean = float(params.mean[BAND[state]])
    spreads = (params.sd, params.forecast_sd)
    return state, [max(0, round(source.gauss(mean, float(sd)))) for sd in spreads]


def published_log_likelihood(params: DemandParams, seen: Symptoms) -> Array:
    """Log likelihood ``[states]`` of the week's symptoms as the published filter has it: densities at the readings."""
    mean = params.mean[BAND]
    return log_density(seen.pos_units, mean, params.sd) + log_density(seen.demand_forecast, mean, params.forecast_sd)


def log_likelihoods(params: DemandParams, seen: Symptoms, clues: Clues) -> dict[str, Array]:
    """Log likelihoods ``[states]`` of what the report tells of its week, by evidence: masses of the rounded readings.

    Sales and lost sales follow from demand and the books, and tell nothing beyond it.
    """

    def reading(value: Array, sd: Array) -> Array:
        return log_mass(value, value, params.mean, sd, np.int32(0))[BAND]

    return {
        "pos_units": reading(seen.pos_units, params.sd),
        "demand_forecast": reading(seen.demand_forecast, params.forecast_sd),
    }
