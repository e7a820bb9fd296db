"""A server on 127.0.0.1 that speaks the three wires, and fails in every way that real ones do.

    from tests.agents.loopback import Loopback

    with Loopback(faults={"throttled": 0.1, "malformed": 0.05}, latency=0.01) as server:
        agent = api_agent("local/fake", base_url=server.url("local"), prices={})

or, for another process, ``python tests/agents/loopback.py --port 0 --fault throttled=0.1``, whose first line of output
is its address; end it by its process id.

**The model** is a pure function of the conversation: it reads the latest report, answers like a base-stock rule through
``place_order``, pulls another lever now and then, and takes its ids and its reasoning from a hash of what it was sent.
It insists on getting its reasoning back byte for byte and answers 400 otherwise. A model fault belongs to the answer to
a conversation, so it comes again whenever that is sent.

**The network** fails by (conversation, attempt): a transport fault hits an attempt and leaves the final answer as it
would have been. From attempt ``faulty_attempts`` on it holds, so that retries end.

====================== ==========================================================================================
transport fault        what happens
====================== ==========================================================================================
throttled              429 with Retry-After
unavailable            502 with an HTML page
overloaded             529, JSON
error_200              200 whose body is an error
html_200               200 with an HTML page
drop                   the connection closes without an answer
cut                    the connection closes in the middle of an answer
hang                   no answer, for ``hang`` seconds
leak                   500 whose body repeats the Authorization header
====================== ==========================================================================================

====================== ==========================================================================================
model fault            what the answer holds
====================== ==========================================================================================
malformed              arguments that are no JSON (on Messages, whose arguments are JSON already: no object)
doubled                arguments encoded twice (on Messages: their ``contract``)
out_of_range           an order of -5 units
silent                 no call
refusal                a refusal
length                 an answer cut in the middle of a call
unknown_tool           a call of a tool that does not exist
twice                  two orders
echo                   the Authorization header in its text, beside the usual call
====================== ==========================================================================================
"""

import argparse
import asyncio
import contextlib
import hashlib
import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

TRANSPORT_FAULTS = (
    "throttled",
    "unavailable",
    "overloaded",
    "error_200",
    "html_200",
    "drop",
    "cut",
    "hang",
    "leak",
)
MODEL_FAULTS = (
    "malformed",
    "doubled",
    "out_of_range",
    "silent",
    "refusal",
    "length",
    "unknown_tool",
    "twice",
    "echo",
)
BASES = {"anthropic": "", "openai": "/v1", "openrouter": "/v1", "local": "/v1"}
LISTED = ("fake", "vendor/fake")  # what it says it serves; it answers to every name that has no "missing" in it
LEVEL = 93  # the base-stock level of the rule it plays
HTML = "<!DOCTYPE html><html><head><title>Bad gateway</title></head><body><h1>502</h1><p>Bad gateway</p></body></html>"
_REASONING = 20  # tokens of every answer


@dataclass(frozen=True)
class Request:
    """One request as it came.

    Attributes:
        method, path, headers: of HTTP; header names in lower case.
        content: the body's bytes.
        time: of its arrival, ``time.monotonic`` seconds.
        attempt: how often the same conversation had been sent before.
        fault: the transport fault it met, or None.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    content: bytes
    time: float
    attempt: int = 0
    fault: str | None = None

    @property
    def body(self) -> Any:
        """The body as JSON."""
        return json.loads(self.content)


@dataclass(frozen=True)
class Answer:
    """What goes back: a status, a body and headers; ``cut`` sends half of the body and closes."""

    status: int
    body: Any
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: bool = False


class Refusal(Exception):
    """A request that the model does not answer: status, message, and the fields of the error's body."""

    def __init__(self, status: int, message: str, **fields: Any) -> None:
        super().__init__(message)
        self.status = status
        self.fields = fields


