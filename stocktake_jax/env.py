"""The environment as pure functions: reset, step, observe (docs/rules.md 2)."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from stocktake_jax import logistics
from stocktake_jax.actions import Action, to_int32
from stocktake_jax.factors import canal, freight, supplier
from stocktake_jax.logistics import Contracts, Ships, State, WeekResult
from stocktake_jax.params import WorldParams, or_default
from stocktake_jax.randomness import Array
from stocktake_jax.tape import Row, Tape


class Observation(struct.PyTreeNode):
    """All that a week's report shows, as arrays, and nothing else (docs/rules.md 2.2).

    int32 scalars unless said. ``[3]`` is by supplier in the order of ``SUPPLIERS``; ``[slots]`` is by
    week of dispatch for ships and by week of signing for contracts, see ``logistics``; -1 stands for "not shown".

    Attributes:
        week: weeks committed so far, 0..horizon.
        horizon: weeks in an episode.
        stock: units on hand.
        on_order: units afloat.
        arrived: units that landed from ships last week.
        served: units sold last week.
        costs: float ``[13]``, last week's costs in $.
        ships: afloat, with displayed arrival weeks.
        contracts: on the books, in the order of their slots.
        contract_open: bool ``[slots]``, which of them are open (dead).
        contract_price: float ``[slots]``, displayed $/unit.
        contract_otif_floor: ``[slots]``, displayed %.
        contract_break_fee: float ``[slots]``, displayed $.
        supplier_alive: bool ``[3]``, False for a supplier shown as defunct.
        live: bool ``[3]``, which suppliers have a live contract now.
        supplier_band: ``[3]``, scorecard band, index into ``supplier.BANDS``.
        supplier_otif: ``[3]``, %.
        supplier_lead: ``[3]``, days.
        supplier_onboard: ``[3]``, weeks.
        supplier_delta: float ``[3]``, $/unit on top of freight.
        counts: ``[3]``, transits at Suez, Bab-el-Mandeb and the Cape.
        canal_band: what the counts and the bulletin tell, index into ``canal.BANDS``.
        pos_units: last week's demand, served or not.
        demand_forecast: units.
        freight_index: 100 at the normal rate.
        freight_outlook: the same scale.
        berth_wait: days.
        wait_outlook: days.
        aql_result: index into ``quality.AQL_RESULTS``.
        lead_slip: of spot, in tenths of a day.
        fill: spot's fill in 1/100 after a week that ordered from spot.
        lock_rate: locked multiplier in 1/10,000.
        lock_weeks: commits that the lock still covers, 0 without a lock.
        briefing: regime of the canal that a briefing bought last week revealed, index into ``canal.BRIEFINGS``.
        audit: true band of spot that an audit bought last week revealed, index into ``supplier.BANDS``.
    """

    week: Array
    horizon: Array
    stock: Array
    on_order: Array
    arrived: Array
    served: Array
    costs: Array
    ships: Ships
    contracts: Contracts
    contract_open: Array
    contract_price: Array
    contract_otif_floor: Array
    contract_break_fee: Array
    supplier_alive: Array
    live: Array
    supplier_band: Array
    supplier_otif: Array
    supplier_lead: Array
    supplier_onboard: Array
    supplier_delta: Array
    counts: Array
    canal_band: Array
    pos_units: Array
    demand_forecast: Array
    freight_index: Array
    freight_outlook: Array
    berth_wait: Array
    wait_outlook: Array
    aql_result: Array
    lead_slip: Array
    fill: Array
    lock_rate: Array
    lock_weeks: Array
    briefing: Array
    audit: Array

    @property
    def inventory_position(self) -> Array:
        """Units on hand and on order."""
        return self.stock + self.on_order


def observe_row(params: WorldParams, state: State, row: Row) -> Observation:
    """The observation of the books together with the row of their week."""
    params = params.arrays()
    dtype = params.costs.holding.dtype
    spot = jnp.asarray(supplier.TRUE_BAND)[row.supplier]
    spot_gone = jnp.asarray(supplier.DEFUNCT)[row.supplier]
    band = jnp.asarray(canal.BAND)[row.canal]
    contracts, ships, desk = state.contracts, state.ships, params.desk
    locked = state.lock_weeks > 0

    def listed(ours: Array, spots: Array) -> Array:
        return jnp.stack([ours[0], spots, ours[1]]).astype(jnp.int32)

    return Observation(
        week=state.week,
        horizon=jnp.int32(params.horizon),
        stock=state.stock,
        on_order=state.on_order,
        arrived=state.arrived,
        served=state.served,
        costs=state.costs,
        ships=ships,
        contracts=contracts,
        contract_open=contracts.open(state.week, spot_gone),
        contract_price=desk.unit_price * desk.price_factor[contracts.terms],
        contract_otif_floor=desk.otif_floor[contracts.terms],
        contract_break_fee=desk.break_fee[contracts.terms],
        supplier_alive=jnp.stack([jnp.array(True), ~spot_gone, jnp.array(True)]),
        live=logistics.live_suppliers(state.covered_until, state.week, spot_gone),
        supplier_band=listed(np.zeros(2, np.int32), jnp.asarray(supplier.SCORECARD_BAND)[spot]),
        supplier_otif=listed(desk.listed_otif, params.supplier.scorecard_otif[spot]),
        supplier_lead=listed(desk.listed_lead, params.supplier.scorecard_lead[spot]),
        supplier_onboard=desk.onboard_lead,
        supplier_delta=params.costs.supplier_delta,
        counts=canal.counts(params.canal, row.canal, row.cape_congestion),
        canal_band=band,
        pos_units=row.pos_units,
        demand_forecast=row.demand_forecast,
        freight_index=freight.index(row.freight_multiplier, dtype),
        freight_outlook=freight.index(row.freight_outlook, dtype),
        berth_wait=row.berth_wait,
        wait_outlook=row.wait_outlook,
        aql_result=row.aql_result,
        lead_slip=row.lead_slip,
        fill=state.fill,
        lock_rate=jnp.where(locked, state.lock_rate, 0),
        lock_weeks=state.lock_weeks,
        briefing=state.briefing,
        audit=state.audit,
    )


@jax.jit
def _reset(params: WorldParams) -> State:
    return logistics.initial_state(params)


@jax.jit
def _step(params: WorldParams, state: State, action: Action, tape: Tape) -> tuple[State, WeekResult]:
    last = jnp.int32(params.horizon)
    now, row = tape.week(state.week), tape.week(jnp.minimum(state.week + 1, last))
    return logistics.transition(params, state, to_int32(action), now, row)


@jax.jit
def _observe(params: WorldParams, state: State, tape: Tape) -> Observation:
    return observe_row(params, state, tape.week(state.week))


def reset(tape: Tape, params: WorldParams | None = None) -> State:
    """The books in week 0, before any decision. Pure; jit and vmap at will.

    Every tape starts from the same books; the argument fixes the batch shape under ``jax.vmap``.
    """
    del tape
    return _reset(or_default(params))


def step(state: State, action: Action, tape: Tape, params: WorldParams | None = None) -> tuple[State, WeekResult]:
    """Commits one decision and moves to the next week (docs/rules.md 2.1). Pure; jit and vmap at will.

    Args:
        state: the books at the decision.
        action: int32 scalars, or Python ints.
        tape: the hidden world.
        params: the world's numbers; the paper's if None.

    Returns:
        The books a week later and the week's result. A refused action runs as "order nothing": its order and its
        contract action are dropped, its legal levers stand, and ``result.refusal`` says why. Once the episode is
        over the books stay as they are.
    """
    return _step(or_default(params), state, action, tape)


def observe(state: State, tape: Tape, params: WorldParams | None = None) -> Observation:
    """What the report of the books' week shows, as arrays. Pure; jit and vmap at will."""
    return _observe(or_default(params), state, tape)
