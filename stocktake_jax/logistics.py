"""The books and the week: a deterministic core fed by the hidden world's rows (docs/rules.md 2 and 2.1).

The week is ``transition``, a list of stages in the rule book's order. At most one ship is dispatched a week, and
at most one contract is signed, so ships are indexed by their week of dispatch and contracts by their week of signing.
"""

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from stocktake_jax.actions import (
    CAPE,
    LAPSE,
    NONE,
    QUALIFIED,
    SPOT,
    SUPPLIERS,
    Action,
    Refusal,
    check,
)
from stocktake_jax.factors import canal, freight, port, quality, supplier
from stocktake_jax.params import EVERGREEN, WorldParams
from stocktake_jax.randomness import Array
from stocktake_jax.rounding import fraction, rounded_product
from stocktake_jax.tape import Row

COSTS = (
    *("shipping", "surcharge", "holding", "in_transit", "stockout", "couple", "demurrage", "rework"),
    *("briefing", "audit", "air", "inspect", "dual_source"),
)
STATUSES = ("at_sea", "queued_at_suez", "diverted_via_cape")
_AT_SEA, _QUEUED, _DIVERTED = map(np.int32, range(len(STATUSES)))
_NOBODY = np.int32(-1)
_IS_SPOT = np.array([name == "spot" for name in SUPPLIERS])
# A ship reaches the canal, or the stretch of the Cape route that can hold it up, this many weeks after dispatch.
CHOKEPOINT = 2


class Ships(struct.PyTreeNode):
    """Ships afloat, int32 ``[slots]``, indexed by the week in which they were dispatched.

    Attributes:
        qty: units aboard; 0 where no ship sailed or the ship has landed.
        eta: week of arrival as displayed: the true one once known, the route's lead time until then.
        status: index into ``STATUSES``.
        route: index into ``ROUTES``.
        supplier: index into ``SUPPLIERS``.
    """

    qty: Array
    eta: Array
    status: Array
    route: Array
    supplier: Array


class Contracts(struct.PyTreeNode):
    """Contracts on the books, int32 ``[slots]``; slot 0 is the first one, slot w + 1 was signed in week w.

    Attributes:
        supplier: index into ``SUPPLIERS``, -1 for an empty slot.
        terms: index into ``TERMS``.
        end_week: first week that the contract no longer covers; ``EVERGREEN`` if it never ends.
    """

    supplier: Array
    terms: Array
    end_week: Array

    def open(self, week: Array, spot_defunct: Array) -> Array:
        """Which contracts are open (dead) in a week, bool ``[slots]``."""
        expired = self.end_week <= week
        return (self.supplier != _NOBODY) & (expired | ((self.supplier == SPOT) & spot_defunct))


class State(struct.PyTreeNode):
    """An episode's books between two decisions; nothing of the hidden world but what the week's report shows.

    Attributes:
        week: int32, weeks committed so far.
        stock: int32, units on hand.
        ships: afloat.
        contracts: on the books.
        queued: bool, whether the ship dispatched two weeks ago waits at Suez.
        on_order: int32, units afloat, the sum of the ships'.
        covered_until: int32 ``[3]``, by supplier, the latest end week of its contracts; 0 if it never had one.
        lock_rate: int32, locked freight multiplier in 1/10,000.
        lock_weeks: int32, commits that the lock still covers; 0 without a lock.
        arrived: int32, units that landed from ships last week.
        served: int32, units sold last week.
        fill: int32, last week's fill in 1/100 if it ordered from spot, else -1.
        briefing: int32, index into ``canal.BRIEFINGS`` if one was bought last week, else -1.
        audit: int32, index into ``supplier.BANDS`` if one was bought last week, else -1.
        costs: float ``[13]``, last week's costs in $, in the order of ``COSTS``.
    """

    week: Array
    stock: Array
    ships: Ships
    contracts: Contracts
    queued: Array
    on_order: Array
    covered_until: Array
    lock_rate: Array
    lock_weeks: Array
    arrived: Array
    served: Array
    fill: Array
    briefing: Array
    audit: Array
    costs: Array


