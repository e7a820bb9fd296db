"""Both SDKs over real sockets, against a server that fails in every way that it can."""

import asyncio
import json
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from stocktake_agents.errors import Fault, ProviderError
from stocktake_agents.provider import Deadlines, Turn, Wire
from stocktake_agents.wires import api_agent
from tests.agents.loopback import MODEL_FAULTS, TRANSPORT_FAULTS, Loopback

CANARY = "sk-canary/0123456789abcdef"
MODELS = {
    "anthropic": "anthropic/fake",
    "openai": "openai/fake",
    "openrouter": "openrouter/vendor/fake",
    "local": "local/f",
}
WIRES = tuple(MODELS)
ORDER = {
    "name": "place_order",
    "description": "Order.",
    "parameters": {
        "type": "object",
        "properties": {
            "rationale": {"type": "string"},
            "qty": {"type": "integer"},
            "route": {"type": ["string", "null"]},
            "supplier": {"type": ["string", "null"]},
            "contract": {"type": ["object", "null"]},
            "beliefs": {
                "type": "object",
                "properties": {"canal": {"type": "number", "minimum": 0, "maximum": 1}},
                "required": ["canal"],
            },
        },
        "required": ["rationale", "qty", "beliefs"],
        "additionalProperties": False,
    },
}
LEVER = {
    "name": "buy_briefing",
    "description": "Ask.",
    "parameters": {"type": "object", "properties": {}, "required": [], "additionalProperties": False},
}
TOOLS = (ORDER, LEVER)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for provider in WIRES:
        monkeypatch.setenv(f"{provider.upper()}_API_KEY", CANARY)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "ANTHROPIC_CUSTOM_HEADERS", "OPENAI_CUSTOM_HEADERS"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def report(week: int, position: int) -> str:
    deal = {"supplier": "spot", "end_week": None}
    extra = {"inventory": 1, "on_order": 1, "pos_units": 20, "demand_forecast": 20}
    return json.dumps({"week": week, "inventory_position": position, "contracts": [deal], **extra})


def opening(name: str = "") -> list[dict[str, Any]]:
    return [{"role": "system", "content": f"Rules {name}"}, {"role": "user", "content": report(0, 80)}]


Talk = list[dict[str, Any]]


async def converse(wire: Wire, turns: int = 4, tries: int = 4, name: str = "") -> tuple[Talk, list[ProviderError]]:
    """A conversation of so many turns, tried again like the harness does, and the failures on the way."""
    messages, failures = opening(name), []
    for week in range(turns):
        for attempt in range(tries):
            try:
                turn = await wire.turn(messages, TOOLS)
                break
            except ProviderError as error:
                if attempt == tries - 1 or not error.fault.retried:
                    raise
                failures.append(error)
                await asyncio.sleep(min(error.after or 0.0, 0.05))
        messages.append({"role": "assistant", "turn": json.loads(json.dumps(turn.to_json()))})
        for call in turn.calls:
            failed = call.name not in ("place_order", "buy_briefing")
            content = report(week + 1, 60 + week) if call.name == "place_order" else "Canal: open."
            result = {"id": call.id, "name": call.name, "content": content, "error": failed, "unwrapped": False}
            messages.append({"role": "tool", **result})
        if not turn.calls:
            messages.append({"role": "user", "content": "Go on."})
    return messages, failures


def on_wire(server: Loopback, provider: str, use: Callable[[Wire], Any], connections: int = 4, **deadlines: Any) -> Any:
    """What ``use`` makes of a wire to the server."""
    service = api_agent(MODELS[provider], base_url=server.url(provider), prices={}).service
    assert service is not None

    async def run() -> Any:
        wire = service.connect(Deadlines(**deadlines), connections)
        try:
            return await use(wire)
        finally:
            await wire.close()

    return asyncio.run(run())


def talk(server: Loopback, provider: str, **options: Any) -> tuple[Talk, list[ProviderError]]:
    result: tuple[Talk, list[ProviderError]] = on_wire(server, provider, lambda wire: converse(wire, **options))
    return result


def shown(error: BaseException | None) -> str:
    """All that a traceback could print."""
    if error is None:
        return ""
    return f"{error} {error!r} {shown(error.__cause__)} {shown(error.__context__)}"


