"""Wires: the three dialects in which models are spoken to, and the model strings that choose one."""

from stocktake_agents.wires.strings import PREFIXES, api_agent

__all__ = ["PREFIXES", "api_agent"]
