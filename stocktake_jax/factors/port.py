"""Port: whether ships that have arrived can land (docs/rules.md 1, Port)."""

from random import Random

import jax.numpy as jnp
import numpy as np

from stocktake_jax.chain import Chain
from stocktake_jax.fields import Params, number
from stocktake_jax.randomness import Array, rounded_normal
from stocktake_jax.symptoms import Clues, Symptoms, log_density, log_if, log_mass

CHAIN = Chain.from_rows(
    {
        "clear": {"building": 0.06, "customs_hold:0": 0.04, "clear": 0.90},
        "building": {"congested:0": 0.30, "clear": 0.30, "building": 0.40},
        **{f"congested:{age}": {f"congested:{age + 1}": 0.85, "clear": 0.15} for age in range(7)},
        "congested:7": {"clear": 1.0},
        "customs_hold:0": {"customs_hold:persist": 0.20, "clear": 0.80},
        "customs_hold:persist": {"customs_hold:persist": 0.20, "clear": 0.80},
    }
)
LAYOUT = CHAIN.layout
START = LAYOUT.index("clear")
STRESS = LAYOUT.mask("congested", "customs_hold")
BLOCKED = STRESS
"""States in which nothing lands."""

BANDS = ("clear", "building", "slow", "jammed")
"""Levels of the mean wait: congestion and a customs hold share the slow band in their first week."""
BAND = np.array(
    [
        2 if label in ("congested:0", "customs_hold:0") else {"clear": 0, "building": 1}.get(regime, 3)
        for label, regime in zip(LAYOUT.labels, LAYOUT.regimes, strict=True)
    ],
    np.int32,
)

READINGS = ("berth_wait", "wait_outlook")
BASELINE = (1, 1)
WORDS = 2


class PortParams(Params):
    """Numbers of the port process."""

    chain: Chain = CHAIN
    mean: Array = number((1.0, 4.0, 14.0, 16.0), "mean berth wait by band", unit="days", most=1000)
    sd: Array = number(2.0, "standard deviation of the berth wait", unit="days", most=100)
    outlook_sd: Array = number(3.0, "standard deviation of the wait outlook", unit="days", most=100)


def read(params: PortParams, state: Array, previous: list[Array], words: list[Array]) -> list[Array]:
    """Readings of a state just entered: berth wait and its outlook, whole days."""
    mean = params.mean[BAND][state]
    spreads = (params.sd, params.outlook_sd)
    return [jnp.maximum(0, rounded_normal(word, mean, sd)) for word, sd in zip(words, spreads, strict=True)]


def replay(params: PortParams, source: Random, state: int, previous: list[int]) -> tuple[int, list[int]]:
    """The next state and its readings on CPython's stream."""
    state = params.chain.replay(source, state)
    mean = float(params.mean[BAND[state]])
    return state, [max(0, round(source.gauss(mean, float(sd)))) for sd in (params.sd, params.outlook_sd)]


def published_log_likelihood(params: PortParams, seen: Symptoms) -> Array:
    """Log likelihood ``[states]`` of the week's symptoms as the published filter has it: densities at the readings."""
    mean = params.mean[BAND]
    return log_density(seen.berth_wait, mean, params.sd) + log_density(seen.wait_outlook, mean, params.outlook_sd)


def log_likelihoods(params: PortParams, seen: Symptoms, clues: Clues) -> dict[str, Array]:
    """Log likelihoods ``[states]`` of what the report tells of its week, by evidence.

    ``berth_wait`` and ``wait_outlook``: masses of the rounded readings; a 0 is all that lies below a half.
    ``arrivals``: ships that are due are held just when the port is blocked.
    """

    def reading(value: Array, sd: Array) -> Array:
        return log_mass(value, value, params.mean, sd, np.int32(0))[BAND]

    return {
        "berth_wait": reading(seen.berth_wait, params.sd),
        "wait_outlook": reading(seen.wait_outlook, params.outlook_sd),
        "arrivals": log_if((clues.port_blocked == 1) == BLOCKED, clues.port_blocked >= 0, params.sd.dtype),
    }
