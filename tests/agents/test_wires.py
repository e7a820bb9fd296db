"""The three wires: exact requests, answers read and given back, and every failure named, without a network."""

import asyncio
import datetime
import email.utils
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import httpx2
import pytest

from stocktake_agents.errors import Fault, ProviderError, UsageError
from stocktake_agents.prices import Price
from stocktake_agents.provider import Deadlines, ToolCall, Turn
from stocktake_agents.usage import Usage
from stocktake_agents.wires import api_agent
from stocktake_agents.wires.strings import PROVIDERS, open_wire
from stocktake_agents.wires.wire import ModelWire, Setup

CANARY = "sk-canary/0123456789abcdef"
PROVIDER_NAMES = ("anthropic", "openai", "openrouter", "local")
URLS = {name: provider.base_url or "http://local.invalid/v1" for name, provider in PROVIDERS.items()}
TOOL = {
    "name": "place_order",
    "description": "Order.",
    "parameters": {"type": "object", "properties": {"qty": {"type": "integer"}}, "required": ["qty"]},
}
OPENING = [{"role": "system", "content": "Rules."}, {"role": "user", "content": '{"week": 0}'}]

Handler = Callable[[httpx2.Request], httpx2.Response]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for provider in PROVIDERS.values():
        monkeypatch.setenv(provider.key, CANARY)
    for name in ("ANTHROPIC_CUSTOM_HEADERS", "OPENAI_CUSTOM_HEADERS"):
        monkeypatch.delenv(name, raising=False)
    # A developer's shell must not send a run elsewhere.
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://elsewhere.invalid")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://elsewhere.invalid")


def setup(provider: str, **changes: Any) -> Setup:
    return Setup(
        **{"provider": provider, "model": "m-1", "base_url": URLS[provider], "max_output_tokens": 99, **changes}
    )


class Server:
    """Answers with the given bodies or responses in turn, the last one for ever, and keeps the requests."""

    def __init__(self, *answers: Any) -> None:
        self.requests: list[httpx2.Request] = []
        self._answers = itertools.chain(answers, itertools.repeat(answers[-1]))

    @property
    def bodies(self) -> list[Any]:
        return [json.loads(request.content) for request in self.requests]

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        answer = next(self._answers)
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, httpx2.Response) else httpx2.Response(200, json=answer)

    def ask(self, setup: Setup, messages: Sequence[Any] = OPENING, tools: Sequence[Any] = (TOOL,)) -> Turn:
        return asyncio.run(self._ask(setup, messages, tools))

    async def _ask(self, setup: Setup, messages: Sequence[Any], tools: Sequence[Any]) -> Turn:
        self.wire = self.open(setup)
        try:
            return await self.wire.turn(messages, tools)
        finally:
            await self.wire.close()

    def open(self, setup: Setup) -> ModelWire:
        return open_wire(setup, Deadlines(), 2, httpx2.MockTransport(self))


def refusal(
    *answers: Any, provider: str = "openai", messages: Sequence[Any] = OPENING, **changes: Any
) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        Server(*answers).ask(setup(provider, **changes), messages)
    return caught.value


def then(turn: Turn, content: str = "done", error: bool = False) -> list[dict[str, Any]]:
    """The opening, an answer that went through a log, and the results of its calls."""
    results = [
        {"role": "tool", "id": call.id, "name": call.name, "content": content, "error": error, "unwrapped": False}
        for call in turn.calls
    ]
    return [*OPENING, {"role": "assistant", "turn": json.loads(json.dumps(turn.to_json()))}, *results]


MESSAGES_ANSWER = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m-1-2026",
    "content": [
        {"type": "thinking", "thinking": "", "signature": "SIG==", "ünknown": {"a": None}},
        {"type": "redacted_thinking", "data": "ZZZ"},
        {"type": "text", "text": "So."},
        {"type": "tool_use", "id": "toolu_1", "name": "place_order", "input": {"qty": 4, "price": 1.0}, "caller": None},
    ],
    "stop_reason": "tool_use",
    "usage": {
        "input_tokens": 12,
        "cache_creation_input_tokens": 900,
        "cache_read_input_tokens": 70,
        "cache_creation": {"ephemeral_5m_input_tokens": 600, "ephemeral_1h_input_tokens": 300},
        "output_tokens": 30,
        "output_tokens_details": {"thinking_tokens": 18},
    },
}
RESPONSES_ANSWER = {
    "id": "resp_1",
    "object": "response",
    "status": "completed",
    "error": None,
    "incomplete_details": None,
    "model": "m-1-2026",
    "output": [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "ENC", "status": None, "neu": [1.5]},
        {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "So."}]},
        {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "place_order", "arguments": '{"qty": 4}'},
    ],
    "usage": {
        "input_tokens": 1_000,
        "input_tokens_details": {"cached_tokens": 640, "cache_write_tokens": 60},
        "output_tokens": 30,
        "output_tokens_details": {"reasoning_tokens": 18},
        "total_tokens": 1_030,
    },
}
CHAT_ANSWER = {
    "id": "gen-1",
    "object": "chat.completion",
    "model": "m-1-2026",
    "provider": "AcmeCloud",
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "message": {
                "role": "assistant",
                "content": "So.",
                "refusal": None,
                "reasoning_details": [{"type": "reasoning.encrypted", "data": "AAA", "index": 0, "neu": None}],
                "tool_calls": [
                    {
                        "id": "call_1",
                        "type": "function",
                        "index": 0,
                        "function": {"name": "place_order", "arguments": '{"qty": 4}'},
                    }
                ],
            },
        }
    ],
    "usage": {
        "prompt_tokens": 1_000,
        "prompt_tokens_details": {"cached_tokens": 640, "cache_write_tokens": 60},
        "completion_tokens": 30,
        "completion_tokens_details": {"reasoning_tokens": 18},
        "total_tokens": 1_030,
        "cost": 0.00123,
    },
}
ANSWERS = {
    "anthropic": MESSAGES_ANSWER,
    "openai": RESPONSES_ANSWER,
    "openrouter": CHAT_ANSWER,
    "local": CHAT_ANSWER,
}


