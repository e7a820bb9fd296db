"""A user's own agent: ``async def act(report, tools)``, called once a week, which pulls levers and places the order.

The harness asks for one answer at a time and the function makes its calls in the middle of its own flow. So the
function runs as a task, and each call it makes is one answer; the result is handed back when the harness has it. After
a resume the week in progress starts again: the calls on record are checked against those that the function makes, and
answered from the record.
"""

import asyncio
import inspect
import json
import runpy
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from stocktake_agents.conversation import Message, digest, latest_report
from stocktake_agents.errors import ProviderError, UsageError
from stocktake_agents.provider import Agent, ToolCall, Turn

Act = Callable[[dict[str, Any], "Tools"], Awaitable[None]]


class ToolError(Exception):
    """A call was refused and changed nothing; the message says why."""


class Tools:
    """The tools as methods: ``await tools.buy_briefing()``, ``await tools.place_order(rationale="...", qty=20, ...)``.

    Each takes the tool's arguments by name, returns what the tool says and raises ``ToolError`` when it refuses.
    """

    def __init__(self, call: Callable[[str, dict[str, Any]], Awaitable[str]]) -> None:
        self._call = call

    def __getattr__(self, name: str) -> Callable[..., Awaitable[str]]:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda **arguments: self._call(name, arguments)


class ActProvider:
    """A provider that lets ``act`` play."""

    def __init__(self, act: Act) -> None:
        self._act = act
        self._report_at: int | None = None
        self._task: asyncio.Future[None] | None = None
        self._asked: asyncio.Queue[tuple[str, dict[str, Any], asyncio.Future[str]]] = asyncio.Queue()
        self._pending: tuple[str, dict[str, Any], asyncio.Future[str]] | None = None
        self._answered = 0

    async def turn(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> Turn:
        """See ``Provider``."""
        at = _latest_report_at(messages)
        if self._report_at is not None and at != self._report_at and self._pending is not None:
            self._pending[2].set_result(messages[at]["content"])  # the order that brought this report about
            self._pending = None
            await self._finish()
        if self._task is None or at != self._report_at or self._task.done():
            self._start(at, messages)
        calls, results = _since(messages, at)
        while self._answered < len(results):
            name, arguments, reply = await self._next_call()
            call, result = calls[self._answered], results[self._answered]
            if (name, arguments) != (call["name"], json.loads(call["arguments"])):
                raise ProviderError(
                    f"act called {name} where the record has {call['name']}, or with other arguments: after a resume "
                    "it must act alike on the same report."
                )
            self._answered, self._pending = self._answered + 1, None
            if result["error"]:
                reply.set_exception(ToolError(result["content"].removeprefix("Error: ")))
            else:
                reply.set_result(result["content"])
        asked = await self._next_call_or_end()
        if asked is None:
            return Turn(text="act returned without place_order.", stop="end")
        return Turn(calls=(ToolCall(f"call-{len(messages)}", asked[0], json.dumps(asked[1])),))

    def _start(self, at: int, messages: Sequence[Message]) -> None:
        self._asked, self._pending, self._answered, self._report_at = asyncio.Queue(), None, 0, at
        self._task = asyncio.ensure_future(self._act(latest_report(messages), Tools(self._call)))

    async def _finish(self) -> None:
        """Lets the function run on after the order that committed its week; it has nothing more to call."""
        if self._task is not None:
            asked = await self._next_call_or_end()
            if asked is not None:
                self._task.cancel()
                raise ProviderError(f"act called {asked[0]} after place_order, which ends its week: return instead.")

    async def _call(self, name: str, arguments: dict[str, Any]) -> str:
        reply: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._asked.put_nowait((name, arguments, reply))
        return await reply

    async def _next_call(self) -> tuple[str, dict[str, Any], "asyncio.Future[str]"]:
        asked = await self._next_call_or_end()
        if asked is None:
            raise ProviderError(
                "act returned before it made the calls on record: it must act alike on the same report."
            )
        return asked

    async def _next_call_or_end(self) -> tuple[str, dict[str, Any], "asyncio.Future[str]"] | None:
        if self._pending is None and self._task is not None:
            asking = asyncio.ensure_future(self._asked.get())
            try:
                await asyncio.wait((asking, self._task), return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                self._task.cancel()
                raise
            finally:
                if not asking.done():
                    asking.cancel()
            if not asking.cancelled() and asking.done():
                self._pending = asking.result()
            elif (error := self._task.exception()) is not None:
                told = "".join(traceback.format_exception(error))
                raise ProviderError(f"the agent's own code failed:\n{told}") from error
        return self._pending


def _latest_report_at(messages: Sequence[Message]) -> int:
    for at in range(len(messages) - 1, 1, -1):
        message = messages[at]
        if message["role"] == "tool" and message["name"] == "place_order" and not message["error"]:
            return at
    return 1


def _since(messages: Sequence[Message], at: int) -> tuple[list[dict[str, Any]], list[Message]]:
    calls = [call for message in messages[at:] if message["role"] == "assistant" for call in message["turn"]["calls"]]
    return calls, [message for message in messages[at + 1 :] if message["role"] == "tool"]


def act_agent(model: str, make: Callable[[], Act], settings: Mapping[str, Any] | None = None) -> Agent:
    """An agent for a user's own function.

    Args:
        model: its name.
        make: gives the function of one episode, so that it may remember things from week to week.
        settings: what else tells it from others of the name.
    """
    return Agent(model, lambda tape, repeat: ActProvider(make()), dict(settings or {}), reads=True)


def load_act(path: Path, name: str) -> Agent:
    """The agent in a Python file: an async function of (report, tools), or a class with such a method ``act``.

    A class is made anew for each episode, so that it can remember. The file's text goes into the agent's hash: a
    changed file is another agent.

    Raises:
        UsageError: the file cannot be run or has no such function or class.
    """
    try:
        text = path.read_text(encoding="utf-8")
        found: Any = runpy.run_path(str(path), run_name=path.stem)[name]
    except Exception as error:
        raise UsageError(
            f"the agent {path}:{name} cannot be loaded ({type(error).__name__}: {error}): give FILE.py:NAME, an async "
            "function of (report, tools)."
        ) from error
    make: Any = None
    if inspect.iscoroutinefunction(found):
        make = lambda: found  # noqa: E731
    elif inspect.iscoroutinefunction(getattr(found, "act", None)):
        make = lambda: found().act  # noqa: E731
    if make is not None:
        return act_agent(f"{path.name}:{name}", make, {"source": digest(text)})
    raise UsageError(
        f"{path}:{name} is neither an async function of (report, tools) nor a class with such an act method."
    )