@pytest.mark.parametrize("provider", WIRES)
def test_a_quiet_conversation(provider: str) -> None:
    with Loopback(key=CANARY, levers=0.5) as server:
        messages, failures = talk(server, provider, turns=8)
        again, _ = talk(server, provider, turns=8)
    assert failures == []
    assert messages == again
    turns = [Turn.from_json(message["turn"]) for message in messages if message["role"] == "assistant"]
    assert {call.name for turn in turns for call in turn.calls} == {"place_order", "buy_briefing"}
    order = next(json.loads(call.arguments) for turn in turns for call in turn.calls if call.name == "place_order")
    assert order["qty"] == 13
    assert order["contract"] == {"action": "sign", "supplier": "qualified"}
    assert order["beliefs"] == {"canal": 0.25}
    prompts = [turn.usage.prompt for turn in turns if turn.usage]
    assert prompts == sorted(prompts)
    assert len(prompts) == 8
    assert all((turn.usd is not None) == (provider == "openrouter") for turn in turns)
    assert [request.attempt for request in server.requests[8:]] == [1] * 8


EXPECTED = {
    "throttled": (Fault.THROTTLED, False),
    "unavailable": (Fault.TRANSIENT, False),
    "overloaded": (Fault.TRANSIENT, False),
    "error_200": (Fault.TRANSIENT, True),
    "html_200": (Fault.TRANSIENT, True),
    "drop": (Fault.TRANSIENT, True),
    "cut": (Fault.TRANSIENT, True),
    "hang": (Fault.TIMEOUT, True),
    "leak": (Fault.TRANSIENT, False),
}


@pytest.mark.parametrize("provider", WIRES)
@pytest.mark.parametrize("fault", TRANSPORT_FAULTS)
def test_a_transport_fault_leaves_the_answer_as_it_was(provider: str, fault: str) -> None:
    with Loopback() as server:
        quiet, _ = talk(server, provider, turns=2)
    with Loopback(faults={fault: 1.0}, faulty_attempts=1) as server:
        noisy, failures = on_wire(server, provider, lambda wire: converse(wire, turns=2), idle=0.3)
    assert noisy == quiet
    assert [(failure.fault, failure.billed) for failure in failures] == [EXPECTED[fault]] * 2
    assert {failure.after for failure in failures} == {0.02 if fault == "throttled" else None}
    assert [request.fault for request in server.requests] == [fault, None] * 2
    assert "canary" not in "".join(map(shown, failures))


@pytest.mark.parametrize("provider", WIRES)
@pytest.mark.parametrize("fault", MODEL_FAULTS)
def test_a_model_fault_comes_again_and_is_survived(provider: str, fault: str) -> None:
    with Loopback(faults={fault: 1.0}) as server:
        messages, failures = talk(server, provider, turns=3)
        again, _ = talk(server, provider, turns=3)
    assert (failures, messages) == ([], again)
    turn = Turn.from_json(messages[2]["turn"])
    calls = [(call.name, call.arguments) for call in turn.calls]
    if fault == "malformed":
        assert provider == "anthropic" or not calls[0][1].endswith('"}')
    elif fault == "out_of_range":
        assert json.loads(calls[0][1])["qty"] == -5
    elif fault == "doubled":
        inner = json.loads(calls[0][1])
        assert isinstance(json.loads(inner if provider != "anthropic" else inner["contract"]), dict)
    elif fault == "unknown_tool":
        assert calls == [("order_more", '{"qty": 1}')]
    elif fault == "twice":
        assert len(calls) == 2
    elif fault == "echo":
        assert len(calls) == 1
        assert turn.text.endswith("I was called with Bearer [redacted].")
    else:
        assert calls == []
        assert turn.stop == {"silent": "end"}.get(fault, fault)
    assert "canary" not in json.dumps(messages)


@pytest.mark.parametrize("provider", WIRES)
def test_all_at_once(provider: str) -> None:
    model = {fault: 0.06 for fault in MODEL_FAULTS}
    transport = {fault: 0.07 for fault in TRANSPORT_FAULTS if fault != "hang"}

    async def many(wire: Wire) -> list[tuple[Talk, list[ProviderError]]]:
        return await asyncio.gather(*(converse(wire, turns=6, name=str(name)) for name in range(8)))

    with Loopback(faults=model) as server:
        quiet = on_wire(server, provider, many)
    with Loopback(faults=model | transport, seed=0) as server:
        noisy = on_wire(server, provider, many, connections=8)
    assert [messages for messages, _ in quiet] == [messages for messages, _ in noisy]
    assert sum(len(failures) for _, failures in quiet) == 0
    assert sum(len(failures) for _, failures in noisy) > 10


