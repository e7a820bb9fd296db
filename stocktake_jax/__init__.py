"""STOCKTAKE-JAX: a replenishment desk in a hidden world, as batched pure functions.

>>> import jax
>>> import stocktake_jax as st
>>> tapes = st.stack([st.published_tape(seed.seed) for seed in st.published_seeds()])
>>> result = st.evaluate(st.policies.floor(), tapes, jax.random.key(0))
>>> result.costs.shape
(50, 26, 13)
"""

from stocktake_jax import metrics, oracle, policies
from stocktake_jax.actions import (
    CONTRACT_ACTIONS,
    ROUTES,
    SUPPLIERS,
    TERMS,
    Action,
    ActionMask,
    Refusal,
    action_mask,
)
from stocktake_jax.env import Observation, observe, reset, step
from stocktake_jax.episode import Episode, Refused
from stocktake_jax.factors import FACTORS
from stocktake_jax.logistics import COSTS, State, WeekResult
from stocktake_jax.params import WorldParams, world_hash
from stocktake_jax.published import PublishedSeed, published_seeds, published_tape
from stocktake_jax.reporting import report
from stocktake_jax.sweep import EpisodeResult, evaluate
from stocktake_jax.tape import (
    PROFILES,
    Row,
    StressEpisode,
    Tape,
    TapeFeatures,
    mint,
    mint_states,
    profile,
    stack,
    state_features,
    stress_episodes,
    stress_mask,
    tape_digest,
    tape_features,
)

__version__ = "0.1.0"

__all__ = [
    "CONTRACT_ACTIONS",
    "COSTS",
    "FACTORS",
    "PROFILES",
    "ROUTES",
    "SUPPLIERS",
    "TERMS",
    "Action",
    "ActionMask",
    "Episode",
    "EpisodeResult",
    "Observation",
    "PublishedSeed",
    "Refusal",
    "Refused",
    "Row",
    "State",
    "StressEpisode",
    "Tape",
    "TapeFeatures",
    "WeekResult",
    "WorldParams",
    "action_mask",
    "evaluate",
    "metrics",
    "mint",
    "mint_states",
    "observe",
    "oracle",
    "policies",
    "profile",
    "published_seeds",
    "published_tape",
    "report",
    "reset",
    "stack",
    "state_features",
    "step",
    "stress_episodes",
    "stress_mask",
    "tape_digest",
    "tape_features",
    "world_hash",
]
