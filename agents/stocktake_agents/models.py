"""Every agent that a command line can name."""

import stocktake_jax as st
from stocktake_agents.policy import policy_agent
from stocktake_agents.provider import Agent
from stocktake_agents.simple import AGENTS

MODELS: dict[str, Agent] = AGENTS | {"oracle": policy_agent("oracle", st.oracle.policy(), 0)}