def changed(answer: Mapping[str, Any], *path: Any, value: Any) -> dict[str, Any]:
    """A deep copy with one field set."""
    copy = json.loads(json.dumps(answer))
    at = copy
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    return copy


# Requests


def test_messages_requests() -> None:
    server = Server(MESSAGES_ANSWER)
    asked = setup("anthropic", effort="low")
    turn = server.ask(asked)
    server.ask(asked, [*then(turn, "Error: no.", error=True), {"role": "user", "content": "Go on."}])

    opening = {"role": "user", "content": [{"type": "text", "text": '{"week": 0}'}]}
    first = {
        "model": "m-1",
        "max_tokens": 99,
        "system": "Rules.",
        "messages": [opening],
        "tools": [{"name": "place_order", "description": "Order.", "input_schema": TOOL["parameters"]}],
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
        "cache_control": {"type": "ephemeral"},
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "low"},
    }
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "Error: no.", "is_error": True}
    told = {"role": "user", "content": [result, {"type": "text", "text": "Go on."}]}
    said = {"role": "assistant", "content": MESSAGES_ANSWER["content"]}
    assert server.bodies == [first, {**first, "messages": [opening, said, told]}]

    request = server.requests[0]
    assert str(request.url) == "https://api.anthropic.com/v1/messages"
    assert request.headers["authorization"] == f"Bearer {CANARY}"
    assert request.headers["anthropic-version"] == "2026-10-21"
    assert not {"http-referer", "x-title"} & set(request.headers)


def test_responses_requests() -> None:
    server = Server(RESPONSES_ANSWER)
    asked = setup("openai", effort="high")
    turn = server.ask(asked)
    server.ask(asked, then(turn))

    opening = {"role": "user", "content": '{"week": 0}'}
    first = {
        "model": "m-1",
        "max_output_tokens": 99,
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "truncation": "disabled",
        "instructions": "Rules.",
        "input": [opening],
        "tools": [{"type": "function", **TOOL, "strict": False}],
        "tool_choice": "auto",
        "parallel_tool_calls": False,
        "reasoning": {"effort": "high"},
    }
    result = {"type": "function_call_output", "call_id": "call_1", "output": "done"}
    assert server.bodies == [first, {**first, "input": [opening, *RESPONSES_ANSWER["output"], result]}]
    assert str(server.requests[0].url) == "https://api.openai.com/v1/responses"
    assert server.requests[0].headers["authorization"] == f"Bearer {CANARY}"


@pytest.mark.parametrize("provider", ["openrouter", "local"])
def test_chat_requests(provider: str) -> None:
    server = Server(CHAT_ANSWER)
    asked = setup(provider, temperature=0.0)
    turn = server.ask(asked)
    server.ask(asked, then(turn))

    first = {
        "model": "m-1",
        "max_tokens": 99,
        "messages": OPENING,
        "tools": [{"type": "function", "function": TOOL}],
        "tool_choice": "auto",
        "parallel_tool_calls": False,
        "temperature": 0.0,
    }
    if provider == "openrouter":
        first["provider"] = {"require_parameters": True}
    result = {"role": "tool", "tool_call_id": "call_1", "content": "done"}
    said = CHAT_ANSWER["choices"][0]["message"]  # type: ignore[index]
    assert server.bodies == [first, {**first, "messages": [*OPENING, said, result]}]

    request = server.requests[0]
    assert str(request.url) == URLS[provider] + "/chat/completions"
    assert ("x-title" in request.headers) == ("http-referer" in request.headers) == (provider == "openrouter")


def test_a_pin_allows_no_other_host() -> None:
    server = Server(CHAT_ANSWER)
    turn = server.ask(setup("openrouter", hosts=("acme",), effort="high"))
    assert server.bodies[0]["provider"] == {"only": ["acme"], "allow_fallbacks": False, "require_parameters": True}
    assert server.bodies[0]["reasoning"] == {"effort": "high"}
    assert (turn.host, turn.usd, turn.model) == ("AcmeCloud", 0.00123, "m-1-2026")


@pytest.mark.parametrize("provider", PROVIDER_NAMES)
def test_nothing_is_sent_that_was_not_asked_for(provider: str) -> None:
    server = Server(ANSWERS[provider])
    server.ask(setup(provider))
    unasked = {"temperature", "top_p", "top_k", "seed", "thinking", "output_config", "reasoning", "stream"}
    assert not unasked & set(server.bodies[0])
    body = dict(server.bodies[0])
    talk = {"model", "system", "messages", "instructions", "input", "tools"}
    assert server.wire.sent == {key: value for key, value in body.items() if key not in talk}


def test_deadlines_reach_the_requests() -> None:
    # 5 s is also the default of the HTTP library, which an SDK takes for "not given" and replaces by its own.
    server = Server(RESPONSES_ANSWER)

    async def ask() -> None:
        wire = open_wire(setup("openai"), Deadlines(connect=5.0, idle=5.0), 2, httpx2.MockTransport(server))
        await wire.turn(OPENING, [TOOL])
        await wire.close()

    asyncio.run(ask())
    assert server.requests[0].extensions["timeout"] == {"connect": 5.0, "read": 5.0, "write": 5.0, "pool": 5.0}


def test_a_temperature_for_anthropic_needs_an_older_version() -> None:
    server = Server(MESSAGES_ANSWER)
    server.ask(setup("anthropic", temperature=0.0))
    assert server.bodies[0]["temperature"] == 0.0
    assert server.requests[0].headers["anthropic-version"] == "2023-06-01"


def test_half_a_surrogate_pair_goes_back_as_it_came() -> None:
    raw = json.dumps(changed(CHAT_ANSWER, "choices", 0, "message", "content", value="\ud83d…")).encode("ascii")
    server = Server(httpx2.Response(200, content=raw))
    turn = server.ask(setup("local"))
    server.ask(setup("local"), then(turn))
    assert server.bodies[1]["messages"][2]["content"] == "\ud83d…"


