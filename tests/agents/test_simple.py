"""The scripted agents and seated policies: what they land at, and that they say what they see."""

import asyncio
import json
import random
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stocktake_jax as st
from stocktake_agents import AGENTS, EpisodeName, Outcome, PolicyAgent, parse_seeds, policy_agent
from stocktake_agents.conversation import NUDGE, Conversation, latest_report
from stocktake_agents.simple import live_suppliers, planner
from stocktake_agents.tools import TOOLS

PlayPlan = Callable[..., Outcome]
Streams = Callable[[str], dict[str, list[bytes]]]


def totals(streams: dict[str, list[bytes]]) -> dict[str, float]:
    return {name: json.loads(lines[-1])["total"] for name, lines in streams.items()}


@pytest.mark.parametrize("names", ["1,11,25,143", pytest.param("published", marks=pytest.mark.slow)])
def test_floor_costs_what_is_published_and_what_the_policy_costs(
    play_plan: PlayPlan, streams: Streams, names: str
) -> None:
    play_plan("floor", names)
    found = totals(streams("out"))
    seeds = [seed for seed in st.published_seeds() if EpisodeName("published", seed.seed) in parse_seeds(names)]
    costs = np.array([found[f"published-{seed.seed}.jsonl"] for seed in seeds])
    assert len(costs) == len(found) == (50 if names == "published" else 4)
    np.testing.assert_allclose(costs, [seed.floor for seed in seeds], atol=0.0501)
    tapes = st.stack([st.published_tape(seed.seed) for seed in seeds])
    swept = st.evaluate(st.policies.floor(), tapes, jax.random.key(0), float64=True)
    np.testing.assert_allclose(costs, swept.total_cost, atol=1e-9)


def test_agents_rank_as_they_must(play_plan: PlayPlan, streams: Streams) -> None:
    means = {}
    for model in AGENTS:
        play_plan(model, "mint:0-7", model)
        means[model] = np.mean(list(totals(streams(model)).values()))
    assert means["planner"] < means["floor"] < means["idle"] < means["random"]


@pytest.mark.parametrize("policy", [st.policies.floor(), st.policies.random_legal()])
def test_a_seated_policy_resumes_as_if_never_interrupted(
    play_plan: PlayPlan, streams: Streams, policy: Any, tmp_path: Any
) -> None:
    agent = policy_agent("policy", policy, jax.random.key(3))
    assert play_plan(agent, "25,mint:4").exit_code == 0
    whole = streams("out")
    path = tmp_path / "out" / "published-25.jsonl"
    path.write_bytes(path.read_bytes()[:20_000])
    assert 0 < play_plan(agent, "25,mint:4").turns < 26
    assert streams("out") == whole


def test_a_seated_floor_costs_what_it_costs_in_a_sweep(play_plan: PlayPlan, streams: Streams) -> None:
    play_plan(policy_agent("policy", st.policies.floor(), jax.random.key(0)), "1,mint:4")
    tapes = st.stack([st.published_tape(1), st.mint(4)])
    swept = st.evaluate(st.policies.floor(), tapes, jax.random.key(0), float64=True)
    found = totals(streams("out"))
    seated = [found["published-1.jsonl"], found["minted-4.jsonl"]]
    np.testing.assert_allclose(seated, swept.total_cost, atol=1e-9)


def test_an_illegal_action_of_a_policy_becomes_an_order_of_nothing(play_plan: PlayPlan, streams: Streams) -> None:
    class Stubborn:
        def init(self, params: st.WorldParams) -> tuple[()]:
            return ()

        def act(self, params: st.WorldParams, carry: Any, observation: st.Observation, key: Any) -> Any:
            return st.Action(qty=30, supplier=jnp.where(observation.week < 13, 2, -1)), carry

    agent = policy_agent("stubborn", Stubborn(), jax.random.key(0))
    assert play_plan(agent, "25").exit_code == 0
    [(_, *lines)] = streams("out").values()
    events = [json.loads(line) for line in lines]
    assert events[-1]["counts"]["errors"] == 26
    assert sum(event["costs"]["shipping"] for event in events if event["event"] == "week") == 0


def test_a_policy_agent_is_a_function_of_the_conversation() -> None:
    tape = st.published_tape(25)
    episode = st.Episode(tape)
    messages = Conversation("The rules.", TOOLS, episode.report()).messages
    first = asyncio.run(PolicyAgent(st.policies.random_legal(), tape, jax.random.key(1)).turn(messages, []))
    again = asyncio.run(PolicyAgent(st.policies.random_legal(), tape, jax.random.key(1)).turn(messages, []))
    assert first == again


