"""Base-stock control, the benchmark's floor (docs/rules.md 3, Floor)."""

import dataclasses
from statistics import NormalDist

import jax.numpy as jnp
import numpy as np

from stocktake_jax.actions import NONE, QUALIFIED, SIGN, SUEZ, Action
from stocktake_jax.env import Observation
from stocktake_jax.params import WorldParams
from stocktake_jax.policies.policy import Carry
from stocktake_jax.randomness import Array


@dataclasses.dataclass(frozen=True)
class BaseStock:
    """Orders up to a fixed inventory position from qualified by Suez; reads no symptom, pulls no lever.

    Attributes:
        order_up_to: inventory position to restore every week, units.
    """

    order_up_to: int

    def init(self, params: WorldParams) -> Carry:
        """No memory."""
        return ()

    def act(self, params: WorldParams, carry: Carry, observation: Observation, key: Array) -> tuple[Action, Carry]:
        """Tops the position up, signing qualified whenever it holds no live contract."""
        missing = np.int32(self.order_up_to) - observation.inventory_position
        qty = jnp.clip(missing, 0, params.desk.most_order.astype(jnp.int32))
        action = Action(
            qty=qty,
            route=SUEZ,
            supplier=QUALIFIED,
            contract_action=jnp.where(observation.live[QUALIFIED], NONE, SIGN),
            contract_supplier=QUALIFIED,
        )
        return action, carry


def order_up_to(mean: float = 20.0, sd: float = 4.0, weeks: float = 4.0, critical_ratio: float = 20 / 21) -> int:
    """The newsvendor order-up-to level: mean L + z sd sqrt(L), rounded.

    Args:
        mean: demand, units/week.
        sd: its standard deviation, units/week.
        weeks: lead time and review period together.
        critical_ratio: share of demand to cover, here 20 / (20 + 1) from stockout and holding cost.

    >>> order_up_to()
    93
    """
    return round(mean * weeks + NormalDist().inv_cdf(critical_ratio) * sd * weeks**0.5)


def floor() -> BaseStock:
    """The floor, skill 0: base-stock at the level of normal demand."""
    return BaseStock(order_up_to())
