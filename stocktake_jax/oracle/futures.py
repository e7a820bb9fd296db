"""Sampled futures: states of every factor from now to the horizon, and what a rollout needs to know of them.

Uniforms come in as data, so the same sampler serves fresh randomness and the paper's published stream
(docs/rules.md 3, Oracle). Futures stand side by side in the last axis, ``[..., k]``, packed by hand: a week's numbers
are then one contiguous row, and weeks past the horizon are never touched.
"""

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from stocktake_jax.chain import Chain, inverse_cdf
from stocktake_jax.factors import FACTORS, canal, demand, freight, port, quality, supplier
from stocktake_jax.oracle.filters import Beliefs
from stocktake_jax.params import WorldParams
from stocktake_jax.randomness import Array

DRAW_ORDER = ("freight", "port", "quality", "demand", "canal", "supplier")
"""Order of the factors in an array of uniforms: the published stream's."""

BEYOND = 8
"""Weeks past the horizon in which a ship dispatched within it may be due."""


class Landing(struct.PyTreeNode):
    """How a ship that is due in a week lands, ``[weeks + 8, k]``.

    Attributes:
        week: int32, entry of the week in which it lands; the horizon's or later if it never does.
        held: int32, weeks that it is held at the port, within the horizon.
        defect_rate: float, of the week in which it lands; 0 if it never does.
    """

    week: Array
    held: Array
    defect_rate: Array


class Dispatch(struct.PyTreeNode):
    """How a ship that is dispatched in a week by a route fares, and what base-stock orders by it, ``[weeks, k]``.

    Attributes:
        cost: float, $/unit, for holding it at sea and for demurrage, within the horizon.
        defect_rate: float, of the week in which it lands; 0 if it never does.
        level: int32, the order-up-to level under this week's mean demand.
    """

    cost: Array
    defect_rate: Array
    level: Array


class Futures(struct.PyTreeNode):
    """Sampled futures as a rollout sees them; entry t is the week t + 1 after the decision.

    Attributes:
        multiplier: float ``[weeks, k]``, mean freight multiplier.
        demand: int32 ``[weeks, k]``, mean demand in whole units.
        fill: float ``[weeks, k]``, spot's mean fill.
        tense: bool ``[weeks, k]``, whether a shortfall is coupled to the canal.
        canal_blocked: bool ``[weeks, k]``.
        port_blocked: bool ``[weeks, k]``.
        due: what awaits a ship that is due in a week.
        by_route: what awaits a ship that is dispatched in a week, by Suez and by the Cape.
    """

    multiplier: Array
    demand: Array
    fill: Array
    tense: Array
    canal_blocked: Array
    port_blocked: Array
    due: Landing
    by_route: tuple[Dispatch, Dispatch]


def sample_states(params: WorldParams, beliefs: Beliefs, uniforms: Array, weeks_left: Array) -> dict[str, Array]:
    """States of ``k`` futures, int32 ``[weeks, k]`` by factor, the present week left out.

    Args:
        params: the world as the planner knows it.
        beliefs: about the present week.
        uniforms: float ``[6, 1 + weeks, k]``, factors in ``DRAW_ORDER``; the first row picks the present states.
        weeks_left: int32, weeks until the horizon; later entries stay 0.
    """
    chains = [getattr(params, name).chain for name in DRAW_ORDER]
    dtype = uniforms.dtype

    def pick(name: str, u: Array) -> Array:
        cumulative = jnp.cumsum(getattr(beliefs, name).astype(dtype))
        return jax.vmap(lambda u: inverse_cdf(cumulative, u))(u)

    present = tuple(pick(name, uniforms[i, 0]) for i, name in enumerate(DRAW_ORDER))
    weeks = uniforms.shape[1] - 1
    blank = tuple(jnp.zeros((weeks, uniforms.shape[2]), jnp.int32) for _ in DRAW_ORDER)

    def week(t: Array, loop: tuple) -> tuple:
        states, paths = loop
        states = tuple(
            _step(chain, state, uniforms[i, t + 1]) for i, (chain, state) in enumerate(zip(chains, states, strict=True))
        )
        return states, tuple(path.at[t].set(state) for path, state in zip(paths, states, strict=True))

    _, paths = jax.lax.fori_loop(0, weeks_left, week, (present, blank))
    sampled = dict(zip(DRAW_ORDER, paths, strict=True))
    return {name: sampled[name] for name in FACTORS}


