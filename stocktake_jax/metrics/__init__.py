"""Metrics (docs/rules.md 5)."""

from stocktake_jax.metrics.beliefs import DEFINITIONS, BeliefMetrics, belief_metrics, pooled
from stocktake_jax.metrics.intervals import (
    Interval,
    detectable_difference,
    holm,
    mean_interval,
    ratio_interval,
    sign_flip_test,
)
from stocktake_jax.metrics.skill_score import skill

__all__ = [
    "DEFINITIONS",
    "BeliefMetrics",
    "Interval",
    "belief_metrics",
    "detectable_difference",
    "holm",
    "mean_interval",
    "pooled",
    "ratio_interval",
    "sign_flip_test",
    "skill",
]
