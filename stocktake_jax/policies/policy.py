"""The protocol of a policy."""

from typing import Any, Protocol

from stocktake_jax.actions import Action
from stocktake_jax.env import Observation
from stocktake_jax.params import WorldParams
from stocktake_jax.randomness import Array

Carry = Any
"""What a policy remembers from week to week: any pytree, ``()`` for nothing."""


class Policy(Protocol):
    """Decides a week's action from what the report shows. Frozen and hashable, so that it can be a static argument."""

    def init(self, params: WorldParams) -> Carry:
        """The memory that an episode starts with."""
        ...

    def act(self, params: WorldParams, carry: Carry, observation: Observation, key: Array) -> tuple[Action, Carry]:
        """The action of one week and the memory after it.

        Args:
            params: the world as the policy knows it.
            carry: its memory.
            observation: of one episode, no leading axes.
            key: a typed random key of its own, another one every week.
        """
        ...
