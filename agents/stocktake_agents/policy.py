"""Seats a JAX policy: anything with ``init`` and ``act`` plays through the same tools as a model."""

import asyncio
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

import stocktake_jax as st
from stocktake_agents.arms.belief_track import with_statements
from stocktake_agents.conversation import Message, latest_report
from stocktake_agents.provider import Agent, Turn
from stocktake_agents.scripted import Call, as_turn
from stocktake_agents.tools import Desk
from stocktake_jax.sweep import tape_key, week_key

RATIONALE = "The action of a policy, which gives no reasons."
NOTHING: Call = ("place_order", {"rationale": "The policy's order was refused, so nothing is ordered.", "qty": 0})


class PolicyAgent:
    """A provider whose turns are the actions of a policy.

    A policy reads arrays and carries a memory from week to week, and a conversation holds neither. So the agent keeps
    a desk of its own on the same tape and makes the same calls there. Hidden weeks do not depend on what is done, and
    a policy answers alike to the same weeks: after a resume the desk catches up by playing them again.

    An order that the rules refuse becomes an order of nothing, as in the pure environment.
    """

    def __init__(self, policy: Any, tape: st.Tape, key: jax.Array | int, repeat: int = 1) -> None:
        """Takes a seat.

        Args:
            policy: a frozen, hashable object with ``init(params)`` and ``act(params, carry, observation, key)``.
            tape: the tape of the episode.
            key: the policy's own randomness, or a seed for it; the same key gives the actions of ``st.evaluate``.
            repeat: from the second on, a stream of its own.
        """
        self._params = st.WorldParams()
        with jax.enable_x64(True):  # the desk's precision
            self._carry = policy.init(self._params)
        self._act = _compiled(policy)
        key = jax.random.key(key) if isinstance(key, int) else key
        self._key = tape_key(key if repeat == 1 else jax.random.fold_in(key, repeat), tape.id)
        self._episode = st.Episode(tape)
        self._desk = Desk(self._episode)

    async def turn(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> Turn:
        """See ``Provider``."""
        turn = await asyncio.to_thread(self._turn, messages)
        return with_statements(turn, tools, latest_report(messages))

    def _turn(self, messages: Sequence[Message]) -> Turn:
        if messages[-1].get("error"):
            return as_turn([NOTHING], len(messages))
        week = latest_report(messages)["week"]
        while True:
            at = self._episode.week
            turn = as_turn(self._calls(), len(messages))
            self._desk.execute(turn.calls)
            if self._episode.week == at:
                self._desk.execute(as_turn([NOTHING], 0).calls)
            if at == week:
                return turn

    def _calls(self) -> list[Call]:
        key = week_key(self._key, np.uint32(self._episode.week))
        with jax.enable_x64(True):
            action, self._carry = self._act(self._params, self._carry, self._episode.observation, key)
        return action_calls(action)


@functools.cache
def _compiled(policy: Any) -> Callable[..., Any]:
    """The policy's decision, compiled once for all its episodes."""
    return jax.jit(policy.act)


def action_calls(action: st.Action) -> list[Call]:
    """The tool calls that carry out an action: its levers, then the order that commits the week."""
    calls: list[Call] = []
    if int(action.lock_weeks):
        calls.append(("lock_freight", {"weeks": int(action.lock_weeks)}))
    if int(action.air):
        calls.append(("expedite_air", {"qty": int(action.air)}))
    flags = {"inspect_batch": action.inspect, "buy_briefing": action.briefing, "buy_audit": action.audit}
    calls += [(tool, {}) for tool, flag in flags.items() if int(flag)]
    order: dict[str, Any] = {"rationale": RATIONALE, "qty": int(action.qty)}
    if order["qty"]:
        order |= {"route": _name(st.ROUTES, action.route), "supplier": _name(st.SUPPLIERS, action.supplier)}
    if int(action.contract_action):
        order["contract"] = {
            "action": _name(st.CONTRACT_ACTIONS, action.contract_action),
            "supplier": _name(st.SUPPLIERS, action.contract_supplier),
            "terms": _name(st.TERMS, action.contract_terms),
        }
    return [*calls, ("place_order", order)]


def _name(names: Sequence[str], index: Any) -> str:
    """The name at an index; an index that names nothing goes on as it is, for the tools to refuse."""
    return names[int(index)] if 0 <= int(index) < len(names) else str(int(index))


def policy_agent(model: str, policy: Any, key: jax.Array | int) -> Agent:
    """An agent that seats ``policy`` on every tape; its representation and its key go into the agent's hash."""
    words = key if isinstance(key, int) else jax.random.key_data(key).tolist()
    return Agent(
        model, lambda tape, repeat: PolicyAgent(policy, tape, key, repeat), {"policy": repr(policy), "key": words}
    )