@pytest.mark.parametrize("provider", PROVIDER_NAMES)
def test_a_turn_without_a_native_form_is_told_in_ours(provider: str) -> None:
    server = Server(ANSWERS[provider])
    turn = Turn(text="So.", calls=(ToolCall("call_7", "place_order", '{"qty": 7}'),))
    server.ask(setup(provider), then(turn))
    sent = json.dumps(server.bodies[0])
    assert sent.count("call_7") == 2  # the call and its result
    assert "So." in sent
    assert "place_order" in sent


# Answers


@pytest.mark.parametrize("provider", PROVIDER_NAMES)
def test_an_answer_is_read(provider: str) -> None:
    turn = Server(ANSWERS[provider]).ask(setup(provider))
    assert [(call.name, json.loads(call.arguments)["qty"]) for call in turn.calls] == [("place_order", 4)]
    assert (turn.text, turn.stop, turn.model) == ("So.", "calls", "m-1-2026")
    assert turn.request_id == ANSWERS[provider]["id"]
    assert Turn.from_json(json.loads(json.dumps(turn.to_json()))) == turn


def test_the_request_id_of_the_headers_comes_first() -> None:
    response = httpx2.Response(200, json=RESPONSES_ANSWER, headers={"x-request-id": "req_9"})
    assert Server(response).ask(setup("openai")).request_id == "req_9"


@pytest.mark.parametrize("provider", PROVIDER_NAMES)
def test_the_parts_of_usage_add_up_to_what_is_billed(provider: str) -> None:
    usage = Server(ANSWERS[provider]).ask(setup(provider)).usage
    assert usage is not None
    if provider == "anthropic":
        assert usage == Usage(input=12, cache_read=70, cache_write_5m=600, cache_write_1h=300, output=30, reasoning=18)
        assert usage.prompt == 12 + 70 + 900
    else:
        assert usage == Usage(input=300, cache_read=640, cache_write_5m=60, output=30, reasoning=18)
        assert usage.prompt == 1_000


def test_odd_usage_still_adds_up() -> None:
    split = changed(MESSAGES_ANSWER, "usage", "cache_creation", value=None)
    assert Server(split).ask(setup("anthropic")).usage == Usage(12, 70, 900, 0, 30, 18)
    beside = changed(CHAT_ANSWER, "usage", "total_tokens", value=1_048)
    usage = Server(beside).ask(setup("local")).usage
    assert usage is not None
    assert usage.output == 48
    more = changed(CHAT_ANSWER, "usage", "prompt_tokens_details", value={"cached_tokens": 5_000})
    assert Server(more).ask(setup("local")).usage == Usage(cache_read=1_000, output=30, reasoning=18)
    more = changed(more, "usage", "prompt_tokens_details", value={"cached_tokens": 900, "cache_write_tokens": 500})
    usage = Server(more).ask(setup("local")).usage
    assert usage == Usage(cache_read=900, cache_write_5m=100, output=30, reasoning=18)
    assert Server(changed(CHAT_ANSWER, "usage", value=None)).ask(setup("local")).usage is None


def test_what_a_router_bills() -> None:
    own_key = changed(CHAT_ANSWER, "usage", "is_byok", value=True)
    own_key["usage"]["cost_details"] = {"upstream_inference_cost": 0.5}
    assert Server(own_key).ask(setup("openrouter")).usd == 0.50123
    assert Server(changed(own_key, "usage", "cost_details", value={})).ask(setup("openrouter")).usd is None
    assert Server(changed(CHAT_ANSWER, "usage", "cost", value=None)).ask(setup("openrouter")).usd is None
    assert Server(CHAT_ANSWER).ask(setup("local")).usd is None


MESSAGES_WORDS = changed(MESSAGES_ANSWER, "content", value=[{"type": "text", "text": "No call."}])
CHAT_WORDS = changed(CHAT_ANSWER, "choices", 0, "message", value={"role": "assistant", "content": "No call."})
RESPONSES_WORDS = changed(RESPONSES_ANSWER, "output", value=RESPONSES_ANSWER["output"][1:2])  # type: ignore[index]


@pytest.mark.parametrize(
    ("provider", "answer", "stop"),
    [
        ("anthropic", changed(MESSAGES_WORDS, "stop_reason", value="end_turn"), "end"),
        ("anthropic", changed(MESSAGES_WORDS, "stop_reason", value="stop_sequence"), "end"),
        ("anthropic", changed(MESSAGES_WORDS, "stop_reason", value="pause_turn"), "end"),
        ("anthropic", changed(MESSAGES_WORDS, "stop_reason", value="max_tokens"), "length"),
        ("anthropic", changed(MESSAGES_WORDS, "stop_reason", value="refusal"), "refusal"),
        (
            "anthropic",
            changed(MESSAGES_WORDS, "stop_reason", value="model_context_window_exceeded"),
            "context_overflow",
        ),
        ("openai", RESPONSES_WORDS, "end"),
        ("openai", {**RESPONSES_WORDS, "status": "incomplete", "incomplete_details": {"reason": "x"}}, "length"),
        (
            "openai",
            {**RESPONSES_ANSWER, "status": "incomplete", "incomplete_details": {"reason": "content_filter"}},
            "refusal",
        ),
        (
            "openai",
            changed(RESPONSES_WORDS, "output", 0, "content", value=[{"type": "refusal", "refusal": "No."}]),
            "refusal",
        ),
        ("local", changed(CHAT_WORDS, "choices", 0, "finish_reason", value="stop"), "end"),
        ("local", changed(CHAT_WORDS, "choices", 0, "finish_reason", value=None), "end"),
        ("local", changed(CHAT_WORDS, "choices", 0, "finish_reason", value="length"), "length"),
        ("local", changed(CHAT_ANSWER, "choices", 0, "finish_reason", value="content_filter"), "refusal"),
        ("local", changed(CHAT_WORDS, "choices", 0, "message", "refusal", value="No."), "refusal"),
        ("local", changed(CHAT_ANSWER, "choices", 0, "finish_reason", value="stop"), "calls"),  # as Ollama has it
    ],
)
def test_stops(provider: str, answer: Any, stop: str) -> None:
    turn = Server(answer).ask(setup(provider))
    assert turn.stop == stop
    assert bool(turn.calls) == (stop == "calls")


CUT = '{"qty": 4'


