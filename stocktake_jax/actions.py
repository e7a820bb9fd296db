"""Actions, what makes one illegal, and which are legal now (docs/rules.md 2)."""

import enum
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from stocktake_jax.params import WorldParams
from stocktake_jax.randomness import Array

ROUTES = ("suez", "cape")
SUPPLIERS = ("qualified", "spot", "backup")
CONTRACT_ACTIONS = ("none", "sign", "switch", "renew", "lapse")
TERMS = ("none", "short", "long", "strict", "lenient")

NONE, SIGN, SWITCH, RENEW, LAPSE = map(np.int32, range(len(CONTRACT_ACTIONS)))
SUEZ, CAPE = map(np.int32, range(len(ROUTES)))
QUALIFIED, SPOT, BACKUP = map(np.int32, range(len(SUPPLIERS)))


class Action(struct.PyTreeNode):
    """One week's decision: int32 scalars, indices into the module's tuples, 0 for a lever that is not pulled.

    Attributes:
        qty: units ordered, 0 to 100.
        route: index into ``ROUTES``; ignored at quantity 0.
        supplier: index into ``SUPPLIERS``; ignored at quantity 0.
        contract_action: index into ``CONTRACT_ACTIONS``.
        contract_supplier: index into ``SUPPLIERS``; ignored without a contract action.
        contract_terms: index into ``TERMS``; ignored without a contract action.
        lock_weeks: weeks to lock freight for.
        air: units sent for by air; what exceeds the weekly capacity is left out.
        inspect, briefing, audit: 1 to buy, 0 not to.
    """

    qty: Array = 0
    route: Array = 0
    supplier: Array = 0
    contract_action: Array = 0
    contract_supplier: Array = 0
    contract_terms: Array = 0
    lock_weeks: Array = 0
    air: Array = 0
    inspect: Array = 0
    briefing: Array = 0
    audit: Array = 0

    def __post_init__(self) -> None:
        # A Python int and an int32 must not compile twice.
        for name, value in vars(self).items():
            if isinstance(value, int | np.integer | np.bool_):
                object.__setattr__(self, name, np.int32(value))


class Refusal(enum.IntEnum):
    """Why an action was refused; 0 if it was not."""

    ACCEPTED = 0
    OVER = 1
    LOCK_WEEKS = 2
    AIR = 3
    CONTRACT_ACTION = 4
    CONTRACT_SUPPLIER = 5
    CONTRACT_TERMS = 6
    QTY = 7
    ROUTE = 8
    SUPPLIER = 9
    NO_CONTRACT = 10
    # What arrays cannot hold, and only the desk can be given.
    RATIONALE = 11
    CONTRACT = 12


def _one_of(names: tuple[str, ...]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"


SENTENCES = {
    Refusal.ACCEPTED: "Accepted.",
    Refusal.OVER: "The episode is over after week {horizon}; no call is taken any more.",
    Refusal.LOCK_WEEKS: "weeks is {value}; a freight lock needs a whole number of weeks, from 1 to {most_int}.",
    Refusal.AIR: "qty is {value}; air freight needs a whole number of units, at least 1 (above {most_air} it is cut).",
    Refusal.CONTRACT_ACTION: f"contract action is {{value}}; it must be {_one_of(CONTRACT_ACTIONS)}.",
    Refusal.CONTRACT_SUPPLIER: f"contract supplier is {{value}}; it must be {_one_of(SUPPLIERS)}.",
    Refusal.CONTRACT_TERMS: f"contract terms are {{value}}; they must be {_one_of(TERMS)}.",
    Refusal.QTY: "qty is {value}; an order needs a whole number of units from 0 to {most_order}.",
    Refusal.ROUTE: f"route is {{value}}; an order of more than 0 units needs {_one_of(ROUTES)}.",
    Refusal.SUPPLIER: f"supplier is {{value}}; an order of more than 0 units needs {_one_of(SUPPLIERS)}.",
    Refusal.NO_CONTRACT: "There is no live contract with {value}; order from {live}, or sign one in the same call.",
    Refusal.RATIONALE: "rationale is {value}; it must say in words what you believe this week and why you act so.",
    Refusal.CONTRACT: "contract is {value}; it must be an object with action, supplier and, if any, terms.",
}
"""What was wrong and what would be right, by refusal; the desk fills in the slots."""


def check(params: WorldParams, week: Array, action: Array, live: Array) -> Array:
    """The ``Refusal`` (int32) of an action, the first that applies in the order of the codes.

    Args:
        params: the world.
        week: the decision week.
        action: int32 scalars.
        live: bool ``[3]``, whether each supplier has a live contract once the action's contract part is done.
    """

    def outside(value: Array, names: tuple[str, ...]) -> Array:
        return (value < 0) | (value >= len(names))

    contracting = action.contract_action != NONE
    ordering = action.qty != 0
    source = jnp.clip(action.supplier, 0, len(SUPPLIERS) - 1)
    faults = {
        Refusal.OVER: week >= params.horizon,
        Refusal.LOCK_WEEKS: action.lock_weeks < 0,
        Refusal.AIR: action.air < 0,
        Refusal.CONTRACT_ACTION: outside(action.contract_action, CONTRACT_ACTIONS),
        Refusal.CONTRACT_SUPPLIER: contracting & outside(action.contract_supplier, SUPPLIERS),
        Refusal.CONTRACT_TERMS: contracting & outside(action.contract_terms, TERMS),
        Refusal.QTY: (action.qty < 0) | (action.qty > params.desk.most_order),
        Refusal.ROUTE: ordering & outside(action.route, ROUTES),
        Refusal.SUPPLIER: ordering & outside(action.supplier, SUPPLIERS),
        Refusal.NO_CONTRACT: ordering & ~live[source],
    }
    code = jnp.int32(Refusal.ACCEPTED)
    for refusal, fault in reversed(faults.items()):
        code = jnp.where(fault, jnp.int32(refusal), code)
    return code


class ActionMask(struct.PyTreeNode):
    """What is legal in a week (bool). While it is open so are all quantities up to 100, routes, levers and terms.

    Attributes:
        open: scalar, False once the episode is over; then nothing is legal.
        supplier: ``[3]``, which suppliers can be ordered from.
    """

    open: Array
    supplier: Array


def action_mask(observation: Any, contract_action: Array = NONE, contract_supplier: Array = QUALIFIED) -> ActionMask:
    """The legal actions of a week, read off its observation.

    Args:
        observation: of one episode.
        contract_action, contract_supplier: a contract action that is to be taken in the same week, since a supplier
            signed now can be ordered from now; none by default.
    """
    open_ = observation.week < observation.horizon
    signs = (contract_action != NONE) & (contract_action != LAPSE)
    signed = signs & (jnp.arange(len(SUPPLIERS), dtype=jnp.int32) == contract_supplier)
    return ActionMask(open=open_, supplier=(observation.live | (signed & observation.supplier_alive)) & open_)


def to_int32(action: Action) -> Action:
    """The same action with int32 leaves."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf).astype(jnp.int32), action)
