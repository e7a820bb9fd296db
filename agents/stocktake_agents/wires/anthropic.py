"""Anthropic's Messages API."""

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from stocktake_agents.conversation import Message
from stocktake_agents.provider import ToolCall, Turn
from stocktake_agents.usage import Usage
from stocktake_agents.wires.connection import Answer, no_answer
from stocktake_agents.wires.wire import ModelWire, Option, count, inner, objects, own_calls, own_ids, temperature
from stocktake_agents.wires.wire import text_or_none as text

STOPS = {
    "max_tokens": "length",
    "model_context_window_exceeded": "context_overflow",
    "refusal": "refusal",
}
# The last version of the API that knows sampling parameters.
_SAMPLING = {"anthropic-version": "2023-06-01"}
_CUT = {"type": "text", "text": "(cut off)"}  # an assistant message must not be empty


class AnthropicWire(ModelWire):
    """One model behind Anthropic's Messages API."""

    path = "/v1/messages"

    def fixed(self) -> dict[str, Any]:
        return {"max_tokens": self.setup.max_output_tokens, "tool_choice": {"type": "auto"}}

    def options(self) -> list[Option]:
        effort = self.setup.effort
        thinking = [
            Option("thinking", {"thinking": {"type": "adaptive"}}, r"\bthinking|adaptive"),
            Option("effort", {"output_config": {"effort": effort}}, r"output_config|\beffort"),
        ]
        one_by_one = {"tool_choice": {"disable_parallel_tool_use": True}}
        return [
            Option("cache_control", {"cache_control": {"type": "ephemeral"}}, r"cache_control|\bcaching"),
            Option("disable_parallel_tool_use", one_by_one, "disable_parallel_tool_use"),
            *(thinking if effort is not None else []),
            *temperature(self.setup, _SAMPLING),
        ]

    def request(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        system = [message["content"] for message in messages if message["role"] == "system"]
        talk: list[dict[str, Any]] = []
        for message in messages:
            if message["role"] == "assistant":
                talk.append({"role": "assistant", "content": _said(message)})
            elif message["role"] != "system":
                if not talk or talk[-1]["role"] == "assistant":
                    talk.append({"role": "user", "content": []})
                talk[-1]["content"].append(_told(message))
        return {
            "system": "\n\n".join(system),
            "messages": talk,
            "tools": [
                {"name": tool["name"], "description": tool["description"], "input_schema": tool["parameters"]}
                for tool in tools
            ],
        }

    def read(self, answer: Answer, messages: Sequence[Message]) -> Turn:
        body = answer.body
        content = body.get("content")
        if not isinstance(content, list):
            raise no_answer("the answer has no content")
        reason = body.get("stop_reason")
        # A blank text, which a model may write, is refused when it comes back.
        blocks = [b for b in objects(content) if b.get("type") != "text" or str(b.get("text", "")).strip()]
        if (
            reason in ("max_tokens", "model_context_window_exceeded")
            and blocks
            and blocks[-1].get("type") == "tool_use"
        ):
            # What stands in the input of a block that was cut is anybody's guess, so it is neither an order nor said.
            blocks = blocks[:-1]
        uses = [block for block in blocks if block.get("type") == "tool_use"]
        ids = own_ids([use.get("id") for use in uses], messages)
        named = {id(use): {**use, "id": name} for use, name in zip(uses, ids, strict=True)}
        blocks = [named.get(id(block), block) for block in blocks]
        calls = tuple(
            ToolCall(use["id"], text(use.get("name")) or "", json.dumps(use.get("input"))) for use in named.values()
        )
        stop = STOPS.get(str(reason), "end")
        if stop == "refusal":
            calls = ()
            blocks = [block for block in blocks if block.get("type") != "tool_use"]
        return Turn(
            text="\n".join(str(block.get("text")) for block in blocks if block.get("type") == "text"),
            calls=calls,
            stop="calls" if calls else stop,
            usage=_usage(body.get("usage")),
            model=text(body.get("model")),
            request_id=answer.request_id,
            extra=blocks or [_CUT],
        )

    async def look_up(self) -> Mapping[str, Any]:
        model = (await self._connection.get(f"/v1/models/{quote(self.setup.model, safe='')}")).body
        return {
            "context": count(model.get("max_input_tokens")) or None,
            "max_output": count(model.get("max_tokens")) or None,
        }


def _said(message: Message) -> Any:
    if message["turn"]["extra"] is not None:
        return message["turn"]["extra"]
    spoken = message["turn"]["text"]
    blocks: list[dict[str, Any]] = [{"type": "text", "text": spoken}] if spoken else []
    for call in own_calls(message):
        blocks.append({"type": "tool_use", "id": call.id, "name": call.name, "input": json.loads(call.arguments)})
    return blocks or [_CUT]


def _told(message: Message) -> dict[str, Any]:
    if message["role"] == "user":
        return {"type": "text", "text": message["content"]}
    result = {"type": "tool_result", "tool_use_id": message["id"], "content": message["content"]}
    return {**result, "is_error": True} if message["error"] else result


def _usage(reported: Any) -> Usage | None:
    """Anthropic counts a prompt in three parts: past the cache, read from it and written to it."""
    if not isinstance(reported, dict):
        return None
    written = count(reported.get("cache_creation_input_tokens"))
    hour = min(count(inner(reported, "cache_creation").get("ephemeral_1h_input_tokens")), written)
    return Usage(
        input=count(reported.get("input_tokens")),
        cache_read=count(reported.get("cache_read_input_tokens")),
        cache_write_5m=written - hour,
        cache_write_1h=hour,
        output=count(reported.get("output_tokens")),
        reasoning=count(inner(reported, "output_tokens_details").get("thinking_tokens")),
    )