@pytest.mark.parametrize("provider", PROVIDER_NAMES)
def test_a_call_that_was_cut_is_no_order(provider: str) -> None:
    answer = json.loads(json.dumps(ANSWERS[provider]))
    if provider == "anthropic":
        answer["content"].append({"type": "tool_use", "id": "toolu_2", "name": "place_order", "input": {"qty": 1}})
        answer["stop_reason"] = "max_tokens"
    elif provider == "openai":
        answer["output"].append({**answer["output"][2], "call_id": "call_2", "arguments": CUT})
        answer |= {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    else:
        call = answer["choices"][0]["message"]["tool_calls"][0]
        cut = {**call, "id": "call_2", "function": {"name": "place_order", "arguments": CUT}}
        answer["choices"][0]["message"]["tool_calls"].append(cut)
        answer["choices"][0]["finish_reason"] = "length"
    server = Server(answer)
    turn = server.ask(setup(provider))
    assert [json.loads(call.arguments)["qty"] for call in turn.calls] == [4]
    assert turn.stop == "calls"
    # It is not said to have been called either, for no result would follow.
    server.ask(setup(provider), then(turn))
    assert "_2" not in json.dumps(server.bodies[1])


@pytest.mark.parametrize("provider", PROVIDER_NAMES)
def test_an_answer_with_nothing_but_a_cut_call(provider: str) -> None:
    cut = {"type": "tool_use", "id": "toolu_2", "name": "place_order", "input": {}}
    reasoning, call = RESPONSES_ANSWER["output"][0], RESPONSES_ANSWER["output"][2]  # type: ignore[index]
    chat_call = {"id": "call_2", "type": "function", "function": {"name": "place_order", "arguments": CUT}}
    answer = {
        "anthropic": {**MESSAGES_ANSWER, "content": [cut], "stop_reason": "max_tokens"},
        "openai": {**RESPONSES_ANSWER, "output": [reasoning, {**call, "arguments": CUT}], "status": "incomplete"},
        "openrouter": {
            "choices": [
                {
                    "finish_reason": "length",
                    "message": {"role": "assistant", "content": None, "tool_calls": [chat_call]},
                }
            ]
        },
    }
    answer["local"] = answer["openrouter"]
    server = Server(answer[provider])
    turn = server.ask(setup(provider))
    assert (turn.stop, turn.calls) == ("length", ())
    server.ask(setup(provider), [*then(turn), {"role": "user", "content": "Shorter."}])
    talk = server.bodies[1].get("messages", server.bodies[1].get("input"))
    if provider == "openai":  # reasoning goes back only with what it led to
        assert talk == [{"role": "user", "content": '{"week": 0}'}, {"role": "user", "content": "Shorter."}]
    else:
        assert talk[-2]["role"] == "assistant"
        assert talk[-2]["content"] in ("", [{"type": "text", "text": "(cut off)"}])
        assert not talk[-2].get("tool_calls")


def test_blank_text_does_not_go_back_on_messages() -> None:
    thinking, _, text, use = MESSAGES_ANSWER["content"]  # type: ignore[misc]
    blank = {**text, "text": "\n"}
    turn = Server({**MESSAGES_ANSWER, "content": [thinking, blank, use]}).ask(setup("anthropic"))
    assert (turn.text, turn.extra) == ("", [thinking, use])
    nothing = {**MESSAGES_ANSWER, "content": [blank], "stop_reason": "end_turn"}
    turn = Server(nothing).ask(setup("anthropic"))
    assert (turn.text, turn.stop) == ("", "end")
    assert turn.extra[0]["text"].strip()


@pytest.mark.parametrize("name", [None, "", 7])
def test_calls_get_ids_of_their_own(name: Any) -> None:
    answer = json.loads(json.dumps(CHAT_ANSWER))
    call = answer["choices"][0]["message"]["tool_calls"][0]
    answer["choices"][0]["message"]["tool_calls"] = [{**call, "id": given} for given in ("a", "a", name)]
    server = Server(answer)
    turn = server.ask(setup("local"))
    ids = [call.id for call in turn.calls]
    assert ids == ["a", "call_0_1", "call_0_2"]
    assert turn == Server(answer).ask(setup("local"))
    server.ask(setup("local"), then(turn))
    said, *results = server.bodies[1]["messages"][2:]
    assert [call["id"] for call in said["tool_calls"]] == [result["tool_call_id"] for result in results] == ids


@pytest.mark.parametrize("arguments", ["", "{qty: 4}", '"{}"', "[]"])
def test_malformed_arguments_go_back_in_an_object_on_chat(arguments: str) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "place_order", "arguments": arguments}}
    answer = changed(CHAT_ANSWER, "choices", 0, "message", "tool_calls", value=[call])
    server = Server(answer)
    turn = server.ask(setup("local"))
    assert turn.calls == (ToolCall("c", "place_order", arguments),)
    server.ask(setup("local"), then(turn))
    sent = server.bodies[1]["messages"][2]["tool_calls"][0]["function"]
    assert json.loads(sent["arguments"]) == {"malformed": arguments}


# Failures


