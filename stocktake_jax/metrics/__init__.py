"""Metrics (docs/rules.md 5)."""

from stocktake_jax.metrics.skill_score import skill

__all__ = ["skill"]
