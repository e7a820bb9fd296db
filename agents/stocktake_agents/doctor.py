"""Looks whether a model can play before money is spent: two answers with the real tools, and a cure for each ill."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import stocktake_jax as st
from stocktake_agents.arms.arm import Arm
from stocktake_agents.conversation import Conversation
from stocktake_agents.errors import Fault, ProviderError
from stocktake_agents.estimate import estimate
from stocktake_agents.journal import cost_of
from stocktake_agents.provider import Agent, Deadlines, Service, Turn, Wire
from stocktake_agents.tools import Desk, looks_like_a_call

CURES = {
    Fault.ACCOUNT: "check the key in the environment, that it may use this model, and the model's name",
    Fault.QUOTA: "the account has no credit left: add some",
    Fault.THROTTLED: "the account is at its rate limit: wait, or lower --concurrency",
    Fault.TRANSIENT: "the server cannot be reached or fails: check --base-url and that it runs, or try again later",
    Fault.TIMEOUT: "no answer in time: raise --attempt-timeout, or look at the server's load",
    Fault.REJECTED: "the request was refused: read the message; an option the model does not know has to be left out",
    Fault.TRUNCATED: "the server's context is too small: see the message",
}
PARSER = (
    "the call came as text: the server does not parse it. vLLM: --enable-auto-tool-choice --tool-call-parser NAME; "
    "Ollama: take a model whose template knows tools; OpenRouter: pin a host that supports tools"
)


@dataclass(frozen=True)
class Check:
    """One thing looked at.

    Attributes:
        name: what.
        verdict: "ok", "warn" or "fail".
        found: what there is.
        cure: what to do about it.
    """

    name: str
    verdict: str
    found: str
    cure: str = ""


async def examine(agent: Agent, service: Service, arm: Arm, deadlines: Deadlines) -> AsyncIterator[Check]:
    """Looks at a model step by step; stops at the first thing without which nothing else can be looked at.

    Args:
        agent: a model behind an API.
        service: what is behind it.
        arm: the arm it is to play.
        deadlines: how long to wait.

    Yields:
        Each check as it is done.
    """
    wire = service.connect(deadlines, 1)
    try:
        try:
            facts = await wire.look_up()
        except ProviderError as error:
            yield _failed("model", error)
            return
        yield Check("model", "ok", f"{agent.model} at {service.base_url}")
        expected = estimate(arm, st.mint(np.uint32(0)), 1, 1, service)
        yield _context(facts.get("context"), expected.largest_prompt, service)
        async for check in _probe(wire, service, arm, deadlines):
            yield check
        if wire.dropped:
            yield Check("parameters", "warn", f"refused by the model and left out: {', '.join(wire.dropped)}")
        if service.provider == "openrouter" and service.model.endswith(":free"):
            yield Check(
                "daily limit", "warn", "free models answer some fifty requests a day, an episode takes 26 or more",
                "take the paid model of the same name",
            )  # fmt: skip
    finally:
        await wire.close()


async def _probe(wire: Wire, service: Service, arm: Arm, deadlines: Deadlines) -> AsyncIterator[Check]:
    """One answer to the first report, and one to its result, which shows that the model's own words may go back."""
    tape = st.mint(np.uint32(0))
    desk = Desk(st.Episode(tape), arm.open(tape), arm.tools)
    talk = Conversation(arm.system, arm.tools, desk.report())
    for name in ("first answer", "second answer"):
        started = time.monotonic()
        try:
            async with asyncio.timeout(deadlines.attempt):
                turn = await wire.turn(talk.messages, arm.tools)
        except ProviderError as error:
            yield _failed(name, error)
            return
        except TimeoutError:
            yield _failed(name, ProviderError(f"no answer within {deadlines.attempt:g} s", Fault.TIMEOUT))
            return
        yield _answer(name, turn, time.monotonic() - started, service, arm)
        if not turn.calls:
            return
        results = [result.to_json() for result in desk.execute(turn.calls)]
        refused = [result["content"] for result in results if result["error"]]
        if refused:
            yield Check("tool call", "warn", f"refused: {refused[0]}", "the model will be told, and can do better")
        else:
            yield Check("tool call", "ok", ", ".join(call.name for call in turn.calls))
        talk.add_answer(turn.to_json(), results, None)


def _answer(name: str, turn: Turn, seconds: float, service: Service, arm: Arm) -> Check:
    usd, basis = cost_of(turn, service)
    tokens = "tokens unknown" if turn.usage is None else f"{turn.usage.prompt:,} + {turn.usage.output:,} tokens"
    price = {"unpriced": "cost unknown", "free": "free"}.get(basis, f"${usd or 0.0:.4f} ({basis})")
    host = f" by {turn.host}" if turn.host else ""
    found = f"{turn.model or 'an unnamed model'}{host}: {seconds:.1f} s, {tokens}, {price}"
    if turn.stop == "context_overflow":
        return Check(name, "fail", "the first report does not fit the model's context", "take a larger context")
    if turn.stop == "refusal":
        return Check(name, "fail", f"{found}; the model refused", "take another model")
    if turn.stop == "length":
        return Check(name, "fail", f"{found}; cut off before a call", "raise --max-output-tokens or lower --effort")
    if not turn.calls:
        if looks_like_a_call(turn.text, arm.tools):
            return Check(name, "fail", f"{found}; suspected_parser_failure", PARSER)
        return Check(
            name, "fail", f"{found}; no tool call, but text: {turn.text[:80]!r}", "take a model that calls tools"
        )
    if basis == "unpriced":
        return Check(name, "warn", found, "give --prices FILE to see dollars and to use --max-usd")
    return Check(name, "ok", found)


def _context(context: Any, needed: tuple[int, int], service: Service) -> Check:
    low, high = needed
    needs = f"an episode needs {low:,} to {high:,} tokens"
    larger = (
        "raise it (vLLM: --max-model-len; Ollama: OLLAMA_CONTEXT_LENGTH)" if service.local else "take another model"
    )
    if not isinstance(context, int):
        return Check("context", "warn", f"unknown; {needs}", larger if service.local else "")
    verdict = "fail" if context < low else "warn" if context < high else "ok"
    return Check("context", verdict, f"{context:,} tokens; {needs}", "" if verdict == "ok" else larger)


def _failed(name: str, error: ProviderError) -> Check:
    return Check(name, "fail", f"{error.fault}: {error}", CURES[error.fault])


def healthy(checks: Sequence[Check]) -> bool:
    """Whether nothing failed."""
    return all(check.verdict != "fail" for check in checks)


def as_json(checks: Sequence[Check]) -> list[Mapping[str, str]]:
    """The checks as plain JSON."""
    return [vars(check) for check in checks]
