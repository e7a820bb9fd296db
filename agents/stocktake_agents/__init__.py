"""The harness that seats agents at the replenishment desk of ``stocktake_jax``, logs what they do and scores it.

An agent is anything that answers a conversation with tool calls (``provider.Provider``): a model behind an API, a
function of the weekly report (``provider.scripted``) or a JAX policy (``policy.policy_agent``). ``runner.run`` plays it
on a set of tapes into a results folder, and ``scoreboard`` reads the scores from there.
"""

from stocktake_agents.errors import LogError, ProviderError, UsageError
from stocktake_agents.loop import Limits
from stocktake_agents.policy import PolicyAgent, policy_agent
from stocktake_agents.progress import Heartbeat
from stocktake_agents.provider import Agent, Provider, ToolCall, Turn
from stocktake_agents.runner import Outcome, Plan, run
from stocktake_agents.scoreboard import load_rows, summaries
from stocktake_agents.scripted import scripted
from stocktake_agents.seeds import EpisodeName, parse_seeds
from stocktake_agents.simple import AGENTS
from stocktake_agents.tools import TOOLS

__all__ = [
    "AGENTS",
    "TOOLS",
    "Agent",
    "Heartbeat",
    "Limits",
    "LogError",
    "Outcome",
    "Plan",
    "PolicyAgent",
    "Provider",
    "ProviderError",
    "EpisodeName",
    "ToolCall",
    "Turn",
    "UsageError",
    "load_rows",
    "parse_seeds",
    "policy_agent",
    "run",
    "scripted",
    "summaries",
]
