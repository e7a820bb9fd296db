"""The fair references: Bayes filters over the agent's own reports, and rollouts over what they believe."""

from stocktake_jax.oracle.filters import Beliefs, filter_tape, prior, update

__all__ = ["Beliefs", "filter_tape", "prior", "update"]
