"""Supplier: the health of the spot supplier (docs/rules.md 1, Supplier)."""

from random import Random

import jax.numpy as jnp
import numpy as np

from stocktake_jax.chain import Chain
from stocktake_jax.fields import Params, number
from stocktake_jax.randomness import Array, rounded_normal
from stocktake_jax.symptoms import Clues, Symptoms, log_density, log_if, log_mass

_ROW = 1  # of the spot supplier in the report
SLIP_STEPS = 10
"""Slips are stored as whole tenths of a day."""
FILL_STEPS = 100
"""Fills are stored as whole hundredths."""

CHAIN = Chain.from_rows(
    {
        "reliable": {"wobbling": 0.10, "reliable": 0.90},
        "wobbling": {"degraded:0": 0.45, "reliable": 0.35, "wobbling": 0.20},
        "defunct": {"defunct": 1.0},
        **{
            f"degraded:{a}": {"defunct": 0.06, "reliable": 0.94 * 0.30, f"degraded:{a + 1}": 0.94 * 0.70}
            for a in range(3)
        },
        "degraded:3": {"defunct": 0.06, "reliable": 0.94},
    }
)
LAYOUT = CHAIN.layout
START = LAYOUT.index("reliable")
STRESS = LAYOUT.mask("degraded", "defunct")
DEFUNCT = LAYOUT.mask("defunct")

REGIMES = ("reliable", "wobbling", "degraded", "defunct")
REGIME = np.array([REGIMES.index(regime) for regime in LAYOUT.regimes], np.int32)
BANDS = ("ontime", "slipping", "failing", "defunct")
TRUE_BAND = np.array(
    [1 if label == "degraded:0" else regime for label, regime in zip(LAYOUT.labels, REGIME, strict=True)], np.int32
)
"""True band of each state: what a bought audit says. A supplier counts as failing from its second degraded week."""
SCORECARD_BAND = np.array([0, 0, 1, 3], np.int32)
"""Band that the scorecard shows for each true band: one step better, but for a dead supplier."""
READINGS = ("lead_slip", "fill")
BASELINE = (0, 0)
WORDS = 2


class SupplierParams(Params):
    """Numbers of the spot supplier's process."""

    chain: Chain = CHAIN
    mean_slip: Array = number((0.0, 3.0, 7.0, 0.0), "mean slip of the lead time by regime", unit="days", most=1000)
    slip_sd: Array = number(2.5, "standard deviation of the slip", unit="days", most=100)
    mean_fill: Array = number((0.95, 0.60, 0.15, 0.0), "mean share of an order that is shipped, by regime", most=1.0)
    fill_sd: Array = number(0.12, "standard deviation of the fill", most=100)
    scorecard_otif: Array = number(
        (98, 96, 86, -1), "on time in full as shown, by true band; -1 for none", unit="%", least=-1, most=100
    )
    scorecard_lead: Array = number(
        (14, 15, 19, -1), "lead time as shown, by true band; -1 for none", unit="days", least=-1
    )


def read(params: SupplierParams, state: Array, previous: list[Array], words: list[Array]) -> list[Array]:
    """Readings of a state just entered: slip in tenths of a day and fill in hundredths.

    A dead supplier keeps the readings of the week in which it died; ``previous`` holds the state before and the
    readings before.
    """
    regime = jnp.asarray(REGIME)[state]
    slip = rounded_normal(words[0], params.mean_slip[regime], params.slip_sd, SLIP_STEPS)
    fill = rounded_normal(words[1], params.mean_fill[regime], params.fill_sd, FILL_STEPS)
    before, last_slip, last_fill = previous
    dead = jnp.asarray(DEFUNCT)[before]
    return [
        jnp.where(dead, last_slip, jnp.maximum(0, slip)),
        jnp.where(dead, last_fill, jnp.clip(fill, 0, FILL_STEPS)),
    ]


