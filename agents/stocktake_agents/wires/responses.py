"""OpenAI's Responses API, with nothing stored at the provider's: every request brings the whole conversation along."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from stocktake_agents.conversation import Message
from stocktake_agents.provider import ToolCall, Turn
from stocktake_agents.usage import Usage
from stocktake_agents.wires.complaints import shorten
from stocktake_agents.wires.connection import Answer, no_answer
from stocktake_agents.wires.wire import (
    ModelWire,
    Option,
    count,
    inner,
    objects,
    own_calls,
    own_ids,
    raw_text,
    temperature,
    whole,
)
from stocktake_agents.wires.wire import text_or_none as text


class ResponsesWire(ModelWire):
    """One model behind OpenAI's Responses API."""

    path = "/responses"

    def fixed(self) -> dict[str, Any]:
        return {"max_output_tokens": self.setup.max_output_tokens, "store": False, "tool_choice": "auto"}

    def options(self) -> list[Option]:
        effort = Option("effort", {"reasoning": {"effort": self.setup.effort}}, r"\breasoning(?!\.encrypted)|\beffort")
        return [
            Option("include", {"include": ["reasoning.encrypted_content"]}, r"\binclude\b|encrypted"),
            Option("parallel_tool_calls", {"parallel_tool_calls": False}, "parallel_tool_calls"),
            Option("truncation", {"truncation": "disabled"}, r"\btruncation"),
            *([effort] if self.setup.effort is not None else []),
            *temperature(self.setup),
        ]

    def request(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        system = [message["content"] for message in messages if message["role"] == "system"]
        items: list[Any] = []
        for message in messages:
            if message["role"] == "assistant":
                items += _said(message)
            elif message["role"] == "tool":
                items.append({"type": "function_call_output", "call_id": message["id"], "output": message["content"]})
            elif message["role"] == "user":
                items.append({"role": "user", "content": message["content"]})
        return {
            "instructions": "\n\n".join(system),
            "input": items,
            "tools": [
                {
                    "type": "function",
                    "name": tool["name"],
                    "description": tool["description"],
                    "parameters": tool["parameters"],
                    "strict": False,  # left out, it would be true, and a strict schema has no optional fields
                }
                for tool in tools
            ],
        }

    def read(self, answer: Answer, messages: Sequence[Message]) -> Turn:
        body = answer.body
        if body.get("status") not in (None, "completed", "incomplete"):
            raise no_answer(f"the answer's status is {shorten(str(body['status']))}")
        if not isinstance(body.get("output"), list):
            raise no_answer("the answer has no output")
        items = objects(body["output"])
        reason = inner(body, "incomplete_details").get("reason")
        if body.get("status") == "incomplete":
            items = _finished(items)
        asked = [item for item in items if item.get("type") == "function_call"]
        if reason == "content_filter":
            items, asked = [item for item in items if item.get("type") == "message"], []
        named = {
            id(item): {**item, "call_id": name}
            for item, name in zip(asked, own_ids([item.get("call_id") for item in asked], messages), strict=True)
        }
        calls = tuple(
            ToolCall(item["call_id"], text(item.get("name")) or "", raw_text(item.get("arguments")))
            for item in named.values()
        )
        parts = [part for item in items if item.get("type") == "message" for part in objects(item.get("content"))]
        return Turn(
            text="\n".join(str(part.get("text") or part.get("refusal") or "") for part in parts),
            calls=calls,
            stop="calls" if calls else _stop(body, reason, parts),
            usage=_usage(body.get("usage")),
            model=text(body.get("model")),
            request_id=answer.request_id,
            extra=[named.get(id(item), item) for item in items],
        )

    async def look_up(self) -> Mapping[str, Any]:
        # The API says whether there is such a model, and nothing of its size.
        await self._connection.get(f"/models/{quote(self.setup.model, safe='')}")
        return {"context": None, "max_output": None}


def _finished(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """An answer that was cut, without a call in the middle of which that happened, and without reasoning for it.

    Reasoning may go back only with the item that it led to.
    """
    items = [item for item in items if item.get("type") != "function_call" or whole(raw_text(item.get("arguments")))]
    while items and items[-1].get("type") == "reasoning":
        items.pop()
    return items


def _stop(body: Mapping[str, Any], reason: Any, parts: Sequence[Mapping[str, Any]]) -> str:
    if reason == "content_filter" or any(part.get("type") == "refusal" for part in parts):
        return "refusal"
    return "length" if body.get("status") == "incomplete" else "end"


def _said(message: Message) -> list[Any]:
    extra = message["turn"]["extra"]
    if extra is not None:
        return list(extra)
    spoken = message["turn"]["text"]
    items: list[Any] = [{"role": "assistant", "content": spoken}] if spoken else []
    for call in own_calls(message):
        items.append({"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments})
    return items


def _usage(reported: Any) -> Usage | None:
    """OpenAI counts a prompt as a whole, and then says how much of it was read from a cache or written to one."""
    if not isinstance(reported, dict):
        return None
    prompt = inner(reported, "input_tokens_details")
    return split_prompt(
        count(reported.get("input_tokens")),
        read=count(prompt.get("cached_tokens")),
        written=count(prompt.get("cache_write_tokens")),
        output=count(reported.get("output_tokens")),
        reasoning=count(inner(reported, "output_tokens_details").get("reasoning_tokens")),
    )


def split_prompt(prompt: int, read: int, written: int, output: int, reasoning: int) -> Usage:
    """The parts of a prompt that was counted as a whole; they add up to it, whatever was said of the cache."""
    read = min(read, prompt)
    written = min(written, prompt - read)
    return Usage(
        input=prompt - read - written, cache_read=read, cache_write_5m=written, output=output, reasoning=reasoning
    )
