"""The oracle's candidate menu (docs/rules.md 3, Oracle): every combination in canonical order, with a mask."""

import jax.numpy as jnp
import numpy as np
from flax import struct

from stocktake_jax.actions import NONE, QUALIFIED, SIGN, SUPPLIERS, Action
from stocktake_jax.env import Observation
from stocktake_jax.factors import demand, freight, port, quality
from stocktake_jax.oracle.filters import Beliefs
from stocktake_jax.params import WorldParams
from stocktake_jax.randomness import Array

# Choices of quantity, route, source, lock, air and inspection. The last source is "sign qualified, and use it".
_CHOICES = (3, 2, len(SUPPLIERS) + 1, 2, 2, 2)
SLOTS = int(np.prod(_CHOICES))
_QUANTITY, _ROUTE, _SOURCE, _LOCK, _AIR, _INSPECT = np.indices(_CHOICES).reshape(len(_CHOICES), SLOTS).astype(np.int32)
_SIGNING = len(SUPPLIERS)

_RISK_OF_FREIGHT, _RISK_OF_PORT, _RISK_OF_QUALITY = 0.3, 0.3, 0.5
_COVER = (4, 6)  # weeks of expected demand
_LOCK_WEEKS = 4
_AIR_UNITS = 20


class Candidates(struct.PyTreeNode):
    """Candidate decisions; int32 ``[n]`` unless said.

    Attributes:
        qty: units.
        route: index into ``ROUTES``.
        supplier: index into ``SUPPLIERS``.
        sign: bool, whether qualified is signed first.
        lock_weeks: 0 for no lock.
        air: units.
        inspect: bool.
        live: bool, whether the candidate stands on the menu.
    """

    qty: Array
    route: Array
    supplier: Array
    sign: Array
    lock_weeks: Array
    air: Array
    inspect: Array
    live: Array


def gates(beliefs: Beliefs, observation: Observation) -> tuple[Array, Array, Array]:
    """Whether the menu offers a lock, air freight and an inspection (bool scalars)."""
    spiking = freight.LAYOUT.mask("tightening", "spike")
    out = quality.LAYOUT.mask("out_of_control")
    due = ((observation.ships.qty > 0) & (observation.ships.eta == observation.week + 1)).any()
    return (
        _mass(beliefs.freight, spiking) > _RISK_OF_FREIGHT,
        _mass(beliefs.port, port.BLOCKED) > _RISK_OF_PORT,
        (_mass(beliefs.quality, out) > _RISK_OF_QUALITY) & due,
    )


def _mass(belief: Array, mask: np.ndarray) -> Array:
    return jnp.where(mask, belief, 0).sum()


def quantities(params: WorldParams, beliefs: Beliefs, observation: Observation) -> Array:
    """The quantities to consider, int32 ``[3]``: none, and up to four and six weeks of expected demand."""
    mean = params.demand.mean[demand.BAND].astype(beliefs.demand.dtype)
    expected = (beliefs.demand * mean).sum()
    position = observation.inventory_position
    most = params.desk.most_order.astype(jnp.int32)
    cover = [jnp.clip(jnp.round(expected * weeks).astype(jnp.int32) - position, 0, most) for weeks in _COVER]
    return jnp.stack([jnp.int32(0), *cover])


def menu(params: WorldParams, beliefs: Beliefs, observation: Observation) -> Candidates:
    """All candidates of a decision in canonical order, ``[192]``, those not on offer masked.

    At quantity 0 route and supplier mean nothing, yet the candidate stands once for each live supplier, as in the
    published menu.
    """
    amounts = quantities(params, beliefs, observation)
    distinct = jnp.stack([jnp.array(True), amounts[1] > amounts[0], amounts[2] > amounts[1]])
    lock, air, inspect = gates(beliefs, observation)
    available = jnp.concatenate([observation.live, ~observation.live[QUALIFIED][None]])

    qty = amounts[_QUANTITY]
    on_offer = distinct[_QUANTITY] & available[_SOURCE]
    on_offer &= (qty > 0) | ((_ROUTE == 0) & (_SOURCE != _SIGNING))
    on_offer &= (lock | (_LOCK == 0)) & (air | (_AIR == 0)) & (inspect | (_INSPECT == 0))
    signing = jnp.asarray(_SOURCE == _SIGNING)
    return Candidates(
        qty=qty,
        route=jnp.asarray(_ROUTE),
        supplier=jnp.where(signing, QUALIFIED, _SOURCE),
        sign=signing,
        lock_weeks=jnp.asarray(_LOCK * np.int32(_LOCK_WEEKS)),
        air=jnp.asarray(_AIR * np.int32(_AIR_UNITS)),
        inspect=jnp.asarray(_INSPECT == 1),
        live=on_offer,
    )


def to_action(candidate: Candidates) -> Action:
    """The ordinary action of one candidate (no leading axis); "order nothing" if it does not stand on the menu."""
    live = candidate.live

    def taken(value: Array) -> Array:
        return jnp.where(live, value.astype(jnp.int32), 0)

    return Action(
        qty=taken(candidate.qty),
        route=taken(candidate.route),
        supplier=taken(candidate.supplier),
        contract_action=jnp.where(live & candidate.sign, SIGN, NONE),
        contract_supplier=QUALIFIED,
        contract_terms=jnp.int32(0),
        lock_weeks=taken(candidate.lock_weeks),
        air=taken(candidate.air),
        inspect=taken(candidate.inspect),
        briefing=jnp.int32(0),
        audit=jnp.int32(0),
    )