def _step(chain: Chain, states: Array, u: Array) -> Array:
    """``chain.step`` for states and uniforms ``[k]``, with the table spelled out as comparisons.

    A loop over futures looks a table up one by one, but compares and selects sixteen at a time.
    """
    cumulative, after = chain.cumulative(u.dtype), states
    for state, row in enumerate(chain.layout.successors):
        chosen = jnp.int32(row[-1])
        for place, successor in reversed(list(enumerate(row[:-1]))):
            chosen = jnp.where(u < cumulative[state, place], successor, chosen)
        after = jnp.where(states == state, chosen, after)
    return after


def describe(params: WorldParams, states: dict[str, Array], weeks_left: Array, z: float) -> Futures:
    """What a rollout needs to know of futures.

    Args:
        params: the world as the planner knows it.
        states: int32 ``[weeks, k]`` by factor.
        weeks_left: int32, weeks until the horizon; entries from there on count for nothing.
        z: safety factor of the order-up-to levels.
    """
    weeks, count = states["port"].shape
    dtype = params.costs.holding.dtype
    blocked = jnp.asarray(port.BLOCKED)[states["port"]]
    rate = params.quality.defect_rate[quality.BAND][states["quality"]]
    due = _landings(blocked, rate, weeks_left)

    mean = params.demand.mean[demand.BAND][states["demand"]]
    shut = jnp.asarray(canal.BLOCKED)[states["canal"]]
    entries = jnp.arange(weeks, dtype=jnp.int32)[:, None]
    routes = []
    for route, waits in enumerate((shut, jnp.zeros_like(shut))):
        lead = params.voyage.lead[route].astype(jnp.int32)

        def fare(column: Array, lead: Array = lead, waits: Array = waits) -> Array:
            ahead = jax.lax.dynamic_slice(column, (lead, jnp.int32(0)), (weeks, count))
            later = jax.lax.dynamic_slice(column, (lead + 1, jnp.int32(0)), (weeks, count))
            return jnp.where(waits, later, ahead)

        at_sea = jnp.minimum(fare(due.week), weeks_left) - entries
        cover = (lead + 1).astype(dtype)
        safety = np.array(z, dtype) * params.demand.sd * jnp.sqrt(cover)
        routes.append(
            Dispatch(
                cost=params.costs.in_transit * at_sea.astype(dtype)
                + params.costs.demurrage * fare(due.held).astype(dtype),
                defect_rate=fare(due.defect_rate),
                level=jnp.round(mean * cover + safety).astype(jnp.int32),
            )
        )
    return Futures(
        multiplier=params.freight.mean[freight.BAND][states["freight"]],
        demand=jnp.round(mean).astype(jnp.int32),
        fill=params.supplier.mean_fill[supplier.REGIME][states["supplier"]],
        tense=jnp.asarray(canal.TENSE)[states["canal"]],
        canal_blocked=shut,
        port_blocked=blocked,
        due=due,
        by_route=(routes[0], routes[1]),
    )


def _landings(blocked: Array, rate: Array, weeks_left: Array) -> Landing:
    """Landings by the week in which a ship is due, from blocked weeks and defect rates ``[weeks, k]``."""
    weeks, count = blocked.shape
    rows = weeks + BEYOND
    beyond = jnp.broadcast_to(jnp.arange(rows, dtype=jnp.int32)[:, None], (rows, count))
    blank = Landing(week=beyond, held=jnp.zeros_like(beyond), defect_rate=jnp.zeros((rows, count), rate.dtype))

    def week(i: Array, landings: Landing) -> Landing:
        t = weeks_left - 1 - i
        shut = blocked[t]
        return Landing(
            week=landings.week.at[t].set(jnp.where(shut, landings.week[t + 1], t)),
            held=landings.held.at[t].set(jnp.where(shut, landings.held[t + 1] + 1, 0)),
            defect_rate=landings.defect_rate.at[t].set(jnp.where(shut, landings.defect_rate[t + 1], rate[t])),
        )

    return jax.lax.fori_loop(0, weeks_left, week, blank)