def replay(params: SupplierParams, source: Random, state: int, previous: list[int]) -> tuple[int, list[int]]:
    """The next state and its readings on CPython's stream, which a dead supplier no longer touches."""
    if DEFUNCT[state]:
        return state, previous[1:]
    if LAYOUT.regimes[state] == "degraded" and len(LAYOUT.successors[state]) == 3:
        state = _replay_degraded(params.chain.probabilities[state].tolist(), LAYOUT.successors[state], source)
    else:
        state = params.chain.replay(source, state)
    regime = REGIME[state]
    slip = round(max(0.0, source.gauss(float(params.mean_slip[regime]), float(params.slip_sd))), 1)
    fill = round(min(1.0, max(0.0, source.gauss(float(params.mean_fill[regime]), float(params.fill_sd)))), 2)
    return state, [round(slip * SLIP_STEPS), round(fill * FILL_STEPS)]


def _replay_degraded(row: list[float], successors: tuple[int, ...], source: Random) -> int:
    """The published stream settles death first and recovery by a second uniform."""
    death, recovery, stay = row
    if source.random() < death:
        return successors[0]
    return successors[1] if source.random() > stay / (recovery + stay) else successors[2]


def published_log_likelihood(params: SupplierParams, seen: Symptoms) -> Array:
    """Log likelihood ``[states]`` of the scorecard's band, the slip and, after a spot order, the fill."""
    slip = seen.lead_slip.astype(params.slip_sd.dtype) / SLIP_STEPS
    fill = seen.fill.astype(params.fill_sd.dtype) / FILL_STEPS
    matches = jnp.asarray(SCORECARD_BAND[TRUE_BAND]) == seen.supplier_band[_ROW]
    readings = log_density(slip, params.mean_slip[REGIME], params.slip_sd)
    filled = log_density(fill, params.mean_fill[REGIME], params.fill_sd)
    return jnp.where(matches, readings + jnp.where(seen.fill >= 0, filled, 0), -jnp.inf)


def log_likelihoods(params: SupplierParams, seen: Symptoms, clues: Clues) -> dict[str, Array]:
    """Log likelihoods ``[states]`` of what the report tells of its week, by evidence.

    ``band``: the scorecard's band fits. ``scorecard``: so do its OTIF and lead time, which tell on-time from slipping.

    ``lead_slip`` and ``realized_fill``: masses of the readings, rounded to tenths of a day and to hundredths, at the
    bounds all that lies beyond. A dead supplier is shown as such, and its readings are those of the week of its death:
    they tell nothing, and weigh nothing.
    """
    dtype = params.slip_sd.dtype
    true = jnp.asarray(TRUE_BAND)
    band = jnp.asarray(SCORECARD_BAND)[true] == seen.supplier_band[_ROW]
    otif = params.scorecard_otif[true] == seen.supplier_otif[_ROW]
    lead = params.scorecard_lead[true] == seen.supplier_lead[_ROW]
    slip_mean, slip_sd = params.mean_slip * SLIP_STEPS, params.slip_sd * SLIP_STEPS
    fill_mean, fill_sd = params.mean_fill * FILL_STEPS, params.fill_sd * FILL_STEPS
    slip = log_mass(seen.lead_slip, seen.lead_slip, slip_mean, slip_sd, np.int32(0))[REGIME]
    fill = log_mass(seen.fill, seen.fill, fill_mean, fill_sd, np.int32(0), np.int32(FILL_STEPS))[REGIME]
    return {
        "band": log_if(band, jnp.array(True), dtype),
        "scorecard": log_if(otif & lead, jnp.array(True), dtype),
        "lead_slip": jnp.where(DEFUNCT, 0, slip),
        "realized_fill": jnp.where(DEFUNCT | (seen.fill < 0), 0, fill),
    }


def hindsight(params: SupplierParams, seen: Symptoms, clues: Clues) -> dict[str, Array]:
    """Log likelihoods ``[states]`` of what the report tells of the week before: ``audit``, the true band."""
    return {"audit": log_if(seen.audit == TRUE_BAND, seen.audit >= 0, params.slip_sd.dtype)}