@pytest.mark.parametrize("provider", PROVIDER_NAMES)
@pytest.mark.parametrize(
    ("status", "error", "fault"),
    [
        (400, {"message": "bad"}, Fault.REJECTED),
        (400, {"message": "acme/m is not a valid model ID"}, Fault.ACCOUNT),
        (400, {"message": "Your credit balance is too low to access the API."}, Fault.QUOTA),
        (400, {"message": "no such model", "code": "model_not_found"}, Fault.ACCOUNT),
        (401, {"message": "bad key"}, Fault.ACCOUNT),
        (402, {"message": "pay"}, Fault.QUOTA),
        (403, {"message": "no"}, Fault.ACCOUNT),
        (404, {"message": "no such model"}, Fault.ACCOUNT),
        (408, {"message": "slow"}, Fault.TRANSIENT),
        (409, {"message": "clash"}, Fault.TRANSIENT),
        (418, {"message": "tea"}, Fault.REJECTED),
        (425, {"message": "early"}, Fault.TRANSIENT),
        (429, {"message": "slow down"}, Fault.THROTTLED),
        (429, {"message": "broke", "code": "insufficient_quota"}, Fault.QUOTA),
        (429, {"message": "broke", "type": "insufficient_quota", "code": None}, Fault.QUOTA),
        (500, {"message": "oops"}, Fault.TRANSIENT),
        (503, {"message": "oops"}, Fault.TRANSIENT),
        (529, {"message": "full"}, Fault.TRANSIENT),
        (302, {"message": "moved"}, Fault.REJECTED),
    ],
)
def test_faults_by_status(provider: str, status: int, error: Any, fault: Fault) -> None:
    caught = refusal(httpx2.Response(status, json={"error": error}), provider=provider)
    assert (caught.fault, caught.billed, caught.after) == (fault, False, None)
    assert error["message"] in str(caught)
    assert str(status) in str(caught)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"error": "model is loading"}, "model is loading"),
        ({"object": "error", "message": "vLLM says no", "code": 500}, "vLLM says no"),
        ({"detail": [{"loc": ["body"], "msg": "field required"}]}, "field required"),
        ({"error": {"message": "Provider returned error", "metadata": {"raw": '{"oh": "dear"}'}}}, "dear"),
        ([1], "[1]"),
        ({"error": {"code": 500}}, "500"),
    ],
)
def test_every_form_of_error_body_is_read(body: Any, words: str) -> None:
    assert words in str(refusal(httpx2.Response(500, json=body)))


@pytest.mark.parametrize("provider", PROVIDER_NAMES)
def test_no_redirect_takes_the_key_along(provider: str) -> None:
    server = Server(httpx2.Response(307, json={}, headers={"location": "http://elsewhere.invalid/"}), ANSWERS[provider])
    with pytest.raises(ProviderError, match="307"):
        server.ask(setup(provider))
    assert len(server.requests) == 1


def test_html_and_long_errors_are_shown_short() -> None:
    page = "<html><head><style>b {}</style><title>Bad gateway</title></head><body>" + "x" * 5_000 + "</body></html>"
    caught = refusal(httpx2.Response(502, text=page))
    assert caught.fault is Fault.TRANSIENT
    assert "an HTML page: Bad gateway" in str(caught)
    assert "<" not in str(caught)
    assert len(str(caught)) < 500


@pytest.mark.parametrize(
    ("headers", "after"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "3600"}, 3_600.0),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({}, None),
    ],
)
@pytest.mark.parametrize("status", [429, 503])
def test_how_long_to_wait(headers: dict[str, str], after: float | None, status: int) -> None:
    assert refusal(httpx2.Response(status, json={}, headers=headers)).after == after


def test_a_date_to_wait_for() -> None:
    moment = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=90)
    date = email.utils.format_datetime(moment, usegmt=True)
    after = refusal(httpx2.Response(429, json={}, headers={"retry-after": date})).after
    assert after is not None
    assert 80 < after <= 90
    past = {"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}
    assert refusal(httpx2.Response(429, json={}, headers=past)).after == 0.0


@pytest.mark.parametrize("provider", PROVIDER_NAMES)
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (httpx2.Response(200, text="<!doctype html><title>Sign in</title>"), "Sign in"),
        (httpx2.Response(200, text=""), "empty"),
        (httpx2.Response(200, text="[]"), "[]"),
        (httpx2.Response(200, text='{"choices": [NaN], "content": [1e999], "output": [NaN]}'), "without a JSON object"),
        ({"error": {"code": 502, "message": "upstream broke"}}, "upstream broke"),
        ({"error": "upstream broke"}, "upstream broke"),
        ({}, "no "),
        ({"choices": None, "output": None, "content": None}, "no "),
        ({"choices": [], "output": {}, "content": "text"}, "no "),
        ({"choices": [{"finish_reason": "stop"}]}, "no "),
        ({"choices": [{"finish_reason": "error", "message": {"content": "I wa"}}]}, "no "),
    ],
)
def test_a_200_without_an_answer(provider: str, answer: Any, words: str) -> None:
    caught = refusal(answer, provider=provider)
    assert (caught.fault, caught.billed) == (Fault.TRANSIENT, True)
    assert words in str(caught)


def test_an_error_inside_a_200_counts_as_what_it_says() -> None:
    for code, fault, billed in ((429, Fault.THROTTLED, False), (402, Fault.QUOTA, False), (400, Fault.REJECTED, True)):
        caught = refusal({"error": {"code": code, "message": "no"}}, provider="openrouter")
        assert (caught.fault, caught.billed) == (fault, billed)
    choice = {"finish_reason": "error", "error": {"code": 502, "message": "host died"}, "message": {"content": ""}}
    caught = refusal({"choices": [choice]}, provider="openrouter")
    assert (caught.fault, caught.billed) == (Fault.TRANSIENT, True)
    assert "host died" in str(caught)
    failed = {**RESPONSES_ANSWER, "status": "failed", "error": {"code": "server_error", "message": "sorry"}}
    assert refusal(failed).fault is Fault.TRANSIENT
    throttled = {**RESPONSES_ANSWER, "status": "failed", "error": {"code": "rate_limit_exceeded", "message": "sorry"}}
    assert refusal(throttled).fault is Fault.THROTTLED
    assert "cancelled" in str(refusal({**RESPONSES_ANSWER, "status": "cancelled"}))


@pytest.mark.parametrize("provider", PROVIDER_NAMES)
@pytest.mark.parametrize(
    ("error", "fault", "billed"),
    [
        (httpx2.ReadTimeout("slow"), Fault.TIMEOUT, True),
        (httpx2.ConnectTimeout("slow"), Fault.TIMEOUT, False),
        (httpx2.PoolTimeout("slow"), Fault.TIMEOUT, False),
        (httpx2.ConnectError("refused"), Fault.TRANSIENT, False),
        (httpx2.ReadError("reset"), Fault.TRANSIENT, True),
        (httpx2.RemoteProtocolError("hung up"), Fault.TRANSIENT, True),
    ],
)
def test_lost_connections(provider: str, error: Exception, fault: Fault, billed: bool) -> None:
    caught = refusal(error, provider=provider)
    assert (caught.fault, caught.billed) == (fault, billed)
    assert str(error) in str(caught)
    assert URLS[provider] in str(caught)


