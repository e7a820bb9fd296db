"""The fair references: Bayes filters over the agent's own reports, and rollouts over what they believe."""

from stocktake_jax.oracle.filters import Beliefs, Memory, filter_tape, prior, reveal, update
from stocktake_jax.oracle.references import published_reference, reference
from stocktake_jax.oracle.rollout import Decision, PaperOracle, policy

__all__ = [
    "Beliefs",
    "Decision",
    "Memory",
    "PaperOracle",
    "filter_tape",
    "policy",
    "prior",
    "published_reference",
    "reference",
    "reveal",
    "update",
]
