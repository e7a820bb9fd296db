"""The belief track: with each order six probabilities and a short plan, so that belief, intention and act can be
compared without reading prose."""

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import stocktake_jax as st
from stocktake_agents.provider import ToolCall, Turn
from stocktake_agents.tools import TOOLS

STANCES = ("build", "hold", "run_down")
_MOST_ORDER = int(st.WorldParams().desk.most_order)
_MOST_POSITION = 10_000

BELIEFS = {
    "type": "object",
    "description": "For each process the probability that it was under stress in the week just reported.",
    "properties": {factor: {"type": "number", "minimum": 0, "maximum": 1} for factor in st.FACTORS},
    "required": list(st.FACTORS),
    "additionalProperties": False,
}
PLAN = {
    "type": "object",
    "description": "What you are about with this order.",
    "properties": {
        "stance": {"type": "string", "enum": list(STANCES), "description": "Build stock, hold it or run it down."},
        "target_position": {
            "type": "integer", "minimum": 0, "maximum": _MOST_POSITION,
            "description": "The inventory position you aim at with this order.",
        },
        "main_concern": {
            "type": "string", "enum": [*st.FACTORS, "none"],
            "description": "The one process that this week's action is about most.",
        },
        "next_qty": {
            "type": "integer", "minimum": 0, "maximum": _MOST_ORDER,
            "description": "What you expect to order next week if nothing surprising happens.",
        },
    },
    "required": ["stance", "target_position", "main_concern", "next_qty"],
    "additionalProperties": False,
}  # fmt: skip


def with_beliefs(tools: Sequence[Mapping[str, Any]] = TOOLS) -> tuple[dict[str, Any], ...]:
    """The tools with beliefs and a plan among the required arguments of place_order."""
    extended = copy.deepcopy([dict(tool) for tool in tools])
    [order] = [tool["parameters"] for tool in extended if tool["name"] == "place_order"]
    order["properties"] |= {"beliefs": BELIEFS, "plan": PLAN}
    order["required"] = [*order["required"], "beliefs", "plan"]
    return tuple(extended)


def with_statements(turn: Turn, tools: Sequence[Mapping[str, Any]], report: Mapping[str, Any]) -> Turn:
    """A turn of an agent that states no beliefs, with what the tools ask for: it knows nothing, and means its order.

    Args:
        turn: its calls.
        tools: the schemas.
        report: the week's, as the agent reads it.
    """
    required = [tool["parameters"]["required"] for tool in tools if tool["name"] == "place_order"]
    if not required or "beliefs" not in required[0]:
        return turn
    calls = (_stated(call, report) if call.name == "place_order" else call for call in turn.calls)
    return replace(turn, calls=tuple(calls))


def _stated(call: ToolCall, report: Mapping[str, Any]) -> ToolCall:
    order = json.loads(call.arguments)
    # What is no quantity is the desk's to refuse, so the plan around it only has to be well-formed.
    qty = order.get("qty")
    qty = min(max(qty, 0), _MOST_ORDER) if type(qty) is int else 0
    position = min(max(report["inventory_position"] + qty, 0), _MOST_POSITION)
    plan = {"stance": "hold", "target_position": position, "main_concern": "none", "next_qty": qty}
    stated = order | {"beliefs": dict.fromkeys(st.FACTORS, 0.5), "plan": plan}
    return replace(call, arguments=json.dumps(stated))