def test_no_attempt_is_repeated() -> None:
    for provider in PROVIDER_NAMES:
        for answer in (httpx2.Response(503, json={}), httpx2.Response(429, json={}), httpx2.ReadError("reset")):
            server = Server(answer)
            with pytest.raises(ProviderError):
                server.ask(setup(provider))
            assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, {"message": "too long", "code": "context_length_exceeded"}),
        (400, {"message": "prompt is too long: 210000 tokens > 200000 maximum", "type": "invalid_request_error"}),
        (400, {"message": "input length and `max_tokens` exceed context limit: 190000 + 16000 > 200000"}),
        (413, {"message": "Request exceeds the maximum size", "type": "request_too_large"}),
        (400, {"message": "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens."}),
        (400, {"message": "The decoder prompt (length 5000) is longer than the maximum model length of 4096."}),
        (400, {"message": "the request exceeds the available context size", "type": "exceed_context_size_error"}),
        (400, {"message": "Your input exceeds the context window of this model."}),
        (400, {"message": "The input token count (5000) exceeds the maximum number of tokens allowed"}),
        (200, {"code": 400, "message": "This endpoint's maximum context length is 4096 tokens"}),
        (200, {"code": "context_length_exceeded", "message": "too long"}),
    ],
)
@pytest.mark.parametrize("provider", PROVIDER_NAMES)
def test_a_full_context_is_an_answer(provider: str, status: int, error: Any) -> None:
    turn = Server(httpx2.Response(status, json={"error": error})).ask(setup(provider))
    assert turn == Turn(stop="context_overflow")


def test_a_limit_on_answers_is_no_full_context() -> None:
    words = "max_tokens: 64000 > 32000, which is the maximum allowed number of output tokens"
    assert refusal(httpx2.Response(400, json={"error": {"message": words}})).fault is Fault.REJECTED
    assert refusal(httpx2.Response(429, json={"error": {"message": "context window tokens a minute"}})).fault is (
        Fault.THROTTLED
    )


# Secrets


def texts(error: BaseException | None) -> list[str]:
    """All that a traceback could print: messages and reprs, causes and contexts."""
    if error is None:
        return []
    return [str(error), repr(error), *texts(error.__cause__), *texts(error.__context__)]


@pytest.mark.parametrize("provider", PROVIDER_NAMES)
@pytest.mark.parametrize(
    "answer",
    [
        httpx2.Response(401, json={"error": {"message": f"Incorrect API key provided: {CANARY}", "code": CANARY}}),
        httpx2.Response(500, text=json.dumps({"error": {"message": CANARY}}).replace("/", "\\/")),
        httpx2.Response(502, text=f"<html>Authorization: Bearer {CANARY}</html>"),
        httpx2.Response(200, text=f"<html>Authorization: Bearer {CANARY}</html>"),
        {"error": {"code": 502, "message": f"sent {CANARY}"}},
        httpx2.ConnectError(f"cannot reach http://user:{CANARY}@host"),
    ],
)
def test_no_failure_shows_the_key(provider: str, answer: Any) -> None:
    shown = "\n".join(texts(refusal(answer, provider=provider)))
    assert "canary" not in shown
    assert "[redacted]" in shown


def test_other_credentials_are_not_shown_either() -> None:
    body = {"error": {"message": "Authorization: Basic dXNlcjpwYXNzd29yZA== at http://user:pass@proxy:3128/"}}
    shown = str(refusal(httpx2.Response(500, json=body)))
    assert "dXNl" not in shown
    assert "user:pass" not in shown
    assert "proxy:3128" in shown


@pytest.mark.parametrize("provider", PROVIDER_NAMES)
def test_an_answer_that_repeats_the_key_comes_without_it(provider: str) -> None:
    answer = json.dumps(ANSWERS[provider]).replace("So.", f"Bearer {CANARY}".replace("/", "\\/"))
    turn = Server(httpx2.Response(200, text=answer)).ask(setup(provider))
    assert turn.text == "Bearer [redacted]"
    assert "canary" not in json.dumps(turn.to_json())
    assert len(turn.calls) == 1


def test_a_placeholder_key_is_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_API_KEY", "ollama")
    answer = changed(CHAT_WORDS, "choices", 0, "message", "content", value="ollama")
    assert Server(answer).ask(setup("local")).text == "ollama"


# Refused options


def refuses(parameter: str, words: str, blame: str | None = None) -> Handler:
    """A model that answers 400 to a parameter, wherever in the body it is."""

    def handler(request: httpx2.Request) -> httpx2.Response:
        body = json.loads(request.content)
        if f'"{parameter}"' in json.dumps(body):
            return httpx2.Response(400, json={"error": {"message": words, "param": blame}})
        path = request.url.path
        provider = "anthropic" if "messages" in path else "openai" if "responses" in path else "local"
        return httpx2.Response(200, json=ANSWERS[provider])

    return handler


