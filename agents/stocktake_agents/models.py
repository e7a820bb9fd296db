"""Every agent that a command line can name."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import stocktake_jax as st
from stocktake_agents.custom import load_act
from stocktake_agents.errors import UsageError
from stocktake_agents.policy import policy_agent
from stocktake_agents.prices import Price
from stocktake_agents.provider import Agent
from stocktake_agents.recorded import recorded_agent
from stocktake_agents.simple import AGENTS
from stocktake_agents.wires import PREFIXES, api_agent

MODELS: dict[str, Agent] = AGENTS | {"oracle": policy_agent("oracle", st.oracle.policy(), 0)}


def make_agent(model: str, prices: Mapping[str, Price], **options: Any) -> Agent:
    """The agent that a model string names.

    Args:
        model: a key of ``MODELS``; ``anthropic/NAME``, ``openai/NAME``, ``openrouter/VENDOR/NAME`` or ``local/NAME``;
            ``FILE.py:NAME``, a user's own; or ``recorded/FOLDER``, the answers of an earlier run.
        prices: by model string.
        **options: of ``api_agent``; those that are None were not asked for.

    Raises:
        UsageError: there is no such agent, or it has no such option.
    """
    if model.startswith(PREFIXES):
        return api_agent(model, prices=prices, **options)
    asked = [f"--{name.replace('_', '-')}" for name, value in options.items() if value is not None]
    if asked:
        raise UsageError(f"{asked[0]} is for models behind an API, and {model} runs in this process: leave it out.")
    if model in MODELS:
        return MODELS[model]
    if model.startswith("recorded/"):
        return recorded_agent(Path(model.removeprefix("recorded/")))
    path, colon, name = model.rpartition(":")
    if colon and path.endswith(".py"):
        return load_act(Path(path), name)
    raise UsageError(
        f"there is no model {model!r}: use one of {', '.join(MODELS)}; {', '.join(f'{p}NAME' for p in PREFIXES)}; "
        "FILE.py:NAME; or recorded/FOLDER."
    )
