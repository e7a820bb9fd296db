"""The surrogate: what a candidate costs on a sampled future, under base-stock from the second week on.

docs/rules.md 3, Oracle. When a ship lands, and how often the port holds it, depends on the future alone. So a
dispatch's whole voyage is booked on the day it sails: holding at sea, demurrage, defects and rework. What is left to do
week by week is to order, to let cargo land or join the pile at a blocked port, and to sell. Candidates and futures
stand side by side in the last two axes, ``[..., n, k]``, packed by hand.
"""

from statistics import NormalDist

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from stocktake_jax.actions import CAPE, QUALIFIED, SPOT
from stocktake_jax.env import Observation
from stocktake_jax.oracle.futures import BEYOND, Futures
from stocktake_jax.oracle.menu import Candidates
from stocktake_jax.params import WorldParams
from stocktake_jax.randomness import Array
from stocktake_jax.rounding import rounded_product

Z = NormalDist().inv_cdf(20 / 21)
"""Safety factor of base-stock: the newsvendor's, from stockout and holding cost."""
# A cargo is one number: sound units in the lower 16 bits, those to be lost above.
_SHIFT, _SOUND = np.int32(16), np.int32(0xFFFF)


class Books(struct.PyTreeNode):
    """What the planner knows of its own books at a decision.

    Attributes:
        weeks_left: int32, weeks until the horizon.
        stock: int32, units.
        on_order: int32, units afloat.
        ship_qty: int32 ``[slots]``.
        ship_due: int32 ``[slots]``, entry of the week in which a ship is displayed to arrive: 0 for the next week.
        contracted: bool ``[3]``, suppliers with a live contract.
    """

    weeks_left: Array
    stock: Array
    on_order: Array
    ship_qty: Array
    ship_due: Array
    contracted: Array


def books(observation: Observation) -> Books:
    """The books that an observation shows."""
    return Books(
        weeks_left=observation.horizon - observation.week,
        stock=observation.stock,
        on_order=observation.on_order,
        ship_qty=observation.ships.qty,
        ship_due=jnp.maximum(observation.ships.eta - observation.week - 1, 0),
        contracted=observation.live,
    )


class Pipeline(struct.PyTreeNode):
    """What the ships now afloat will bring on each future, without an inspection and with one (``[2]``).

    Attributes:
        arrivals: int32 ``[2, weeks, k]``, cargo landing by week, packed as sound units and lost ones.
        cost: float ``[2, k]``, $, of holding them at sea, demurrage and rework.
    """

    arrivals: Array
    cost: Array


def pipeline(params: WorldParams, known: Books, futures: Futures) -> Pipeline:
    """Books the voyages of the ships now afloat."""
    dtype = params.costs.holding.dtype
    weeks, count = futures.demand.shape
    factors = jnp.stack([jnp.ones((), dtype), params.desk.inspection_factor.astype(dtype)])[:, None]
    blank = Pipeline(arrivals=jnp.zeros((2, weeks, count), jnp.int32), cost=jnp.zeros((2, count), dtype))
    entries = jnp.arange(weeks, dtype=jnp.int32)[:, None]

    def book(slot: Array, booked: Pipeline) -> Pipeline:
        qty, due = known.ship_qty[slot], known.ship_due[slot]
        lands, held, rate = (column[due] for column in (futures.due.week, futures.due.held, futures.due.defect_rate))
        # An inspection works on what lands in the coming week.
        lost = rounded_product(qty, jnp.where((lands == 0)[None], rate[None] * factors, rate[None]))
        sound = qty - lost
        cargo = sound + (lost << _SHIFT)
        weeks_at_sea = jnp.minimum(lands, known.weeks_left)
        cost = params.costs.in_transit * (qty * weeks_at_sea).astype(dtype)
        cost += params.costs.demurrage * (qty * held).astype(dtype)
        return Pipeline(
            arrivals=booked.arrivals + jnp.where((lands[None] == entries)[None], cargo[:, None], 0),
            cost=booked.cost + cost[None] + params.costs.rework * lost.astype(dtype),
        )

    # Slots without a ship are passed over: their ship is looked up, not looped over.
    order = jnp.argsort(known.ship_qty == 0, stable=True).astype(jnp.int32)
    ships = (known.ship_qty > 0).sum(dtype=jnp.int32)
    return jax.lax.fori_loop(0, ships, lambda i, booked: book(order[i], booked), blank)


