"""Random legal actions, for tests and benchmarks."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from stocktake_jax.actions import BACKUP, CONTRACT_ACTIONS, ROUTES, SUPPLIERS, TERMS, Action, action_mask
from stocktake_jax.env import Observation
from stocktake_jax.params import WorldParams
from stocktake_jax.policies.policy import Carry
from stocktake_jax.randomness import Array, uniform

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
        u = uniform(jax.random.bits(key, (12,), jnp.uint32))

        def pick(i: int, count: Array | int) -> Array:
            return (u[i] * jnp.asarray(count, jnp.float32)).astype(jnp.int32)

        def pulled(i: int) -> Array:
            return (u[i] < _LEVER).astype(jnp.int32)

        mask = action_mask(observation)
        contract_action = jnp.where(u[0] < _LEVER, 1 + pick(1, len(CONTRACT_ACTIONS) - 1), 0)
        contract_supplier = pick(2, len(SUPPLIERS))
        signs = (contract_action > 0) & (contract_action < len(CONTRACT_ACTIONS) - 1)
        sources = mask.supplier[jnp.where(signs, 1 + contract_supplier, 0)]
        # The n-th legal supplier, n uniform over their number.
        nth = pick(3, sources.sum(dtype=jnp.int32))
        supplier = jnp.argmax(jnp.cumsum(sources, dtype=jnp.int32) > nth, axis=-1).astype(jnp.int32)
        action = Action(
            qty=jnp.where(sources.any(), pick(4, params.desk.most_order + 1), 0),
            route=pick(5, len(ROUTES)),
            supplier=jnp.where(sources.any(), supplier, BACKUP),
            contract_action=contract_action,
            contract_supplier=contract_supplier,
            contract_terms=pick(6, len(TERMS)),
            lock_weeks=pulled(7) * (1 + pick(7, _MOST_LOCK / _LEVER.item())),
            air=pulled(8) * (1 + pick(8, params.desk.most_air.astype(jnp.float32) / _LEVER)),
            inspect=pulled(9),
            briefing=pulled(10),
            audit=pulled(11),
        )
        return action, carry


def random_legal() -> RandomLegal:
    """A policy of random legal actions."""
    return RandomLegal()