class Loopback:
    """The server, in a thread of its own.

    Attributes:
        requests: every request so far, in order of arrival.
        peak: the most that were under way at a time.
    """

    def __init__(
        self,
        *,
        faults: Mapping[str, float] | None = None,
        seed: int = 0,
        latency: float = 0.0,
        faulty_attempts: int = 2,
        retry_after: str = "0.02",
        hang: float = 3_600.0,
        key: str | None = None,
        refuses: Sequence[str] = (),
        context: int | None = None,
        silent_context: bool = False,
        levers: float = 0.1,
        bodies: bool = True,
        port: int = 0,
    ) -> None:
        """Listens once it is entered as a context.

        Args:
            faults: rates, 0 to 1, by the names of the tables above.
            seed: of the faults' dice.
            latency: seconds before every answer.
            faulty_attempts: attempts at one conversation which a transport fault may hit.
            retry_after: value of that header.
            hang: seconds.
            key: the only key it accepts; None accepts any.
            refuses: top-level parameters that it answers 400 to.
            context: tokens of the model's context; a longer conversation is a 400.
            silent_context: whether it cuts a longer conversation in silence instead, as some local servers do.
            levers: how often another lever is pulled before the order.
            bodies: whether ``requests`` keep their bodies, about 1.5 MB for an episode.
            port: 0 takes a free one.
        """
        self.faults = dict(faults or {})
        unknown = set(self.faults) - {*TRANSPORT_FAULTS, *MODEL_FAULTS}
        if unknown:
            raise ValueError(f"no such faults: {', '.join(sorted(unknown))}")
        self.seed, self.latency, self.faulty_attempts = seed, latency, faulty_attempts
        self.retry_after, self.hang, self.key, self.refuses = retry_after, hang, key, refuses
        self.context, self.silent_context, self.levers = context, silent_context, levers
        self.bodies, self.port = bodies, port
        self.requests: list[Request] = []
        self.peak = 0
        self._under_way = 0
        self._attempts: dict[str, int] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._ready = threading.Event()

    def url(self, provider: str) -> str:
        """The base URL to give for ``anthropic``, ``openai``, ``openrouter`` or ``local``."""
        return self.root + BASES[provider]

    @property
    def root(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> "Loopback":
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._loop.close()

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        self._connections: set[asyncio.Task[None]] = set()
        server = await asyncio.start_server(self._connected, "127.0.0.1", self.port, backlog=1_024)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await asyncio.sleep(0)  # the transports close

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        # A client that goes away, and a server that stops, end a connection; neither is an error here.
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while (request := await _read(reader)) is not None:
                self._under_way += 1
                self.peak = max(self.peak, self._under_way)
                try:
                    answer = await self._answer(request, reader)
                finally:
                    self._under_way -= 1
                if answer is None:
                    break
                writer.write(_bytes(answer))
                await writer.drain()
                if answer.cut:
                    break
        self._connections.discard(task)
        writer.close()

    async def _answer(self, request: Request, reader: asyncio.StreamReader) -> Answer | None:
        """The answer to a request; None closes the connection."""
        if self.latency:
            await asyncio.sleep(self.latency)
        try:
            answer = self._model(request)
        except Refusal as refusal:
            answer = _error(request, refusal)
        fault, authorization = self.requests[-1].fault, request.headers.get("authorization", "")
        if fault == "hang":
            # Until the client gives up: it closes its end, or the time is over.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(reader.read(1), self.hang)
            return None
        if fault == "drop":
            return None
        if fault == "cut":
            return Answer(answer.status, answer.body, answer.headers, cut=True)
        failures = {
            "throttled": _error(request, Refusal(429, "slow down", type="rate_limit_error")),
            "unavailable": Answer(502, HTML),
            "overloaded": _error(request, Refusal(529, "overloaded", type="overloaded_error")),
            "error_200": Answer(200, {"error": {"code": 502, "message": "the upstream host failed"}}),
            "html_200": Answer(200, HTML),
            "leak": Answer(500, {"error": {"message": f"failed with Authorization: {authorization}"}}),
        }
        failed = failures.get(str(fault), answer)
        if failed.status == 429:
            return Answer(429, failed.body, {"Retry-After": self.retry_after})
        return failed

    def _model(self, request: Request) -> Answer:
        """The model's answer; records the request with the fault that it is to meet."""
        name = f"{request.method} {request.path}"
        speak = {"/messages": _Messages, "/responses": _Responses, "/chat/completions": _Chat}
        wire = next((speak[end] for end in speak if request.path.endswith(end)), None)
        try:
            talk = wire(request.body) if wire and request.method == "POST" else None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self.requests.append(request)
            raise Refusal(400, f"the request cannot be read: {error!r}") from error
        if talk is None:
            self.requests.append(request)
            self._check_key(request)
            return self._listed(request, name)

        attempt = self._attempts.get(talk.hash, 0)
        self._attempts[talk.hash] = attempt + 1
        fault = self._draw(TRANSPORT_FAULTS, talk.hash, str(attempt)) if attempt < self.faulty_attempts else None
        content = request.content if self.bodies else b""
        self.requests.append(replace(request, content=content, attempt=attempt, fault=fault))
        self._check_key(request)
        if "missing" in talk.model:
            raise Refusal(404, f"The model {talk.model} does not exist", code="model_not_found", type="not_found_error")
        for parameter in self.refuses:
            if parameter in request.body:
                raise Refusal(400, f"{parameter} is not supported with this model", param=parameter)
        talk.check_reasoning()
        prompt = len(request.content) // 4
        if self.context is not None and prompt > self.context:
            if not self.silent_context:
                words = f"This model's maximum context length is {self.context} tokens, and you sent {prompt}"
                raise Refusal(400, words, code="context_length_exceeded", type="invalid_request_error")
            prompt = self.context
        calls, text, stop = self._think(talk)
        if self._draw(MODEL_FAULTS, talk.hash) == "echo":
            text += f" I was called with {request.headers.get('authorization')}."
        return Answer(200, talk.answer(calls, text, stop, prompt), {"request-id": f"req_{talk.hash[:12]}"})

    def _check_key(self, request: Request) -> None:
        authorization = request.headers.get("authorization", "")
        if self.key is not None and authorization != f"Bearer {self.key}":
            raise Refusal(401, f"Incorrect API key provided: {authorization}", type="authentication_error")

    def _listed(self, request: Request, name: str) -> Answer:
        models = {"GET /v1/models": None, "GET /models": None}
        if name in models:
            sizes = {"context_length": self.context or 128_000, "top_provider": {"max_completion_tokens": 32_000}}
            return Answer(200, {"data": [{"id": name, "object": "model", **sizes} for name in LISTED]})
        if name.startswith("GET /v1/models/") and "missing" not in name:
            model = request.path.rpartition("/")[2]
            return Answer(200, {"id": model, "max_input_tokens": self.context or 200_000, "max_tokens": 64_000})
        raise Refusal(404, f"there is nothing at {name}", type="not_found_error")

    def _draw(self, faults: Sequence[str], *what: str) -> str | None:
        """One of the faults at its rate, or None: a function of its arguments and the seed."""
        dice = _unit(str(self.seed), faults[0], *what)
        for fault in faults:
            dice -= self.faults.get(fault, 0.0)
            if dice < 0:
                return fault
        return None

    def _think(self, talk: "_Talk") -> tuple[list[tuple[str, Any]], str, str]:
        """The answer to a conversation: calls as (name, arguments), text, and "calls", "end", "length" or "refusal".

        Arguments are an object, or text where the model got them wrong.
        """
        order = _order(talk)
        calls: list[tuple[str, Any]] = [("place_order", order)]
        levers = [name for name in ("lock_freight", "inspect_batch", "buy_briefing") if name in talk.tools]
        if levers and talk.fresh and _unit("lever", talk.hash) < self.levers:
            lever = levers[int(_unit("which", talk.hash) * len(levers))]
            calls = [(lever, {"weeks": 4} if lever == "lock_freight" else {})]
        text = f"I keep the inventory position at {LEVEL}."
        fault = self._draw(MODEL_FAULTS, talk.hash)
        whole = json.dumps(order)
        wrong: dict[str, list[tuple[str, Any]]] = {
            "malformed": [("place_order", whole[:-1] + ', "qty": }')],
            "doubled": [("place_order", talk.doubled(order))],
            "out_of_range": [("place_order", {**order, "qty": -5})],
            "silent": [],
            "refusal": [],
            "length": [("place_order", whole[: len(whole) // 2])],
            "unknown_tool": [("order_more", {"qty": 1})],
            "twice": [("place_order", order), ("place_order", order)],
        }
        calls = wrong.get(str(fault), calls)
        stop = {"silent": "end", "refusal": "refusal", "length": "length"}.get(str(fault), "calls")
        return calls, "I cannot help with that." if fault == "refusal" else text, stop


class _Talk:
    """A request on one wire, read as far as the model needs it.

    Attributes:
        model: its name.
        hash: names the conversation.
        tools: schemas of the arguments, by the tools' names.
        heard: the texts it was sent, oldest first.
        report: the newest report among them, or None.
        fresh: whether the last of them is a report, not what a lever or a refused order brought.
    """

    def __init__(self, body: Mapping[str, Any], head: Any, items: Sequence[Any]) -> None:
        self.model = str(body["model"])
        self.tools = self.read_tools(body.get("tools") or [])
        self.items = items
        self.before: list[str] = []  # hash of the conversation in front of each item
        running = hashlib.sha256(_canonical([self.model, head]))
        for item in items:
            self.before.append(running.hexdigest())
            running.update(_canonical(item))
        self.hash = running.hexdigest()
        self.heard = [text for item in items for text in self.texts(item)]
        self.report = next((report for text in reversed(self.heard) if (report := _report(text))), None)
        self.fresh = bool(self.heard) and _report(self.heard[-1]) is not None

    def read_tools(self, tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        return {tool["name"]: tool["parameters"] for tool in tools}

    def texts(self, item: Mapping[str, Any]) -> list[str]:
        """What an item says to the model: results of tools and a user's words."""
        raise NotImplementedError

    def check_reasoning(self) -> None:
        """Insists on its reasoning; raises ``Refusal``."""
        raise NotImplementedError

    def answer(self, calls: Sequence[tuple[str, Any]], text: str, stop: str, prompt: int) -> dict[str, Any]:
        """The answer's body."""
        raise NotImplementedError

    def doubled(self, order: Mapping[str, Any]) -> Any:
        return json.dumps(json.dumps(order))

    def call_id(self, prefix: str, index: int) -> str:
        return f"{prefix}_{self.hash[:20]}_{index}"

    def cached(self, prompt: int) -> int:
        """How many tokens of the prompt had been sent before: everything up to the model's last answer."""
        return prompt * max(len(self.items) - 2, 0) // max(len(self.items), 1)


class _Messages(_Talk):
    def __init__(self, body: Mapping[str, Any]) -> None:
        super().__init__(body, body.get("system"), body["messages"])

    def read_tools(self, tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        return {tool["name"]: tool["input_schema"] for tool in tools}

    def texts(self, item: Mapping[str, Any]) -> list[str]:
        if item["role"] != "user":
            return []
        blocks = [{"text": item["content"]}] if isinstance(item["content"], str) else item["content"]
        return [block.get("content") or block["text"] for block in blocks]

    def check_reasoning(self) -> None:
        owed: set[str] = set()
        for before, item in zip(self.before, self.items, strict=True):
            blocks = item["content"] if isinstance(item["content"], list) else []
            if item["role"] == "assistant":
                if blocks[:1] != [self.thinking(before)]:
                    raise Refusal(400, "messages.content.0: thinking blocks cannot be modified", type=_BAD)
                if any(not isinstance(block.get("input", {}), dict) for block in blocks):
                    raise Refusal(400, "messages.content: tool_use.input must be an object", type=_BAD)
            results = {block["tool_use_id"] for block in blocks if block["type"] == "tool_result"}
            if results != owed:
                raise Refusal(400, "messages: every tool_use needs its tool_result in the next message", type=_BAD)
            owed = {block["id"] for block in blocks if block["type"] == "tool_use"}

    def thinking(self, name: str) -> dict[str, Any]:
        signature = _sign("thinking", name)
        return {"type": "thinking", "thinking": "", "signature": signature, "seal": {"v": 1.5, "ü": None}}

    def answer(self, calls: Sequence[tuple[str, Any]], text: str, stop: str, prompt: int) -> dict[str, Any]:
        content: list[Any] = [self.thinking(self.hash), {"type": "text", "text": text}]
        for index, (name, arguments) in enumerate(calls):
            given = arguments if isinstance(arguments, dict) else {"qty": "forty"}
            use = {"type": "tool_use", "id": self.call_id("toolu", index), "name": name, "input": given}
            content.append(use)
        output = _tokens(content)
        read = self.cached(prompt)
        written = (prompt - read) // 2
        reasons = {"calls": "tool_use", "end": "end_turn", "length": "max_tokens", "refusal": "refusal"}
        return {
            "id": f"msg_{self.hash[:20]}",
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": content,
            "stop_reason": reasons[stop],
            "stop_sequence": None,
            "usage": {
                "input_tokens": prompt - read - written,
                "cache_read_input_tokens": read,
                "cache_creation_input_tokens": written,
                "cache_creation": {"ephemeral_5m_input_tokens": written, "ephemeral_1h_input_tokens": 0},
                "output_tokens": output,
                "output_tokens_details": {"thinking_tokens": _REASONING},
            },
        }

    def doubled(self, order: Mapping[str, Any]) -> Any:
        return {**order, "contract": json.dumps(order["contract"])} if order.get("contract") else order


class _Responses(_Talk):
    def __init__(self, body: Mapping[str, Any]) -> None:
        given = body["input"]
        items = [{"role": "user", "content": given}] if isinstance(given, str) else given
        super().__init__(body, body.get("instructions"), items)

    def texts(self, item: Mapping[str, Any]) -> list[str]:
        if item.get("type") == "function_call_output":
            return [item["output"]]
        return [item["content"]] if item.get("role") == "user" else []

    def check_reasoning(self) -> None:
        mine = False  # whether the item before was the model's own
        owed: set[str] = set()
        for before, item in zip(self.before, self.items, strict=True):
            was, mine = mine, item.get("type") in ("reasoning", "function_call", "message")
            if mine and not was and item != self.reasoning(before):
                raise Refusal(400, "input: the reasoning item cannot be verified", code="invalid_encrypted_content")
            if item.get("type") == "function_call":
                owed.add(item["call_id"])
            if item.get("type") == "function_call_output":
                if item["call_id"] not in owed:
                    raise Refusal(400, f"No tool call found for function call output {item['call_id']}", type=_BAD)
                owed.discard(item["call_id"])
        if owed:
            raise Refusal(400, f"No tool output found for function call {owed.pop()}", type=_BAD)

    def reasoning(self, name: str) -> dict[str, Any]:
        sealed = _sign("encrypted", name)
        return {"type": "reasoning", "id": f"rs_{name[:20]}", "summary": [], "encrypted_content": sealed, "é": [1.5]}

    def answer(self, calls: Sequence[tuple[str, Any]], text: str, stop: str, prompt: int) -> dict[str, Any]:
        said = {"type": "refusal", "refusal": text} if stop == "refusal" else {"type": "output_text", "text": text}
        output: list[Any] = [
            self.reasoning(self.hash),
            {"type": "message", "id": f"msg_{self.hash[:20]}", "role": "assistant", "content": [said]},
        ]
        for index, (name, arguments) in enumerate(calls):
            ids = {"id": self.call_id("fc", index), "call_id": self.call_id("call", index)}
            output.append({"type": "function_call", **ids, "name": name, "arguments": _as_text(arguments)})
        tokens = _tokens(output)
        return {
            "id": f"resp_{self.hash[:20]}",
            "object": "response",
            "status": "incomplete" if stop == "length" else "completed",
            "incomplete_details": {"reason": "max_output_tokens"} if stop == "length" else None,
            "error": None,
            "model": self.model,
            "output": output,
            "usage": {
                "input_tokens": prompt,
                "input_tokens_details": {"cached_tokens": self.cached(prompt), "cache_write_tokens": 0},
                "output_tokens": tokens,
                "output_tokens_details": {"reasoning_tokens": _REASONING},
                "total_tokens": prompt + tokens,
            },
        }


class _Chat(_Talk):
    def __init__(self, body: Mapping[str, Any]) -> None:
        super().__init__(body, None, body["messages"])

    def read_tools(self, tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        return super().read_tools([tool["function"] for tool in tools])

    def texts(self, item: Mapping[str, Any]) -> list[str]:
        return [item["content"]] if item["role"] in ("user", "tool") else []

    def check_reasoning(self) -> None:
        owed: list[str] = []
        for before, item in zip(self.before, self.items, strict=True):
            if item["role"] == "tool":
                if item["tool_call_id"] not in owed:
                    raise Refusal(400, "messages: a tool result without its call", type=_BAD)
                owed.remove(item["tool_call_id"])
            elif owed:
                raise Refusal(400, "messages: tool_calls must be followed by their results", type=_BAD)
            if item["role"] == "assistant":
                if item.get("reasoning_details") != self.details(before):
                    raise Refusal(400, "messages: reasoning_details cannot be verified", type=_BAD)
                for call in item.get("tool_calls", []):
                    owed.append(call["id"])
                    # As many servers do, it parses the arguments that it is reminded of.
                    try:
                        fits = isinstance(json.loads(call["function"]["arguments"]), dict)
                    except ValueError:
                        fits = False
                    if not fits:
                        raise Refusal(400, "messages: the arguments of a tool call are no JSON object", type=_BAD)

    def details(self, name: str) -> list[Any]:
        return [{"type": "reasoning.encrypted", "data": _sign("details", name), "index": 0, "ß": {"n": None}}]

    def answer(self, calls: Sequence[tuple[str, Any]], text: str, stop: str, prompt: int) -> dict[str, Any]:
        message: dict[str, Any] = {
            "role": "assistant",
            "content": None if stop == "refusal" else text,
            "refusal": text if stop == "refusal" else None,
            "reasoning_details": self.details(self.hash),
        }
        if calls:
            message["tool_calls"] = [
                {
                    "id": self.call_id("call", index),
                    "type": "function",
                    "function": {"name": name, "arguments": _as_text(arguments)},
                }
                for index, (name, arguments) in enumerate(calls)
            ]
        reasons = {"calls": "tool_calls", "end": "stop", "length": "length", "refusal": "content_filter"}
        tokens = _tokens(message)
        return {
            "id": f"gen-{self.hash[:20]}",
            "object": "chat.completion",
            "model": self.model,
            "provider": "Loopback",
            "choices": [{"index": 0, "finish_reason": reasons[stop], "message": message}],
            "usage": {
                "prompt_tokens": prompt,
                "prompt_tokens_details": {"cached_tokens": self.cached(prompt), "cache_write_tokens": 0},
                "completion_tokens": tokens,
                "completion_tokens_details": {"reasoning_tokens": _REASONING},
                "total_tokens": prompt + tokens,
                "cost": (prompt + 4 * tokens) / 1_000_000,
            },
        }


_BAD = "invalid_request_error"


def _order(talk: _Talk) -> dict[str, Any]:
    """A base-stock order on the latest report; an order of nothing where it has none, or where the last was refused."""
    report = talk.report or {}
    wanted = LEVEL - report["inventory_position"] if isinstance(report.get("inventory_position"), int) else 0
    refused = bool(talk.heard) and talk.heard[-1].startswith("Error")
    qty = 0 if refused else min(max(wanted, 0), 100)
    order: dict[str, Any] = {"rationale": f"Base-stock rule: the level is {LEVEL}, so I order {qty}.", "qty": qty}
    if qty:
        week = report.get("week", 0)
        live = [deal for deal in report.get("contracts", []) if deal["end_week"] is None or deal["end_week"] > week]
        held = [contract["supplier"] for contract in live]
        order |= {"route": "suez", "supplier": "qualified"}
        order["contract"] = None if "qualified" in held else {"action": "sign", "supplier": "qualified"}
    schema = talk.tools.get("place_order", {"properties": {}, "required": []})
    required = {name: _fill(schema["properties"][name]) for name in schema["required"]}
    return {name: value for name, value in (required | order).items() if name in schema["properties"] or not talk.tools}


def _fill(schema: Mapping[str, Any]) -> Any:
    """A value that fits a schema: arms may require arguments which the model has no opinion on."""
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) else kind
    if "enum" in schema:
        return schema["enum"][0]
    if kind == "object":
        return {name: _fill(schema["properties"][name]) for name in schema.get("required", [])}
    if kind == "array":
        return [_fill(schema["items"])] * schema.get("minItems", 0)
    low, high = schema.get("minimum", 0), schema.get("maximum", 1)
    return {"string": "No opinion.", "integer": low, "number": (low + high) / 4, "boolean": False}.get(str(kind))


def _report(text: str) -> dict[str, Any] | None:
    """The report in a message, or None."""
    start = text.find("{")
    if start < 0:
        return None
    try:
        value, _ = json.JSONDecoder().raw_decode(text[start:])
    except ValueError:
        return None
    return value if isinstance(value, dict) and len(value) > 5 else None


def _as_text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def _tokens(content: Any) -> int:
    return len(_canonical(content)) // 4 + _REASONING


def _sign(what: str, name: str) -> str:
    return hashlib.sha256(f"{what} {name}".encode()).hexdigest()


def _unit(*what: str) -> float:
    """A number in [0, 1) that is a function of texts."""
    return int.from_bytes(hashlib.sha256(json.dumps(what).encode()).digest()[:7], "big") / 2**56


def _canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _error(request: Request, refusal: Refusal) -> Answer:
    error = {"message": str(refusal), **refusal.fields}
    return Answer(
        refusal.status, {"type": "error", "error": error} if "/messages" in request.path else {"error": error}
    )


async def _read(reader: asyncio.StreamReader) -> Request | None:
    """The next request of a connection; None when the client has closed it."""
    line = await reader.readline()
    if not line:
        return None
    method, path, _ = line.decode("latin-1").split()
    headers: dict[str, str] = {}
    while (header := (await reader.readline()).decode("latin-1").strip()) != "":
        name, _, value = header.partition(":")
        headers[name.lower()] = value.strip()
    content = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(method, path.partition("?")[0], headers, content, time.monotonic())


def _bytes(answer: Answer) -> bytes:
    html = isinstance(answer.body, str)
    body = answer.body.encode() if html else json.dumps(answer.body, ensure_ascii=False).encode()
    headers = {"Content-Type": "text/html" if html else "application/json", "Content-Length": str(len(body))}
    lines = [f"HTTP/1.1 {answer.status} Answer", *(f"{k}: {v}" for k, v in (headers | dict(answer.headers)).items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + (body[: len(body) // 2] if answer.cut else body)


def main() -> None:
    """Serves until the process is ended."""
    parser = argparse.ArgumentParser(description="A fake model behind the three wires, on 127.0.0.1.")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--seed", type=int, default=0, help="of the faults")
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before every answer")
    parser.add_argument("--faulty-attempts", type=int, default=2, help="at one conversation")
    parser.add_argument("--retry-after", default="0.02", help="seconds that a 429 asks to wait")
    parser.add_argument("--hang", type=float, default=3_600.0, help="seconds")
    parser.add_argument("--key", help="the only key it accepts")
    parser.add_argument("--context", type=int, help="tokens of the model's context")
    parser.add_argument("--silent-context", action="store_true", help="cut longer conversations in silence")
    parser.add_argument("--fault", action="append", default=[], metavar="NAME=RATE", help="may be given again")
    options = parser.parse_args()
    faults = {name: float(rate) for name, _, rate in (fault.partition("=") for fault in options.fault)}
    server = Loopback(
        faults=faults,
        seed=options.seed,
        latency=options.latency,
        faulty_attempts=options.faulty_attempts,
        retry_after=options.retry_after,
        hang=options.hang,
        key=options.key,
        context=options.context,
        silent_context=options.silent_context,
        bodies=False,
        port=options.port,
    )
    with server:
        print(server.root, flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
