"""The doctor: every ill is named before money is spent, with its cure."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from stocktake_agents import TOOLS, Agent
from stocktake_agents.arms import Arm, Lens
from stocktake_agents.doctor import CURES, Check, examine, healthy
from stocktake_agents.errors import Fault
from stocktake_agents.prices import Price
from stocktake_agents.provider import Deadlines, Turn
from stocktake_agents.tools import looks_like_a_call
from stocktake_agents.wires import api_agent
from tests.agents.loopback import Loopback

PLAIN = Arm("plain", "These are the rules.", TOOLS, lambda tape: Lens(), {})
PRICE = Price(input=3.0, output=15.0, cache_read=0.3, cache_write_5m=3.75, cache_write_1h=6.0, as_of="2026-11-30")
MODELS = {
    "anthropic": "anthropic/fake",
    "openai": "openai/fake",
    "openrouter": "openrouter/vendor/fake",
    "local": "local/fake",
}


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for provider in MODELS:
        monkeypatch.setenv(f"{provider.upper()}_API_KEY", "sk-canary-0123456789abcdef")


def checks(agent: Agent, **deadlines: float) -> dict[str, Check]:
    async def all_of_them() -> list[Check]:
        assert agent.service is not None
        return [check async for check in examine(agent, agent.service, PLAIN, Deadlines(**deadlines))]

    found = asyncio.run(all_of_them())
    assert healthy(found) == all(check.verdict != "fail" for check in found)
    return {check.name: check for check in found}


def agent(provider: str, server: Loopback, model: str | None = None, priced: bool = True, **options: Any) -> Agent:
    name = model or MODELS[provider]
    return api_agent(name, base_url=server.url(provider), prices={name: PRICE} if priced else {}, **options)


@pytest.mark.parametrize("provider", MODELS)
def test_a_model_that_can_play_is_told_so_after_two_answers(provider: str) -> None:
    with Loopback() as server:
        found = checks(agent(provider, server))
        assert len([request for request in server.requests if request.method == "POST"]) == 2
    assert {check.verdict for name, check in found.items() if name != "context"} == {"ok"}
    assert list(found) == ["model", "context", "first answer", "tool call", "second answer"]
    assert "tokens" in found["first answer"].found


def test_ills_have_names_and_cures() -> None:
    with Loopback(key="another-key-altogether") as server:
        wrong_key = checks(agent("anthropic", server))
    assert list(wrong_key) == ["model"]
    assert wrong_key["model"].found.startswith("account")
    assert "key" in wrong_key["model"].cure
    assert "canary" not in wrong_key["model"].found
    with Loopback() as server:
        missing = checks(agent("openai", server, "openai/missing"))
    assert missing["model"].verdict == "fail"
    with Loopback(faults={"silent": 1.0}) as server:
        silent = checks(agent("local", server))
    assert (silent["first answer"].verdict, "tool call" in silent) == ("fail", False)
    with Loopback(faults={"refusal": 1.0}) as server:
        assert "refused" in checks(agent("openai", server))["first answer"].found
    with Loopback(faults={"length": 1.0}) as server:
        assert "--max-output-tokens" in checks(agent("openai", server))["first answer"].cure
    with Loopback(faults={"malformed": 1.0}) as server:
        assert checks(agent("local", server))["tool call"].verdict == "warn"
    with Loopback(faults={"hang": 1.0}) as server:
        assert "no answer within 0.2 s" in checks(agent("local", server), attempt=0.2)["first answer"].found
    with Loopback(context=500) as server:
        small = checks(agent("local", server))
    assert small["context"].verdict == "fail"
    assert "--max-model-len" in small["context"].cure
    assert small["first answer"].verdict == "fail"
    with Loopback(refuses=("temperature",)) as server:
        assert "temperature" in checks(agent("openrouter", server, temperature=1.0))["parameters"].found


def test_an_unknown_price_and_a_free_model_s_limit_are_warned_of() -> None:
    with Loopback() as server:
        assert checks(agent("openai", server, priced=False))["first answer"].verdict == "warn"
        free = checks(agent("openrouter", server, "openrouter/vendor/fake:free"))
        assert free["daily limit"].verdict == "warn"
        assert "free" in checks(agent("local", server))["first answer"].found


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "place_order", "arguments": {}}</tool_call>',
        "<function=place_order>",
        '[TOOL_CALLS][{"name": "place_order"}]',
        "{'name': 'buy_audit', 'arguments': {}}",
    ],
)
def test_a_call_that_came_as_text_is_suspected(text: str) -> None:
    class Leaking:
        sent: Mapping[str, Any] = {}
        dropped: Mapping[str, str] = {}

        async def turn(self, messages: Any, tools: Any) -> Turn:
            return Turn(text=text, stop="end")

        async def look_up(self) -> dict[str, Any]:
            return {"context": None, "max_output": None}

        async def close(self) -> None:
            pass

    with Loopback() as server:
        leaking = agent("local", server)
    assert leaking.service is not None
    found = checks(replace(leaking, service=replace(leaking.service, connect=lambda deadlines, most: Leaking())))
    assert "suspected_parser_failure" in found["first answer"].found
    assert "--tool-call-parser" in found["first answer"].cure


def test_ordinary_text_is_not_suspected() -> None:
    for text in ("I would place_order of 20.", 'He said "name" and left.', "", "Let me call buy_briefing first."):
        assert not looks_like_a_call(text, TOOLS)


def test_every_fault_has_a_cure() -> None:
    assert set(CURES) == set(Fault)