@pytest.mark.parametrize(
    ("provider", "parameter", "name", "words", "blame"),
    [
        ("anthropic", "cache_control", "cache_control", "cache_control: Extra inputs are not permitted", None),
        (
            "anthropic",
            "disable_parallel_tool_use",
            "disable_parallel_tool_use",
            "tool_choice.auto.disable_parallel_tool_use: Extra inputs are not permitted",
            None,
        ),
        ("anthropic", "thinking", "thinking", "adaptive thinking is not supported on this model", None),
        ("anthropic", "output_config", "effort", "This model does not support the effort parameter.", None),
        ("anthropic", "temperature", "temperature", "`temperature` is deprecated for this model.", None),
        ("openai", "include", "include", "Encrypted content is not supported with this model.", "include"),
        ("openai", "parallel_tool_calls", "parallel_tool_calls", "No.", "parallel_tool_calls"),
        ("openai", "truncation", "truncation", "No.", "truncation"),
        ("openai", "effort", "effort", "Unsupported value", "reasoning.effort"),
        ("openai", "temperature", "temperature", "Unsupported parameter: 'temperature'", "temperature"),
        ("openrouter", "require_parameters", "require_parameters", "unknown key require_parameters", None),
        ("openrouter", "reasoning", "effort", "this host knows no reasoning", None),
        ("local", "parallel_tool_calls", "parallel_tool_calls", "parallel_tool_calls is not supported", None),
        ("local", "temperature", "temperature", "temperature must be 1", None),
    ],
)
def test_a_refused_option_is_dropped_once_and_recorded(
    provider: str, parameter: str, name: str, words: str, blame: str | None
) -> None:
    requests: list[Any] = []

    def handler(request: httpx2.Request) -> httpx2.Response:
        requests.append(json.loads(request.content))
        return refuses(parameter, words, blame)(request)

    async def ask() -> ModelWire:
        asked = setup(provider, temperature=0.0, effort=None if provider == "local" else "low")
        wire = open_wire(asked, Deadlines(), 2, httpx2.MockTransport(handler))
        assert f'"{parameter}"' in json.dumps(wire.sent)
        for _ in range(2):
            assert (await wire.turn(OPENING, [TOOL])).calls
        await wire.close()
        return wire

    wire = asyncio.run(ask())
    assert wire.dropped == {name: words}
    assert [f'"{parameter}"' in json.dumps(request) for request in requests] == [True, False, False]
    assert f'"{parameter}"' not in json.dumps(wire.sent)
    assert set(wire.sent) >= {"tool_choice"}


def test_a_dropped_temperature_takes_its_header_along() -> None:
    server = Server(httpx2.Response(400, json={"error": {"message": "temperature: no"}}), MESSAGES_ANSWER)
    server.ask(setup("anthropic", temperature=0.0))
    assert [r.headers["anthropic-version"] for r in server.requests] == ["2023-06-01", "2026-10-21"]


def test_requests_under_way_together_all_get_their_answer() -> None:
    async def ask() -> Mapping[str, str]:
        handler = refuses("temperature", "temperature: no")
        wire = open_wire(setup("local", temperature=0.0), Deadlines(), 8, httpx2.MockTransport(handler))
        turns = await asyncio.gather(*(wire.turn(OPENING, [TOOL]) for _ in range(8)))
        assert all(turn.calls for turn in turns)
        await wire.close()
        return wire.dropped

    assert asyncio.run(ask()) == {"temperature": "temperature: no"}


@pytest.mark.parametrize(
    ("words", "blame"),
    [
        ("temperature cannot be changed while thinking is on", None),  # either could go
        ("messages.1.content.0: thinking blocks cannot be modified", None),
        ("tools.0.input_schema: invalid", None),
        ("bad", "input[2].content"),
        ("thinking is off", "temperature.value in input[0]"),
    ],
)
def test_nothing_is_dropped_on_a_guess(words: str, blame: str | None) -> None:
    server = Server(httpx2.Response(400, json={"error": {"message": words, "param": blame}}))
    with pytest.raises(ProviderError, match="HTTP 400") as caught:
        server.ask(setup("anthropic", temperature=0.0, effort="low"))
    assert caught.value.fault is Fault.REJECTED
    assert len(server.requests) == 1
    assert server.wire.dropped == {}


# Conversations cut in silence


def after(*usages: Usage) -> list[Any]:
    turns = [{"role": "assistant", "turn": Turn(text="x", stop="end", usage=usage).to_json()} for usage in usages]
    return [*OPENING, *turns]


def reports(prompt: int, output: int = 30) -> dict[str, Any]:
    return changed(CHAT_ANSWER, "usage", value={"prompt_tokens": prompt, "completion_tokens": output})


@pytest.mark.parametrize(
    ("before", "now", "seen"),
    [
        (Usage(input=3_000, output=50), reports(2_900), "shrank from 3000 to 2900"),
        (Usage(input=1_000, cache_read=2_000, output=50), reports(2_900), "shrank from 3000 to 2900"),
        (Usage(input=4_096, output=50), reports(4_096), "the prompt stuck at 4096"),
        (Usage(input=4_000, output=96), reports(4_050, 46), "prompt and answer stuck at 4096"),
    ],
)
def test_a_server_that_cuts_conversations_is_found_out(before: Usage, now: Any, seen: str) -> None:
    caught = refusal(now, provider="local", messages=after(before))
    assert caught.fault is Fault.TRUNCATED
    assert str(caught).startswith("context_truncated_by_server")
    for cure in (seen, "OLLAMA_CONTEXT_LENGTH", "--max-model-len"):
        assert cure in str(caught)


@pytest.mark.parametrize(
    ("provider", "before", "now"),
    [
        ("local", [Usage(input=3_000, output=50)], reports(3_100)),
        ("local", [Usage(input=3_000, output=50, reasoning=40)], reports(2_970)),  # reasoning is left out later
        ("local", [Usage(input=4_096, output=50)], reports(4_200)),
        ("local", [Usage(input=512, output=5)], reports(512)),
        ("local", [Usage(input=3_000)], changed(CHAT_ANSWER, "usage", value=None)),
        ("local", [], reports(4_096)),
        ("openrouter", [Usage(input=3_000, output=50)], reports(2_900)),  # other hosts may count otherwise
    ],
)
def test_no_server_is_accused_wrongly(provider: str, before: list[Usage], now: Any) -> None:
    assert Server(now).ask(setup(provider), after(*before)).calls


# Model strings

PRICE = Price(1.0, 2.0, 0.1, 1.25, 2.0, "2026-11-30")


@pytest.mark.parametrize(
    ("model", "provider", "name"),
    [
        ("anthropic/claude-x", "anthropic", "claude-x"),
        ("openai/gpt-x", "openai", "gpt-x"),
        ("openrouter/x-ai/grok-4.5:free", "openrouter", "x-ai/grok-4.5:free"),
        ("local/org/model:8b", "local", "org/model:8b"),
    ],
)
def test_model_strings(model: str, provider: str, name: str) -> None:
    url = "http://localhost:8000/v1/" if provider == "local" else None
    agent = api_agent(model, base_url=url, prices={model: PRICE})
    service = agent.service
    assert service is not None
    assert (agent.model, agent.reads, agent.open) == (model, True, None)
    assert (service.provider, service.model, service.price) == (provider, name, PRICE)
    assert service.base_url == ("http://localhost:8000/v1" if url else URLS[provider])
    assert service.free == service.local == (provider == "local")
    assert service.max_output_tokens == (4_096 if provider == "local" else 16_000)
    assert CANARY not in repr(agent) + json.dumps(dict(agent.settings))
    asyncio.run(service.connect(Deadlines(), 64).close())


