"""Metrics (docs/rules.md 5)."""

from stocktake_jax.metrics.beliefs import DEFINITIONS, BeliefMetrics, belief_metrics, pooled
from stocktake_jax.metrics.skill_score import skill

__all__ = ["DEFINITIONS", "BeliefMetrics", "belief_metrics", "pooled", "skill"]
