"""Policies: frozen, hashable objects with ``init(params) -> carry`` and ``act(params, carry, observation, key)``.

A policy sees an observation and nothing else of the world. Whatever keeps this protocol can be swept, scored, and
sat at an agent's desk.
"""

from stocktake_jax.policies.base_stock import BaseStock, floor
from stocktake_jax.policies.policy import Carry, Policy
from stocktake_jax.policies.random_legal import RandomLegal, random_legal

__all__ = ["BaseStock", "Carry", "Policy", "RandomLegal", "floor", "random_legal"]