def rollout_costs(
    params: WorldParams, known: Books, afloat: Pipeline, candidates: Candidates, futures: Futures
) -> Array:
    """The cost ($) of every candidate on every future until the horizon: float ``[n, k]``."""
    costs = params.costs
    dtype = costs.holding.dtype
    each = jax.tree.map(lambda leaf: leaf[:, None], candidates)
    by_cape = each.route == CAPE

    contracted = [jnp.broadcast_to(known.contracted[s], by_cape.shape) for s in range(len(known.contracted))]
    contracted[QUALIFIED] |= each.sign
    later_supplier = jnp.where(contracted[QUALIFIED], QUALIFIED, SPOT)
    several = sum(held.astype(jnp.int32) for held in contracted) >= 2
    weekly = jnp.where(several, costs.dual_source, 0)
    fees = each.air.astype(dtype) * costs.air + jnp.where(each.inspect, costs.inspect, 0)
    base_rate = jnp.where(by_cape, costs.base_rate[1], costs.base_rate[0])
    leads = params.voyage.lead.astype(jnp.int32)

    def of_route(t: Array, field: str) -> Array:
        suez, cape = (getattr(route, field)[t][None] for route in futures.by_route)
        return jnp.where(by_cape, cape, suez)

    def landing(t: Array, cargo: Array) -> Array:
        """Cargo due in week t: by Suez from one lead time ago, or from a week before that if the canal was shut."""
        now, before = t - leads[0], t - leads[0] - 1
        in_time = jnp.where(futures.canal_blocked[jnp.maximum(now, 0)][None], 0, cargo[now % BEYOND])
        late = jnp.where(futures.canal_blocked[jnp.maximum(before, 0)][None], cargo[before % BEYOND], 0)
        return jnp.where(by_cape, cargo[(t - leads[1]) % BEYOND], in_time + late)

    def week(t: Array, loop: tuple, qty: Array, supplier: Array) -> tuple:
        stock, position, pile, total, cargo, due = loop
        from_spot = supplier == SPOT
        shipped = jnp.where(from_spot, rounded_product(qty, futures.fill[t][None]), qty)
        lost = rounded_product(shipped, of_route(t, "defect_rate"))
        rate = jnp.where(t < each.lock_weeks, futures.multiplier[0][None], futures.multiplier[t][None])
        delta = jnp.where(supplier == QUALIFIED, costs.supplier_delta[0], costs.supplier_delta[2])
        delta = jnp.where(from_spot, costs.supplier_delta[1], delta)
        unit_cost = base_rate * rate + delta + of_route(t, "cost")
        short = jnp.where(futures.tense[t][None], qty - shipped, 0)

        # What is due next week is looked up once this week's cargo is stored: looked up the other way round, XLA
        # copies all cargo to keep what is still to be read.
        cargo = cargo.at[t % BEYOND].set(shipped - lost + (lost << _SHIFT))
        landed = pile + due
        shut = futures.port_blocked[t][None]
        pile = jnp.where(shut, landed, 0)
        landed = jnp.where(shut, 0, landed) + jnp.where(each.inspect, afloat.arrivals[1, t], afloat.arrivals[0, t])
        stock = stock + (landed & _SOUND)
        sold = jnp.minimum(stock, futures.demand[t][None])
        stock = stock - sold
        unmet = futures.demand[t][None] - sold

        total = total + shipped.astype(dtype) * unit_cost + costs.rework * lost.astype(dtype)
        total = total + costs.couple * short.astype(dtype) + costs.holding * stock.astype(dtype)
        total = total + costs.stockout * unmet.astype(dtype)
        return stock, position + shipped - (landed >> _SHIFT) - sold, pile, total, cargo, landing(t + 1, cargo)

    def later_week(t: Array, loop: tuple) -> tuple:
        qty = jnp.clip(of_route(t, "level") - loop[1], 0, params.desk.most_order)
        return week(t, loop, qty, later_supplier)

    everywhere = (len(candidates.qty), futures.demand.shape[1])
    start = jnp.where(each.inspect, afloat.cost[1], afloat.cost[0]) + fees + weekly * known.weeks_left.astype(dtype)
    stock = jnp.broadcast_to(known.stock + each.air, everywhere)
    none = jnp.zeros(everywhere, jnp.int32)
    loop = (stock, stock + known.on_order, none, start, jnp.zeros((BEYOND, *everywhere), jnp.int32), none)
    loop = week(jnp.int32(0), loop, jnp.broadcast_to(each.qty, everywhere), each.supplier)
    return jax.lax.fori_loop(1, known.weeks_left, later_week, loop)[3]
