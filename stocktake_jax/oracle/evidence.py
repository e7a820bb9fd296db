"""What two reports in a row tell together: ships that moved or did not, units lost, rates that were paid.

Reports only: whatever is concluded here a player with pencil and paper can conclude too. A ship that a report does not
list (its quantity is 0) is not looked at.
"""

import jax
import jax.numpy as jnp
import numpy as np

from stocktake_jax import logistics
from stocktake_jax.actions import CAPE, SUEZ
from stocktake_jax.env import Observation
from stocktake_jax.factors import freight, quality
from stocktake_jax.logistics import COSTS, STATUSES
from stocktake_jax.params import WorldParams
from stocktake_jax.randomness import Array
from stocktake_jax.rounding import fraction, rounded_product
from stocktake_jax.symptoms import Clues

_QUEUED, _DIVERTED = (np.int32(STATUSES.index(name)) for name in ("queued_at_suez", "diverted_via_cape"))
_SHIPPING, _INSPECT = COSTS.index("shipping"), COSTS.index("inspect")
_UNTOLD = np.int32(-1)
_PER_INDEX = np.int32(freight.STEPS // 100)


def clues(params: WorldParams, last: Observation, seen: Observation, known: Array) -> Clues:
    """What a report tells once it is laid beside the one before.

    Args:
        params: the world, as arrays.
        last, seen: the reports of two weeks in a row, of one episode.
        known: bool scalar, whether ``last`` told its week's exact multiplier already.
    """
    before, now = last.ships, seen.ships
    afloat, late = before.qty > 0, now.eta > before.eta
    at_point = afloat & (jnp.arange(params.slots, dtype=jnp.int32) == seen.week - logistics.CHOKEPOINT)
    at_suez, at_cape = at_point & (before.route == SUEZ), at_point & (before.route == CAPE)
    waited = afloat & (before.status == _QUEUED)
    queues, diverted = at_suez & (now.status == _QUEUED), waited & (now.status == _DIVERTED)
    passed = at_suez & ~queues
    # A ship that waited is on its way now, whatever its eta said.
    due = afloat & (before.eta == seen.week) & ~waited
    port_blocked = _told(due, due & (now.qty > 0))
    multiplier, last_multiplier = _multipliers(params, last, seen)
    return Clues(
        suez_blocked=_told(at_suez | waited, queues | diverted),
        suez_recovering=_told(passed & (params.voyage.recovery_delay > 0), passed & late),
        cape_slow=_told(at_cape & (params.voyage.cape_delay > 0), at_cape & late),
        port_blocked=port_blocked,
        multiplier=multiplier,
        last_multiplier=jnp.where(known, _UNTOLD, last_multiplier),
        last_index=last.freight_index,
        defects=_defects(params, jnp.where(due, before.qty, 0), port_blocked == 0, seen),
    )


def _told(asked: Array, yes: Array) -> Array:
    """1 if any ship says yes, 0 if those that were asked say no, -1 if none was asked; bool ``[slots]`` each."""
    return jnp.where(asked.any(), yes.any().astype(jnp.int32), _UNTOLD)


def _defects(params: WorldParams, due: Array, landed: Array, seen: Observation) -> Array:
    """The least and the greatest defect fraction (int32 ``[2]``, 1/100,000) that lose what was lost of the ships due.

    Losses are rounded ship by ship, as the books do it, and grow with the fraction: its bounds are found by bisection.
    That an inspection took place is told by its price, so without one nothing can be said.
    """
    dtype = params.costs.holding.dtype
    inspected = seen.costs[_INSPECT] > 0
    lost = due.sum(dtype=jnp.int32) - seen.arrived
    wanted = jnp.stack([lost, lost + 1])

    def losses(steps: Array) -> Array:
        share = fraction(steps, quality.STEPS, dtype)
        share = jnp.where(inspected, share * params.desk.inspection_factor, share)
        return rounded_product(due[None, :], share[:, None]).sum(axis=-1, dtype=jnp.int32)

    # How many fractions lose less than is wanted, which is the first that does not.
    def halve(i: Array, fewer: Array) -> Array:
        probe = fewer + (np.int32(1 << (bits - 1)) >> i)
        return jnp.where(losses(probe - 1) < wanted, probe, fewer)

    bits = quality.MOST_DEFECTS.bit_length()
    fewer = jax.lax.fori_loop(np.int32(0), np.int32(bits), halve, jnp.zeros(2, jnp.int32))
    told = landed & (params.costs.inspect > 0)
    return jnp.where(told, fewer - np.array([0, 1], np.int32), np.array([0, quality.MOST_DEFECTS], np.int32))


def _multipliers(params: WorldParams, last: Observation, seen: Observation) -> tuple[Array, Array]:
    """The exact market multipliers (int32, 1/10,000) of this week and of the week before, -1 where not told.

    A lock's rate is the market's of the week in which it was taken, and it is new if it isn't what is left of the one
    before. A freight bill tells the rate that was paid: this week's, or a lock's. A lock of a single week leaves no
    trace but that rate, which must then show as last week's index. Where it would show as this week's as well, either
    may have been paid, and the bill is not used.
    """
    had, have = last.lock_weeks, seen.lock_weeks
    goes_on = (have == had - 1) & (seen.lock_rate == last.lock_rate)
    newly_locked = (have > 0) & ~goes_on

    paid = _rate_paid(params, seen)
    billed = (have == 0) & (paid >= 0)

    def shows_as(index: Array) -> Array:
        # A multiplier half-way between two indices may show as either, which depends on the world's float type.
        return billed & (jnp.abs(2 * (paid - _PER_INDEX * index)) <= _PER_INDEX)

    as_now, as_last = shows_as(seen.freight_index), shows_as(last.freight_index)
    ran_out = (had == 1) & (paid == last.lock_rate)
    one_week = as_last & jnp.where(had > 0, ~ran_out, ~as_now)
    return (
        jnp.where(as_now & ~as_last & (had == 0), paid, _UNTOLD),
        jnp.where(newly_locked, seen.lock_rate, jnp.where(one_week, paid, _UNTOLD)),
    )


def _rate_paid(params: WorldParams, seen: Observation) -> Array:
    """The multiplier (int32, 1/10,000) in the freight bill of this week's dispatch, -1 if nothing was shipped.

    A bill in float32 is good for seven digits, which fix a multiplier of five.
    """
    costs, ships = params.costs, seen.ships

    def today(column: Array) -> Array:
        return column[jnp.minimum(seen.week, params.slots - 1)]

    shipped, base = today(ships.qty), costs.base_rate[today(ships.route)]
    per_unit = seen.costs[_SHIPPING] / jnp.maximum(shipped, 1).astype(seen.costs.dtype)
    rate = (per_unit - costs.supplier_delta[today(ships.supplier)]) / jnp.where(base > 0, base, 1)
    steps = jnp.round(jnp.maximum(rate, 0) * freight.STEPS).astype(jnp.int32)
    return jnp.where((shipped > 0) & (base > 0), steps, _UNTOLD)