def test_settings_are_what_was_asked_for() -> None:
    plain = api_agent("openrouter/acme/m", prices={})
    assert plain.settings == {"provider": "openrouter", "model": "acme/m", "max_output_tokens": 16_000}
    full = api_agent(
        "openrouter/acme/m",
        effort="high",
        temperature=0,
        base_url="http://localhost:1/v1",
        max_output_tokens=500,
        openrouter_provider="a, b",
        prices={},
    )
    assert full.settings == {
        "provider": "openrouter",
        "model": "acme/m",
        "base_url": "http://localhost:1/v1",
        "max_output_tokens": 500,
        "effort": "high",
        "temperature": 0.0,
        "hosts": ["a", "b"],
    }


@pytest.mark.parametrize(
    ("model", "options", "right"),
    [
        ("mistral/m", {}, "anthropic/NAME"),
        ("openai/", {}, "openai/NAME"),
        ("openrouter/m", {}, "openrouter/VENDOR/NAME"),
        ("local/m", {}, "--base-url"),
        ("local/m", {"base_url": "localhost:8000"}, "http://localhost:8000/v1"),
        ("local/m", {"base_url": "http://localhost:8000/v1?key=canary"}, "no more"),
        ("local/m", {"base_url": "http://canary:canary/v1"}, "no more"),
        ("local/m", {"base_url": "http://user:canary@localhost:8000/v1"}, "LOCAL_API_KEY"),
        ("anthropic/m", {"base_url": "http://localhost:8000/v1/"}, "before /v1"),
        ("local/m", {"base_url": "http://localhost:1", "effort": "high"}, "leave it out"),
        ("anthropic/m", {"effort": "hgih"}, "low, medium, high, xhigh, max"),
        ("openai/m", {"temperature": 3}, "0 to 2"),
        ("openai/m", {"temperature": float("nan")}, "0 to 2"),
        ("openai/m", {"max_output_tokens": 0}, "1 or more"),
        ("openai/m", {"openrouter_provider": "acme"}, "openrouter/VENDOR/NAME"),
        ("openrouter/a/m", {"openrouter_provider": ","}, "name one"),
    ],
)
def test_bad_use_is_told_what_would_be_right(model: str, options: dict[str, Any], right: str) -> None:
    with pytest.raises(UsageError) as caught:
        api_agent(model, prices={}, **options)
    assert right in str(caught.value)
    assert "canary" not in str(caught.value)
    assert str(caught.value).endswith(".")


def test_keys_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = api_agent("openai/m", prices={})
    assert agent.service is not None
    for value in ("", "   "):
        monkeypatch.setenv("OPENAI_API_KEY", value)
        with pytest.raises(UsageError, match="set OPENAI_API_KEY"):
            api_agent("openai/m", prices={})
        with pytest.raises(UsageError, match="set OPENAI_API_KEY"):
            agent.service.connect(Deadlines(), 1)
    monkeypatch.setenv("OPENAI_API_KEY", "canary\tkey")
    with pytest.raises(UsageError, match="OPENAI_API_KEY holds characters") as caught:
        api_agent("openai/m", prices={})
    assert "canary" not in str(caught.value)
    monkeypatch.delenv("LOCAL_API_KEY")
    api_agent("local/m", base_url="http://localhost:1/v1", prices={})


def test_headers_out_of_the_environment_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", "x-api-key: canary")
    with pytest.raises(UsageError, match="ANTHROPIC_CUSTOM_HEADERS"):
        api_agent("anthropic/m", prices={})
    api_agent("openai/m", prices={})


def test_a_missing_sdk_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'stocktake-jax\[llm\]'"):
        api_agent("openai/m", prices={})


# Looking models up


def found(provider: str, answer: Any, model: str = "m-1") -> tuple[Mapping[str, Any], str]:
    server = Server(answer)

    async def ask() -> Mapping[str, Any]:
        wire = server.open(setup(provider, model=model))
        try:
            return await wire.look_up()
        finally:
            await wire.close()

    sizes = asyncio.run(ask())
    assert server.requests[0].method == "GET"
    return sizes, str(server.requests[0].url)


def test_models_are_looked_up() -> None:
    sizes, url = found("anthropic", {"id": "m-1", "max_input_tokens": 200_000, "max_tokens": 64_000})
    assert (sizes, url) == ({"context": 200_000, "max_output": 64_000}, "https://api.anthropic.com/v1/models/m-1")
    sizes, url = found("openai", {"id": "m-1", "object": "model"})
    assert (sizes, url) == ({"context": None, "max_output": None}, "https://api.openai.com/v1/models/m-1")
    entry = {"id": "a/m:free", "context_length": 131_072, "top_provider": {"max_completion_tokens": 8_192}}
    others = [{"id": "a/m", "context_length": 1}, entry]
    sizes, url = found("openrouter", {"data": others}, "a/m:free")
    assert (sizes, url) == ({"context": 131_072, "max_output": 8_192}, "https://openrouter.ai/api/v1/models")
    assert found("openrouter", {"data": others}, "a/m:nitro")[0] == {"context": 1, "max_output": None}
    assert found("local", {"data": [{"id": "m-1", "max_model_len": 4_096}]})[0]["context"] == 4_096
    assert found("local", {"data": [{"id": "m-1:latest"}]})[0] == {"context": None, "max_output": None}


@pytest.mark.parametrize("provider", PROVIDER_NAMES)
def test_a_model_that_does_not_exist(provider: str) -> None:
    listed = provider in ("openrouter", "local")
    answer = {"data": [{"id": "other"}]} if listed else httpx2.Response(404, json={"error": {"message": "no other"}})
    with pytest.raises(ProviderError, match="other") as caught:
        found(provider, answer)
    assert caught.value.fault is Fault.ACCOUNT