@pytest.mark.parametrize(
    ("provider", "path", "spoil"),
    [
        ("anthropic", "0", {"signature": "forged"}),
        ("anthropic", "0", {"seal": {"v": 1.5}}),
        ("openai", "0", {"encrypted_content": "forged"}),
        ("openai", "0", {"é": [2.5]}),
        ("openrouter", "reasoning_details", []),
        ("local", "reasoning_details", None),
    ],
)
def test_reasoning_must_come_back_as_it_went(provider: str, path: str, spoil: Any) -> None:
    with Loopback() as server:
        messages, _ = talk(server, provider, turns=1)
        extra = messages[2]["turn"]["extra"]
        if path == "0":
            extra[0] |= spoil
        else:
            extra[path] = spoil
        with pytest.raises(ProviderError, match="HTTP 400") as caught:
            on_wire(server, provider, lambda wire: wire.turn(messages, TOOLS))
    assert caught.value.fault is Fault.REJECTED


@pytest.mark.parametrize("provider", WIRES)
def test_refusals(provider: str) -> None:
    with Loopback(key="another", context=10) as server:
        with pytest.raises(ProviderError, match="401") as caught:
            on_wire(server, provider, lambda wire: wire.turn(opening(), TOOLS))
        assert caught.value.fault is Fault.ACCOUNT
        assert "canary" not in shown(caught.value)
        server.key = None
        assert on_wire(server, provider, lambda wire: wire.turn(opening(), TOOLS)).stop == "context_overflow"


@pytest.mark.parametrize("provider", WIRES)
def test_options_that_the_model_refuses(provider: str) -> None:
    refused = {"anthropic": "cache_control", "openai": "include"}.get(provider, "parallel_tool_calls")

    async def ask(wire: Wire) -> Mapping[str, str]:
        await converse(wire, turns=2)
        return dict(wire.dropped)

    with Loopback(refuses=[refused]) as server:
        dropped = on_wire(server, provider, ask)
    assert dropped == {refused: f"{refused} is not supported with this model"}
    assert [refused in request.body for request in server.requests] == [True, False, False]


def test_a_context_cut_in_silence_is_found_out() -> None:
    with Loopback(context=1_024, silent_context=True) as server:
        with pytest.raises(ProviderError, match="context_truncated_by_server") as caught:
            talk(server, "local", turns=12)
        assert caught.value.fault is Fault.TRUNCATED
        messages, _ = talk(server, "openrouter", turns=12)
        assert len(messages) == 26


@pytest.mark.parametrize("provider", WIRES)
def test_looking_up(provider: str) -> None:
    sizes = {"openrouter": (128_000, 32_000), "anthropic": (200_000, 64_000), "openai": (None, None)}
    with Loopback() as server:
        if provider in sizes:
            context, most = sizes[provider]
            found = on_wire(server, provider, lambda wire: wire.look_up())
            assert found == {"context": context, "max_output": most}
        else:
            with pytest.raises(ProviderError, match="there is no model f; the server lists 2: fake, vendor/fake"):
                on_wire(server, provider, lambda wire: wire.look_up())


def test_sixty_four_conversations_share_their_connections() -> None:
    async def many(wire: Wire) -> Any:
        return await asyncio.gather(*(converse(wire, turns=3, name=str(name)) for name in range(64)))

    with Loopback(latency=0.2) as server:
        started = time.monotonic()
        on_wire(server, "openai", many, connections=64)
        took = time.monotonic() - started
    assert server.peak == 64
    assert Counter(request.attempt for request in server.requests) == {0: 192}
    assert took < 6  # 38 s one by one


def test_the_server_runs_by_itself() -> None:
    command = [sys.executable, str(Path(__file__).with_name("loopback.py")), "--fault", "throttled=0", "--key", CANARY]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        root = process.stdout.readline().strip()
        request = urllib.request.Request(f"{root}/v1/models", headers={"Authorization": f"Bearer {CANARY}"})
        with urllib.request.urlopen(request, timeout=10) as answer:
            assert json.load(answer)["data"][0]["id"] == "fake"
    finally:
        process.kill()
        process.communicate()


def test_faults_have_names() -> None:
    with pytest.raises(ValueError, match="no such faults: throttle"):
        Loopback(faults={"throttle": 0.1})