class WeekResult(struct.PyTreeNode):
    """What a committed week brought.

    Attributes:
        costs: float ``[13]``, $, in the order of ``COSTS``.
        cost: float, $, their plain sum in that order.
        refusal: int32, a ``Refusal``; unless 0 the week ran as "order nothing".
        unmet: int32, units of demand not served.
        arrived: int32, units landed from ships.
        shipped: int32, units dispatched.
        defective: int32, units lost on landing.
    """

    costs: Array
    cost: Array
    refusal: Array
    unmet: Array
    arrived: Array
    shipped: Array
    defective: Array


def initial_state(params: WorldParams) -> State:
    """The books in week 0: the initial stock, no ship, an evergreen contract with spot."""
    params = params.arrays()
    nothing = jnp.zeros(params.slots, jnp.int32)
    zero, none = jnp.int32(0), jnp.int32(-1)
    return State(
        week=zero,
        stock=params.desk.initial_stock.astype(jnp.int32),
        ships=Ships(qty=nothing, eta=nothing, status=nothing, route=nothing, supplier=nothing),
        contracts=Contracts(
            supplier=jnp.full(params.slots, _NOBODY).at[0].set(SPOT),
            terms=nothing,
            end_week=nothing.at[0].set(EVERGREEN),
        ),
        queued=jnp.array(False),
        on_order=zero,
        covered_until=jnp.zeros(len(SUPPLIERS), jnp.int32).at[SPOT].set(EVERGREEN),
        lock_rate=zero,
        lock_weeks=zero,
        arrived=zero,
        served=zero,
        fill=none,
        briefing=none,
        audit=none,
        costs=jnp.zeros(len(COSTS), params.costs.holding.dtype),
    )


def transition(params: WorldParams, state: State, action: Action, now: Row, row: Row) -> tuple[State, WeekResult]:
    """One committed week.

    Args:
        params: the world.
        state: the books at the decision.
        action: int32 scalars.
        now: the row of the decision week, which levers and contracts go by.
        row: the row of the week that the commit moves to.

    Returns:
        The books after the week, and what it brought. Past the horizon the books stay as they are and the
        result is empty but for its refusal.
    """
    params = params.arrays()
    spot_gone = _at(supplier.DEFUNCT, now.supplier)
    contracts, covered_until, action, refusal = resolve_contracts(params, state, action, spot_gone)
    lock_rate, lock_weeks = lock(state, action, now)
    week = state.week + 1
    air = jnp.clip(action.air, 0, params.desk.most_air)
    ships, shipped, shortfall = dispatch(params, state.ships, action, week, row)
    multiplier = jnp.where(lock_weeks > 0, lock_rate, row.freight_multiplier)
    ships, queued, diverted = voyage(params, ships, state.queued, week, row)
    ships, held, arrived, defective = land(params, ships, action, week, row)
    on_order = state.on_order + shipped - arrived - defective
    stock, served, unmet = sell(state.stock + air + arrived, row.pos_units)
    live = live_suppliers(covered_until, week, _at(supplier.DEFUNCT, row.supplier))
    costs = price(
        params,
        action,
        multiplier=multiplier,
        shipped=shipped,
        diverted=diverted,
        stock=stock,
        afloat=on_order,
        unmet=unmet,
        shortfall=jnp.where(_at(canal.TENSE, row.canal), shortfall, 0),
        held=held,
        defective=defective,
        air=air,
        suppliers=live.sum(dtype=jnp.int32),
    )
    ordered_from_spot = (action.qty > 0) & (action.supplier == SPOT)
    following = State(
        week=week,
        stock=stock,
        ships=ships,
        contracts=contracts,
        queued=queued,
        on_order=on_order,
        covered_until=covered_until,
        lock_rate=lock_rate,
        lock_weeks=jnp.maximum(lock_weeks - 1, 0),
        arrived=arrived,
        served=served,
        fill=jnp.where(ordered_from_spot, row.fill, -1),
        briefing=jnp.where(action.briefing != 0, _at(canal.BRIEFING, now.canal), -1),
        audit=jnp.where(action.audit != 0, _at(supplier.TRUE_BAND, now.supplier), -1),
        costs=costs,
    )
    result = WeekResult(
        costs=costs,
        cost=_plain_sum(costs),
        refusal=refusal,
        unmet=unmet,
        arrived=arrived,
        shipped=shipped,
        defective=defective,
    )
    over = refusal == np.int32(Refusal.OVER)
    following = jax.tree.map(lambda after, before: jnp.where(over, before, after), following, state)
    empty = jax.tree.map(jnp.zeros_like, result).replace(refusal=refusal)
    return following, jax.tree.map(lambda value, none: jnp.where(over, none, value), result, empty)