def test_random_is_legal_reproducible_and_uses_every_tool(play_plan: PlayPlan, streams: Streams) -> None:
    play_plan("random", "mint:0-3")
    tools, actions = set(), set()
    for _, *lines in streams("out").values():
        for event in map(json.loads, lines):
            if event["event"] == "result":
                assert not any(result["error"] for result in event["results"]), event
            for call in event.get("turn", {}).get("calls", []):
                tools.add(call["name"])
                actions.add((json.loads(call["arguments"]).get("contract") or {}).get("action"))
    assert tools == {"lock_freight", "expedite_air", "inspect_batch", "buy_briefing", "buy_audit", "place_order"}
    assert actions == {None, *st.CONTRACT_ACTIONS} - {"none"}


@pytest.mark.parametrize(
    ("symptoms", "named", "tool"),
    [
        ({}, "no symptom stands out", None),
        ({"suez_count": 14}, "canal counts are down to 14", None),
        ({"suez_count": 63}, "canal counts are a little low", None),
        ({"berth_wait": 14, "inventory": 80}, "the port is held up", None),
        ({"berth_wait": 14, "inventory": 8}, "stock would run out", "expedite_air"),
        ({"freight_index": 180, "freight_outlook": 210}, "freight is rising", "lock_freight"),
        ({"freight_index": 180, "freight_outlook": 210, "freight_lock": {"rate": 1, "weeks_left": 2}}, "rising", None),
        ({"freight_index": 400, "freight_outlook": 420}, "freight is very dear", None),
        ({"aql_result": "reject"}, "sample was rejected", None),
        ({"aql_result": "reject", "pipeline": [{"eta": 1}]}, "sample was rejected", "inspect_batch"),
        ({"pos_units": 30, "demand_forecast": 30}, "demand runs at about 30", None),
    ],
)
def test_planner_names_a_symptom_and_answers_it(symptoms: dict[str, Any], named: str, tool: str | None) -> None:
    report = st.Episode(st.published_tape(25)).report() | symptoms
    *levers, (name, order) = planner(report, random.Random(0))
    assert name == "place_order"
    assert named in order["rationale"]
    assert [lever for lever, _ in levers] == ([tool] if tool else [])


def test_planner_goes_round_the_cape_and_leaves_a_slipping_supplier() -> None:
    report = st.Episode(st.published_tape(25)).report()
    report["suppliers"][1] |= {"band": "slipping", "otif": 86}
    _, order = planner(report | {"suez_count": 0, "inventory_position": 10}, random.Random(0))[-1]
    assert order["route"] == "cape"
    assert order["supplier"] == "qualified"
    assert order["contract"] == {"action": "sign", "supplier": "qualified"}
    assert "the spot supplier is slipping" in order["rationale"]


def test_live_suppliers_hold_unexpired_contracts_and_are_alive() -> None:
    report = st.Episode(st.published_tape(25)).report()
    report["contracts"] += [{"supplier": "backup", "end_week": 4}, {"supplier": "qualified", "end_week": None}]
    assert live_suppliers(report | {"week": 3}) == {"spot", "backup", "qualified"}
    assert live_suppliers(report | {"week": 4}) == {"spot", "qualified"}
    report["suppliers"][1]["band"] = "defunct"
    assert live_suppliers(report) == {"backup", "qualified"}


def test_the_conversation_opens_with_the_rules_and_the_first_report() -> None:
    report = st.Episode(st.published_tape(25)).report()
    system, first = Conversation("The rules.", TOOLS, report).messages
    assert system == {"role": "system", "content": "The rules."}
    assert json.loads(first["content"]) == report


def test_the_latest_report_is_that_of_the_last_accepted_order() -> None:
    def result(name: str, content: Any, error: bool = False) -> dict[str, Any]:
        return {"id": "a", "name": name, "content": json.dumps(content), "error": error}

    talk = Conversation("The rules.", TOOLS, {"week": 0})
    assert latest_report(talk.messages) == {"week": 0}
    talk.add_answer({}, [result("place_order", {"week": 1}), result("buy_audit", "ontime")], None)
    talk.add_answer({}, [result("place_order", "refused", error=True)], None)
    talk.add_answer({}, [], NUDGE)
    assert latest_report(talk.messages) == {"week": 1}


def test_the_request_hash_names_messages_and_tools() -> None:
    def hash_after(*answers: str, tools: Any = TOOLS) -> str:
        talk = Conversation("The rules.", tools, {"week": 0})
        for text in answers:
            talk.add_answer({"text": text}, [], NUDGE)
        return talk.request_hash

    assert hash_after("a", "b") == hash_after("a", "b")
    hashes = [hash_after(), hash_after("a"), hash_after("a", "b"), hash_after("b", "a"), hash_after(tools=TOOLS[1:])]
    assert len(set(hashes)) == len(hashes)
