"""Quality: the share of each landing that is defective (docs/rules.md 1, Quality)."""

from random import Random

import jax.numpy as jnp
import numpy as np

from stocktake_jax.chain import Chain, inverse_cdf
from stocktake_jax.fields import Params, number, probability
from stocktake_jax.randomness import FIXED_POINT_BITS, Array, standard_exponential, uniform
from stocktake_jax.symptoms import Clues, Symptoms

STEPS = 100_000
"""Defect fractions are stored as whole numbers of 1/100,000."""

_OLDEST = 24


def _drifting(age: int) -> dict[str, float]:
    """The row of a process that has drifted for ``age`` weeks: the hazard of failure grows with age."""
    hazard = min(1.0, 0.05 + 0.04 * age)
    back = min(0.20, 1 - hazard)
    stay = 1 - hazard - back
    row = {"out_of_control": hazard, "in_control": back}
    # What is left is zero from age 19 on, give or take the last bits of a double.
    return row | {f"drifting:{min(age + 1, _OLDEST)}": stay} if stay > 1e-9 else row


CHAIN = Chain.from_rows(
    {
        "in_control": {"drifting:0": 0.04, "in_control": 0.96},
        **{f"drifting:{age}": _drifting(age) for age in range(_OLDEST + 1)},
        "out_of_control": {"in_control": 0.25, "out_of_control": 0.75},
    }
)
LAYOUT = CHAIN.layout
START = LAYOUT.index("in_control")
STRESS = LAYOUT.mask("out_of_control")

BANDS = ("in_control", "drifting", "out_of_control")
BAND = np.array([BANDS.index(regime) for regime in LAYOUT.regimes], np.int32)
AQL_RESULTS = ("accept", "marginal", "reject")

READINGS = ("defect_fraction", "aql_result")
BASELINE = (0, 0)
WORDS = 3


class QualityParams(Params):
    """Numbers of the quality process."""

    chain: Chain = CHAIN
    defect_rate: Array = number((0.001, 0.02, 0.06), "process defect rate by regime", unit="share", most=1.0)
    aql: Array = probability(
        ((0.90, 0.09, 0.01), (0.30, 0.50, 0.20), (0.05, 0.25, 0.70)),
        "inspection result (accept, marginal, reject) by regime; rows sum to 1",
    )


def read(params: QualityParams, state: Array, previous: list[Array], words: list[Array]) -> list[Array]:
    """Readings of a state just entered: defect fraction in 1/100,000 and inspection result."""
    band = jnp.asarray(BAND)[state]
    # Gamma(2, 1/2) is half the sum of two standard exponentials.
    gamma = standard_exponential(words[0]) + standard_exponential(words[1])
    rate = params.defect_rate[band].astype(jnp.float32)
    defects = jnp.round(gamma.astype(jnp.float32) * (rate * np.float32(STEPS / 2.0 ** (FIXED_POINT_BITS + 1))))
    accept, marginal, reject = (params.aql[:, k].astype(jnp.float32) for k in range(3))
    cumulative = jnp.stack([accept, accept + marginal, accept + marginal + reject], axis=-1)
    return [defects.astype(jnp.int32), inverse_cdf(cumulative[band], uniform(words[2]))]


def replay(params: QualityParams, source: Random, state: int, previous: list[int]) -> tuple[int, list[int]]:
    """The next state and its readings on CPython's stream."""
    state = params.chain.replay(source, state)
    band = BAND[state]
    defects = round(float(params.defect_rate[band]) * source.gammavariate(2.0, 0.5), 5)
    aql = np.cumsum(params.aql[band])
    result = int(np.searchsorted(aql[:-1], source.random(), side="right"))
    return state, [round(defects * STEPS), result]


def published_log_likelihood(params: QualityParams, seen: Symptoms) -> Array:
    """Log likelihood ``[states]`` of the week's inspection result."""
    return jnp.log(params.aql[:, seen.aql_result][BAND])


MOST_DEFECTS = 2**21 - 1
"""A defect fraction, in 1/100,000, that is never exceeded: 20 times the mean of the worst rate there can be."""


def log_likelihoods(params: QualityParams, seen: Symptoms, clues: Clues) -> dict[str, Array]:
    """Log likelihoods ``[states]`` of what the report tells of its week, by evidence.

    ``aql_result``: its row of the table.

    ``defects``: the units lost on landing grow with the defect fraction d, so that they confine d to an interval
    a..b of whole steps. With d = round(rate G), G ~ Gamma(2, 1/2), whose survival function is
    S(x) = (1 + 2x) exp(-2x), the mass is S(u) - S(v) at u = (a - 1/2) / rate, not below 0, and v = (b + 1/2) / rate.
    With w = v - u it equals exp(-2u) ((1 + 2u) (1 - exp(-2w)) - 2w exp(-2w)), which neither underflows nor cancels.
    """
    rate = jnp.maximum(params.defect_rate * STEPS, np.array(1e-6, params.defect_rate.dtype))
    steps = clues.defects.astype(rate.dtype)
    u = jnp.clip((steps[0] - 0.5) / rate, 0, 1e6)
    w = jnp.clip((steps[1] + 0.5) / rate, 0, 1e6) - u
    mass = -(1 + 2 * u) * jnp.expm1(-2 * w) - 2 * w * jnp.exp(-2 * w)
    return {
        "aql_result": jnp.log(params.aql[:, seen.aql_result][BAND]),
        "defects": (jnp.log(jnp.maximum(mass, 0)) - 2 * u)[BAND],
    }