def live_suppliers(covered_until: Array, week: Array, spot_gone: Array) -> Array:
    """Which suppliers have a live contract in a week, bool ``[3]``."""
    return (covered_until > week) & ~(spot_gone & jnp.asarray(_IS_SPOT))


def resolve_contracts(
    params: WorldParams, state: State, action: Action, spot_gone: Array
) -> tuple[Contracts, Array, Action, Array]:
    """Stages 1 and 2: the contract action, then the check of the whole action against what it leaves.

    A refused action loses its order and its contract action; levers that are themselves legal still stand.

    Returns:
        Contracts, the week until which each supplier is covered, the action as it runs, and the refusal.
    """
    before = state.contracts
    of_supplier = before.supplier == action.contract_supplier
    drop = (action.contract_action != NONE) & of_supplier & before.open(state.week, spot_gone)
    sign = (action.contract_action != NONE) & (action.contract_action != LAPSE)
    signed = sign & (jnp.arange(params.slots, dtype=jnp.int32) == state.week + 1)
    weeks = params.desk.term_weeks[jnp.clip(action.contract_terms, 0, len(params.desk.term_weeks) - 1)]
    end_week = jnp.where(action.contract_supplier == QUALIFIED, EVERGREEN, state.week + weeks.astype(jnp.int32))
    after = Contracts(
        supplier=jnp.where(signed, action.contract_supplier, jnp.where(drop, _NOBODY, before.supplier)),
        terms=jnp.where(signed, action.contract_terms, before.terms),
        end_week=jnp.where(signed, end_week, before.end_week),
    )
    # What is dropped is open and covers nothing, so only a signing moves the week until which one is covered.
    extends = sign & (jnp.arange(len(SUPPLIERS), dtype=jnp.int32) == action.contract_supplier)
    covered_until = jnp.where(extends, jnp.maximum(state.covered_until, end_week), state.covered_until)

    refusal = check(params, state.week, action, live_suppliers(covered_until, state.week, spot_gone))
    accepted = refusal == np.int32(Refusal.ACCEPTED)
    contracts, covered_until = jax.tree.map(
        lambda new, old: jnp.where(accepted, new, old), (after, covered_until), (before, state.covered_until)
    )
    return contracts, covered_until, action.replace(qty=jnp.where(accepted, action.qty, 0)), refusal


def lock(state: State, action: Action, now: Row) -> tuple[Array, Array]:
    """The freight lock in force at the commit: rate (1/10,000) and weeks; a new one replaces a live one."""
    new = action.lock_weeks > 0
    return (
        jnp.where(new, now.freight_multiplier, state.lock_rate),
        jnp.where(new, action.lock_weeks, state.lock_weeks),
    )


def dispatch(params: WorldParams, ships: Ships, action: Action, week: Array, row: Row) -> tuple[Ships, Array, Array]:
    """Stage 5: today's ship, the units it carries, and the units that spot falls short by."""
    fill = fraction(row.fill, supplier.FILL_STEPS, params.costs.holding.dtype)
    qty = jnp.where(action.supplier == SPOT, rounded_product(action.qty, fill), action.qty)
    sails = (jnp.arange(params.slots, dtype=jnp.int32) == week) & (qty > 0)
    eta = week + params.voyage.lead[jnp.clip(action.route, 0, len(params.voyage.lead) - 1)]
    today = Ships(qty=qty, eta=eta, status=_AT_SEA, route=action.route, supplier=action.supplier)
    return jax.tree.map(lambda new, old: jnp.where(sails, new, old), today, ships), qty, action.qty - qty


