"""Random legal actions, for tests and benchmarks."""

import dataclasses

import jax.numpy as jnp
import numpy as np

from stocktake_jax.actions import CONTRACT_ACTIONS, ROUTES, SUPPLIERS, TERMS, Action, action_mask
from stocktake_jax.env import Observation
from stocktake_jax.params import WorldParams
from stocktake_jax.policies.policy import Carry
from stocktake_jax.randomness import Array, bits, uniform

# How often a lever is pulled or a contract touched.
_LEVER = np.float32(0.15)
_MOST_LOCK = 8


@dataclasses.dataclass(frozen=True)
class RandomLegal:
    """Draws every part of an action at random among what is legal."""

    def init(self, params: WorldParams) -> Carry:
        """No memory."""
        return ()

    def act(self, params: WorldParams, carry: Carry, observation: Observation, key: Array) -> tuple[Action, Carry]:
        """A legal action; in a week in which nobody can be ordered from, one of quantity 0."""
        u = [uniform(word) for word in bits(key, 12)]

        def pick(share: Array, count: Array | int) -> Array:
            return (share * jnp.asarray(count, jnp.float32)).astype(jnp.int32)

        def lever(share: Array, most: Array | int) -> Array:
            return jnp.where(share < _LEVER, 1 + pick(share / _LEVER, most), 0)

        contract_action = lever(u[0], len(CONTRACT_ACTIONS) - 1)
        contract_supplier = pick(u[1], len(SUPPLIERS))
        mask = action_mask(observation, contract_action, contract_supplier)
        # The n-th legal supplier, n uniform over their number.
        nth = pick(u[3], mask.supplier.sum(dtype=jnp.int32))
        supplier, seen = jnp.int32(0), jnp.int32(0)
        for i in range(len(SUPPLIERS)):
            supplier = jnp.where(mask.supplier[i] & (seen == nth), i, supplier)
            seen += mask.supplier[i].astype(jnp.int32)
        action = Action(
            qty=jnp.where(seen > 0, pick(u[4], params.desk.most_order + 1), 0),
            route=pick(u[5], len(ROUTES)),
            supplier=supplier,
            contract_action=contract_action,
            contract_supplier=contract_supplier,
            contract_terms=pick(u[6], len(TERMS)),
            lock_weeks=lever(u[7], _MOST_LOCK),
            air=lever(u[8], params.desk.most_air),
            inspect=lever(u[9], 1),
            briefing=lever(u[10], 1),
            audit=lever(u[11], 1),
        )
        return action, carry


def random_legal() -> RandomLegal:
    """A policy of random legal actions."""
    return RandomLegal()
