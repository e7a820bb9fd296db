"""The chat.completions API: OpenRouter, and servers of one's own such as vLLM, Ollama or LM Studio."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from stocktake_agents.conversation import Message
from stocktake_agents.errors import Fault, ProviderError
from stocktake_agents.provider import ToolCall, Turn
from stocktake_agents.usage import Usage
from stocktake_agents.wires.complaints import read_complaint
from stocktake_agents.wires.connection import Answer, Refused, no_answer
from stocktake_agents.wires.responses import split_prompt
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

SMALLEST_CONTEXT = 1_024  # tokens; below it, two equal powers of two are chance
TRUNCATED = (
    "context_truncated_by_server: {seen}, so the server drops the beginning of the conversation without saying so. "
    "Give it a larger context: OLLAMA_CONTEXT_LENGTH=32768 for Ollama, --max-model-len for vLLM, --ctx-size for "
    "llama.cpp."
)


class ChatWire(ModelWire):
    """One model behind chat.completions."""

    path = "/chat/completions"

    def fixed(self) -> dict[str, Any]:
        hosts = {"only": list(self.setup.hosts), "allow_fallbacks": False}
        pin = {"provider": hosts} if self.setup.hosts else {}
        return {"max_tokens": self.setup.max_output_tokens, "tool_choice": "auto", **pin}

    def options(self) -> list[Option]:
        options = [Option("parallel_tool_calls", {"parallel_tool_calls": False}, "parallel_tool_calls")]
        if self.setup.provider == "openrouter":
            # Or else a host that knows no tools may be asked, and leaves them out without a word.
            only_able = {"provider": {"require_parameters": True}}
            options.append(Option("require_parameters", only_able, "require_parameters"))
        if self.setup.effort is not None:
            options.append(Option("effort", {"reasoning": {"effort": self.setup.effort}}, r"\breasoning|\beffort"))
        return options + temperature(self.setup)

    def request(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        return {
            "messages": [_translated(message) for message in messages],
            "tools": [
                {
                    "type": "function",
                    "function": {key: tool[key] for key in ("name", "description", "parameters")},
                }
                for tool in tools
            ],
        }

    def read(self, answer: Answer, messages: Sequence[Message]) -> Turn:
        body = answer.body
        choice = next(iter(objects(body.get("choices"))), None)
        if choice is None:
            raise no_answer("the answer has no choices")
        if choice.get("error"):
            complaint = read_complaint(200, self._connection.redact(json.dumps(choice)))
            raise Refused(complaint, after=None, billed=True)
        message = choice.get("message")
        if not isinstance(message, dict) or choice.get("finish_reason") == "error":
            raise no_answer("the answer has no message, or one that ended in an error")
        usage = _usage(body.get("usage"))
        if self.setup.provider == "local" and usage is not None:
            _refuse_truncation(usage, messages)

        reason = choice.get("finish_reason")
        asked = objects(message.get("tool_calls"))
        if reason == "length":
            asked = [call for call in asked if whole(raw_text(inner(call, "function").get("arguments")))]
        if reason == "content_filter":
            asked = []
        ids = own_ids([call.get("id") for call in asked], messages)
        calls = tuple(
            ToolCall(
                name,
                text(inner(call, "function").get("name")) or "",
                raw_text(inner(call, "function").get("arguments")),
            )
            for call, name in zip(asked, ids, strict=True)
        )
        extra = {"role": "assistant", **message}
        extra.pop("tool_calls", None)
        if asked:
            extra["tool_calls"] = [{**call, "id": name} for call, name in zip(asked, ids, strict=True)]
        elif not extra.get("content"):
            extra["content"] = ""
        return Turn(
            text=_text(message.get("content")) or text(message.get("refusal")) or "",
            calls=calls,
            stop="calls" if calls else _stop(reason, message),
            usage=usage,
            usd=_usd(body.get("usage")) if self.setup.provider == "openrouter" else None,
            model=text(body.get("model")),
            host=text(body.get("provider")),
            request_id=answer.request_id,
            extra=extra,
        )

    async def look_up(self) -> Mapping[str, Any]:
        listed = objects((await self._connection.get("/models")).body.get("data"))
        name = self.setup.model
        # Ollama lists a model with the tag that may be left out, a router without the variant that may be asked for.
        other = f"{name}:latest" if self.setup.provider == "local" else name.partition(":")[0]
        for known in (name, other):
            for entry in listed:
                if entry.get("id") == known:
                    context = count(entry.get("context_length")) or count(entry.get("max_model_len"))
                    most = count(inner(entry, "top_provider").get("max_completion_tokens"))
                    return {"context": context or None, "max_output": most or None}
        names = ", ".join(sorted(str(entry.get("id")) for entry in listed)[:10]) or "none"
        raise ProviderError(f"there is no model {name}; the server lists {len(listed)}: {names}", Fault.ACCOUNT)


def _translated(message: Message) -> dict[str, Any]:
    if message["role"] == "tool":
        return {"role": "tool", "tool_call_id": message["id"], "content": message["content"]}
    if message["role"] != "assistant":
        return {"role": message["role"], "content": message["content"]}
    extra = message["turn"]["extra"]
    if extra is None:
        calls = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in own_calls(message)
        ]
        extra = {"role": "assistant", "content": message["turn"]["text"], **({"tool_calls": calls} if calls else {})}
    if "tool_calls" in extra:
        extra = {**extra, "tool_calls": [_readable(call) for call in extra["tool_calls"]]}
    return dict(extra)


def _readable(call: Mapping[str, Any]) -> Mapping[str, Any]:
    """A call of an earlier turn with arguments that are an object.

    Many servers parse what they are reminded of, and answer no request of a conversation with a malformed call in it.
    """
    arguments = raw_text(inner(call, "function").get("arguments"))
    if whole(arguments):
        return call
    return {**call, "function": {**inner(call, "function"), "arguments": json.dumps({"malformed": arguments})}}


def _text(content: Any) -> str:
    """The text of a message, which may come in parts."""
    return content if isinstance(content, str) else "\n".join(str(part.get("text", "")) for part in objects(content))


def _stop(reason: Any, message: Mapping[str, Any]) -> str:
    if reason == "content_filter" or message.get("refusal"):
        return "refusal"
    return "length" if reason == "length" else "end"


def _usage(reported: Any) -> Usage | None:
    if not isinstance(reported, dict):
        return None
    prompt, output = count(reported.get("prompt_tokens")), count(reported.get("completion_tokens"))
    reasoning = count(inner(reported, "completion_tokens_details").get("reasoning_tokens"))
    if reasoning and count(reported.get("total_tokens")) == prompt + output + reasoning:
        output += reasoning  # some servers count reasoning beside the completion, and bill both
    details = inner(reported, "prompt_tokens_details")
    read, written = count(details.get("cached_tokens")), count(details.get("cache_write_tokens"))
    return split_prompt(prompt, read, written, output, reasoning)


def _usd(reported: Any) -> float | None:
    """What a router says an answer cost, $: its own bill and, on one's own key, the host's."""
    if not isinstance(reported, dict):
        return None
    bills = [reported.get("cost")]
    if reported.get("is_byok"):
        bills.append(inner(reported, "cost_details").get("upstream_inference_cost"))
    dollars = [bill for bill in bills if isinstance(bill, int | float) and not isinstance(bill, bool)]
    if len(dollars) < len(bills) or not all(math.isfinite(bill) and bill >= 0 for bill in dollars):
        return None
    return float(sum(dollars))


def _refuse_truncation(usage: Usage, messages: Sequence[Message]) -> None:
    """Refuses to go on when the server's own count shows that it did not read the whole conversation.

    A conversation only grows. Its prompt may shrink by reasoning that a server leaves out of later prompts, never by
    more; and a prompt, or a prompt with its answer, that ends twice at the same power of two has met a wall there.
    """
    earlier = [
        Usage(**turn["usage"]) for turn in (m["turn"] for m in messages if m["role"] == "assistant") if turn["usage"]
    ]
    if not earlier or not usage.prompt:
        return
    last = earlier[-1]
    if usage.prompt < last.prompt - sum(past.reasoning for past in earlier):
        seen = f"the prompt shrank from {last.prompt} to {usage.prompt} tokens"
        raise ProviderError(TRUNCATED.format(seen=seen), Fault.TRUNCATED, billed=True)
    for what, size, before in (
        ("the prompt", usage.prompt, last.prompt),
        ("prompt and answer", usage.prompt + usage.output, last.prompt + last.output),
    ):
        if size == before and size >= SMALLEST_CONTEXT and size & (size - 1) == 0:
            seen = f"{what} stuck at {size} tokens for two turns"
            raise ProviderError(TRUNCATED.format(seen=seen), Fault.TRUNCATED, billed=True)