def voyage(params: WorldParams, ships: Ships, queued: Array, week: Array, row: Row) -> tuple[Ships, Array, Array]:
    """Stage 6: the ship at the chokepoint and the one that queued there a week ago move.

    Only these two can move: a ship waits at Suez for one week, and then it is released or diverted.

    Returns:
        Ships, whether the ship at the chokepoint queues now, and the units diverted today.
    """
    numbers = params.voyage
    slots = jnp.arange(params.slots, dtype=jnp.int32)
    here, before = jnp.maximum(week - CHOKEPOINT, 0), jnp.maximum(week - CHOKEPOINT - 1, 0)
    blocked = _at(canal.BLOCKED, row.canal)
    slow_cape = _at(canal.LONG, row.canal) | (row.cape_congestion != 0)
    by_cape, exists = ships.route[here] == CAPE, ships.qty[here] > 0

    queues = exists & ~by_cape & blocked
    suez_delay = jnp.where(_at(canal.RECOVERY, row.canal), numbers.recovery_delay, 0)
    delay = jnp.where(by_cape, jnp.where(slow_cape, numbers.cape_delay, 0), suez_delay)
    moved = week + jnp.where(blocked, numbers.diversion, numbers.release)
    diverted = queued & blocked

    at_point, waited = slots == here, queued & (slots == before)
    return (
        ships.replace(
            eta=jnp.where(waited, moved, jnp.where(at_point, ships.eta + delay, ships.eta)),
            status=jnp.where(
                waited,
                jnp.where(blocked, _DIVERTED, _AT_SEA),
                jnp.where(at_point & queues, _QUEUED, ships.status),
            ),
        ),
        queues,
        jnp.where(diverted, ships.qty[before], 0),
    )


def land(params: WorldParams, ships: Ships, action: Action, week: Array, row: Row) -> tuple[Ships, Array, Array, Array]:
    """Stage 7: arrivals; also the units held at a blocked port, landed sound, and lost as defective."""
    due = (ships.eta == week) & (ships.qty > 0)
    blocked = _at(port.BLOCKED, row.port)
    share = fraction(row.defect_fraction, quality.STEPS, params.costs.holding.dtype)
    share = jnp.where(action.inspect != 0, share * params.desk.inspection_factor, share)
    due_units = jnp.where(due, ships.qty, 0).sum(dtype=jnp.int32)
    lost_units = jnp.where(due, rounded_product(ships.qty, share), 0).sum(dtype=jnp.int32)
    held, landing = jnp.where(blocked, due_units, 0), jnp.where(blocked, 0, due_units)
    defective = jnp.where(blocked, 0, lost_units)
    ships = ships.replace(
        qty=jnp.where(due & ~blocked, 0, ships.qty), eta=jnp.where(due & blocked, ships.eta + 1, ships.eta)
    )
    return ships, held, landing - defective, defective


def sell(stock: Array, demand: Array) -> tuple[Array, Array, Array]:
    """Stage 8: stock after sales, units sold, and units of demand lost."""
    sold = jnp.minimum(stock, demand)
    return stock - sold, sold, demand - sold


def price(
    params: WorldParams,
    action: Action,
    *,
    multiplier: Array,
    shipped: Array,
    diverted: Array,
    stock: Array,
    afloat: Array,
    unmet: Array,
    shortfall: Array,
    held: Array,
    defective: Array,
    air: Array,
    suppliers: Array,
) -> Array:
    """Stage 9: the week's costs, float ``[13]`` in the order of ``COSTS``, from units and the multiplier (1/10,000)."""
    costs = params.costs
    dtype = costs.holding.dtype
    route, source = jnp.clip(action.route, 0, 1), jnp.clip(action.supplier, 0, len(SUPPLIERS) - 1)
    rate = fraction(multiplier, freight.STEPS, dtype)
    lines = {
        "shipping": shipped.astype(dtype) * (costs.base_rate[route] * rate + costs.supplier_delta[source]),
        "surcharge": diverted.astype(dtype) * costs.surcharge,
        "holding": stock.astype(dtype) * costs.holding,
        "in_transit": afloat.astype(dtype) * costs.in_transit,
        "stockout": unmet.astype(dtype) * costs.stockout,
        "couple": shortfall.astype(dtype) * costs.couple,
        "demurrage": held.astype(dtype) * costs.demurrage,
        "rework": defective.astype(dtype) * costs.rework,
        "briefing": (action.briefing != 0).astype(dtype) * costs.briefing,
        "audit": (action.audit != 0).astype(dtype) * costs.audit,
        "air": air.astype(dtype) * costs.air,
        "inspect": (action.inspect != 0).astype(dtype) * costs.inspect,
        "dual_source": (suppliers >= 2).astype(dtype) * costs.dual_source,
    }
    return jnp.stack([lines[name] for name in COSTS])


def _plain_sum(costs: Array) -> Array:
    total = costs[0]
    for i in range(1, len(COSTS)):
        total = total + costs[i]
    return total


def _at(table: np.ndarray, state: Array) -> Array:
    """What a table over a factor's states says of one of them."""
    return jnp.asarray(table)[state]
