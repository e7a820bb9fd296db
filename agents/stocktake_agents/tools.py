"""The six tools an agent has: their schemas, and what happens when one is called.

Whatever a model writes gets an answer: exactly one result for every call, in order. A call that does not fit its
schema, or that the world refuses, changes nothing and is told why.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import stocktake_jax as st
from stocktake_agents.arms.arm import Lens
from stocktake_agents.provider import ToolCall
from stocktake_agents.schema import ArgumentError, check_arguments

_DESK = st.WorldParams().desk
MAX_RATIONALE = 8_000  # characters


def _tool(name: str, description: str, required: Sequence[str] = (), **properties: Mapping[str, Any]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}
    return {"name": name, "description": description, "parameters": parameters}


def _optional(choices: Sequence[str], description: str) -> dict[str, Any]:
    return {"type": ["string", "null"], "enum": [*choices, None], "description": description}


def _count(description: str, **bounds: int) -> dict[str, Any]:
    return {"type": "integer", **bounds, "description": description}


_CONTRACT = {
    "type": ["object", "null"],
    "description": "A contract action, resolved before the order.",
    "properties": {
        "action": {"type": "string", "enum": list(st.CONTRACT_ACTIONS), "description": "What to do with the contract."},
        "supplier": _optional(st.SUPPLIERS, "Whose contract."),
        "terms": _optional(st.TERMS, "On which terms."),
    },
    "required": ["action"],
    "additionalProperties": False,
}

TOOLS: tuple[dict[str, Any], ...] = (
    _tool(
        "lock_freight",
        "Fix the freight rate at this week's for the next weeks, the coming one included. Free.",
        ["weeks"],
        weeks=_count("How many weeks the lock lasts.", minimum=1),
    ),
    _tool(
        "expedite_air",
        f"Fly in units, at most {int(_DESK.most_air)} a week; they arrive next week. Costs a fee per unit.",
        ["qty"],
        qty=_count("How many units to fly in.", minimum=1),
    ),
    _tool(
        "inspect_batch", "Have next week's landings inspected, so that fewer units are lost to defects. Costs a fee."
    ),
    _tool("buy_briefing", "Learn the present state of the canal. Costs a fee."),
    _tool("buy_audit", "Learn the present state of the spot supplier. Costs a fee."),
    _tool(
        "place_order",
        "Commit the week with an order; the result is the next week's report.",
        ["rationale", "qty"],
        rationale={
            "type": "string",
            "minLength": 1,
            "maxLength": MAX_RATIONALE,
            "description": "What you believe is going on, and why you order this.",
        },
        qty=_count("Units to order; 0 orders nothing.", minimum=0, maximum=int(_DESK.most_order)),
        route=_optional(st.ROUTES, "Needed when qty is above 0."),
        supplier=_optional(st.SUPPLIERS, "Needed when qty is above 0; you must hold a live contract with it."),
        contract=_CONTRACT,
    ),
)


@dataclass(frozen=True)
class Result:
    """The answer to one call.

    Attributes:
        id: the call's id.
        name: the tool's name, as called.
        content: what the agent reads.
        error: whether the call changed nothing.
        unwrapped: whether its arguments had been encoded twice.
    """

    id: str
    name: str
    content: str
    error: bool
    unwrapped: bool

    def to_json(self) -> dict[str, Any]:
        """The result as a plain JSON object."""
        return dict(vars(self))


def looks_like_a_call(text: str, tools: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a text holds what a server should have parsed as a tool call: a tool's name in call-like marks."""
    names = "|".join(re.escape(tool["name"]) for tool in tools)
    return (
        re.search(rf"<(tool_call|function)\b|\[TOOL_CALLS\]|[\"']name[\"']\s*:\s*[\"']({names})[\"']", text) is not None
    )


class Desk:
    """A desk as an agent meets it: behind a lens, with the tools of an arm.

    Attributes:
        stated: what the last accepted order said beside the order itself (beliefs, a plan), by argument.
    """

    def __init__(
        self, episode: st.Episode, lens: Lens | None = None, tools: Sequence[Mapping[str, Any]] = TOOLS
    ) -> None:
        self.stated: dict[str, Any] = {}
        self._episode = episode
        self._lens = Lens() if lens is None else lens
        self._schemas = {tool["name"]: tool["parameters"] for tool in tools}

    def report(self) -> dict[str, Any]:
        """This week's report as the agent reads it; asked for once a week."""
        return self._lens.report(self._episode.report(), self._episode)

    def execute(self, calls: Sequence[ToolCall]) -> list[Result]:
        """Carries out the calls of one turn, which commits at most one week.

        Args:
            calls: what the model called, unchecked.

        Returns:
            One result for every call, in order. Calls after the one which committed the week are ignored, since they
            were made without having read its report.
        """
        week = self._episode.week
        return [self._ignored(call) if self._episode.week > week else self._run(call) for call in calls]

    def _ignored(self, call: ToolCall) -> Result:
        content = "Ignored: this answer has already committed the week. Read the new report, then call again."
        return Result(call.id, call.name, content, error=True, unwrapped=False)

    def _run(self, call: ToolCall) -> Result:
        unwrapped = False
        try:
            if call.name not in self._schemas:
                raise ArgumentError(f"there is no tool {call.name[:80]!r}: the tools are {', '.join(self._schemas)}.")
            checked, unwrapped = check_arguments(call.arguments, self._schemas[call.name])
            meant = self._lens.call(ToolCall(call.id, call.name, json.dumps(checked)))
            content = self._act(meant.name, json.loads(meant.arguments))
        except ArgumentError as error:
            return Result(call.id, call.name, f"Error: {error}", error=True, unwrapped=unwrapped)
        except st.Refused as error:
            return Result(call.id, call.name, f"Error: {self._lens.words(str(error))}", True, unwrapped)
        return Result(call.id, call.name, content, error=False, unwrapped=unwrapped)

    def _act(self, name: str, arguments: dict[str, Any]) -> str:
        if name != "place_order":
            return self._lens.words(_LEVERS[name](self._episode, **arguments))
        stated = {key: arguments.pop(key) for key in list(arguments) if key not in _ORDER}
        report = self._episode.place_order(**arguments)
        self.stated = stated
        return json.dumps(self._lens.report(report, self._episode))


def _lock_freight(episode: st.Episode, weeks: int) -> str:
    return f"Freight is locked at {episode.lock_freight(weeks):g} times the base rate for {weeks} weeks."


def _expedite_air(episode: st.Episode, qty: int) -> str:
    return f"{episode.expedite_air(qty)} units will arrive by air next week."


def _inspect_batch(episode: st.Episode) -> str:
    episode.inspect_batch()
    return "Next week's landings will be inspected."


def _buy_briefing(episode: st.Episode) -> str:
    return f"Canal: {episode.buy_briefing()}."


def _buy_audit(episode: st.Episode) -> str:
    return f"Spot supplier: {episode.buy_audit()}."


_ORDER = ("rationale", "qty", "route", "supplier", "contract")
_LEVERS: dict[str, Callable[..., str]] = {
    "lock_freight": _lock_freight,
    "expedite_air": _expedite_air,
    "inspect_batch": _inspect_batch,
    "buy_briefing": _buy_briefing,
    "buy_audit": _buy_audit,
}
