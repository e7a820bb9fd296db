"""Between the episodes of a run and the provider they share: retries, deadlines, concurrency, budget."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from stocktake_agents.clock import utc_now
from stocktake_agents.conversation import Message, canonical
from stocktake_agents.errors import Fault, ProviderError
from stocktake_agents.journal import Journal
from stocktake_agents.provider import Deadlines, Provider, Service, Turn, Wire
from stocktake_agents.usage import Usage

POLL_SECONDS = 0.2  # how soon a wait notices that the run is to stop


class Stopped(Exception):
    """The run is to stop, and this request had not left yet."""


class Line(Protocol):
    """How a loop reaches its agent."""

    async def ask(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], episode: str, week: int, deadline: float
    ) -> Turn:
        """One answer.

        Args:
            messages, tools: what is asked.
            episode, week: who asks, for the record.
            deadline: ``time.monotonic`` at which the episode's time is up.

        Raises:
            ProviderError: there is none, after all that could be tried.
            Stopped: the run is to stop.
        """
        ...


@dataclass(frozen=True)
class Direct:
    """The line to an agent in this process: nothing to try again, only the episode's deadline."""

    provider: Provider

    async def ask(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], episode: str, week: int, deadline: float
    ) -> Turn:
        """See ``Line``."""
        try:
            async with asyncio.timeout(deadline - time.monotonic()):
                return await self.provider.turn(messages, tools)
        except TimeoutError as error:
            raise _too_late() from error


@dataclass(frozen=True)
class Retries:
    """How often and how patiently a request is tried again.

    Attributes:
        attempts: in all.
        first_wait: seconds before the second attempt, doubled for each further one; each wait is drawn from half of
            that to all of it.
        most_wait: seconds; the doubling ends there.
        most_retry_after: seconds that a server may ask for; when it asks for more, the episode ends for now.
    """

    attempts: int = 6
    first_wait: float = 1.0
    most_wait: float = 60.0
    most_retry_after: float = 120.0

    def wait(self, attempt: int, after: float | None) -> float:
        """Seconds to wait after a failed attempt, counted from 1."""
        backoff = min(self.first_wait * 2 ** (attempt - 1), self.most_wait) * random.uniform(0.5, 1.0)
        return max(backoff, after or 0.0)


class Throttle:
    """How many requests may be under way: halved when a server asks for fewer, grown by one a round while it does not.

    Attributes:
        limit: at present.
    """

    def __init__(self, most: int) -> None:
        self.limit = float(most)
        self._most = most
        self._under_way = 0
        self._round = 0  # of the last halving: answers to requests of an earlier round say nothing new
        self._freed = asyncio.Condition()

    @asynccontextmanager
    async def slot(self, stopping: Callable[[], bool]) -> AsyncIterator[int]:
        """Waits for a place and holds it; gives the round of the request. Raises ``Stopped``."""
        async with self._freed:
            while self._under_way >= max(1, int(self.limit)):
                if stopping():
                    raise Stopped
                await _wait_for(self._freed)
            self._under_way += 1
        try:
            yield self._round
        finally:
            self._under_way -= 1
            async with self._freed:
                self._freed.notify(2)

    def shrink(self, round: int) -> None:
        """The server asked for fewer requests, in answer to one of that round."""
        if round == self._round:
            self._round += 1
            self.limit = max(1.0, self.limit / 2)

    def grow(self) -> None:
        """The server answered."""
        self.limit = min(float(self._most), self.limit + 1 / self.limit)


class Budget:
    """A cap in dollars that is never passed: each request first sets aside the most that it can cost."""

    def __init__(self, cap: float | None, journal: Journal) -> None:
        self._cap = cap
        self._journal = journal
        self._reserved: list[float] = []
        self._freed = asyncio.Condition()

    @asynccontextmanager
    async def reserve(self, worst: float | None, stopping: Callable[[], bool]) -> AsyncIterator[None]:
        """Sets ``worst`` aside while open; what was really spent goes into the journal meanwhile.

        Raises:
            ProviderError: it does not fit, and no request under way will give anything back.
            Stopped: the run is to stop.
        """
        if self._cap is None or worst is None:
            yield
            return
        async with self._freed:
            while self._journal.spent + sum(self._reserved) + worst > self._cap:
                if not self._reserved:
                    raise ProviderError(
                        f"the next request may cost ${worst:.4f}, and ${self._journal.spent:.4f} of the "
                        f"${self._cap:g} budget are spent: raise --max-usd to go on.",
                        Fault.QUOTA,
                    )
                if stopping():
                    raise Stopped
                await _wait_for(self._freed)
            self._reserved.append(worst)
        try:
            yield
        finally:
            self._reserved.remove(worst)
            async with self._freed:
                self._freed.notify_all()


class Gateway:
    """The line to a provider behind an API, shared by all episodes of a run."""

    def __init__(
        self,
        wire: Wire,
        service: Service,
        journal: Journal,
        *,
        deadlines: Deadlines,
        retries: Retries,
        concurrency: int,
        max_usd: float | None,
        stopping: Callable[[], bool],
        warn: Callable[[str, str], None],
    ) -> None:
        """Connects episodes to ``wire``.

        Args:
            wire: makes one attempt.
            service: what it leads to.
            journal: where attempts and money are noted.
            deadlines: of an attempt.
            retries: see there.
            concurrency: the most requests at a time.
            max_usd: the budget, over all runs into the folder; None for none.
            stopping: whether the run is to stop.
            warn: called with a kind and a sentence when an attempt fails.
        """
        self._wire, self._service, self._journal = wire, service, journal
        self._deadlines, self._retries = deadlines, retries
        self._stopping, self._warn = stopping, warn
        self._priced = max_usd is not None
        self.throttle = Throttle(concurrency)
        self._budget = Budget(max_usd, journal)

    async def ask(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], episode: str, week: int, deadline: float
    ) -> Turn:
        """See ``Line``."""
        worst = self._worst(messages, tools)
        attempt = 0
        while True:
            attempt += 1
            if self._stopping():
                raise Stopped
            try:
                return await self._attempt(messages, tools, episode, week, deadline, worst, attempt)
            except ProviderError as error:
                wait = self._retries.wait(attempt, error.after)
                if not error.fault.retried:
                    raise
                self._warn(error.fault, f"{episode}, week {week}: {error}")
                if attempt >= self._retries.attempts:
                    raise _told(error, f"given up after {attempt} attempts") from error
                if (error.after or 0.0) > self._retries.most_retry_after:
                    limit = self._retries.most_retry_after
                    asked = f"the server asks to wait {error.after:.0f} s, and {limit:.0f} s is the most"
                    raise _told(error, asked) from error
                if time.monotonic() + wait >= deadline:
                    raise _too_late() from error
            await self._sleep(wait)

    async def _attempt(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]],
        episode: str,
        week: int,
        deadline: float,
        worst: float | None,
        attempt: int,
    ) -> Turn:
        async with self.throttle.slot(self._stopping) as round, self._budget.reserve(worst, self._stopping):
            number = self._journal.ask(episode, week, attempt, worst, utc_now())
            started = time.monotonic()
            seconds = min(self._deadlines.attempt, max(deadline - started, 0.0))
            try:
                try:
                    async with asyncio.timeout(seconds):
                        turn = await self._wire.turn(messages, tools)
                except TimeoutError as error:
                    raise ProviderError(f"no answer within {seconds:g} s.", Fault.TIMEOUT, billed=True) from error
            except ProviderError as error:
                self._journal.fault(number, error, worst, started)
                if error.fault is Fault.THROTTLED:
                    self.throttle.shrink(round)
                raise
            self._journal.answer(number, turn, started)
            self.throttle.grow()
            return turn

    def _worst(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> float | None:
        """The most that a request can cost. A token is a byte at least, so bytes bound what has no count yet."""
        price = self._service.price
        if not self._priced or price is None:
            return None
        tokens = 0
        for message in reversed(messages):
            usage = message["turn"]["usage"] if message["role"] == "assistant" else None
            if usage is not None:
                counted = Usage(**usage)
                tokens += counted.prompt + counted.output
                break
            tokens += len(canonical(message))
        else:
            tokens += len(canonical(tools))
        return price.worst(tokens, self._service.max_output_tokens)

    async def _sleep(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if self._stopping():
                raise Stopped
            await asyncio.sleep(min(left, POLL_SECONDS))


def _told(error: ProviderError, more: str) -> ProviderError:
    return ProviderError(f"{str(error).rstrip('.')} ({more}).", error.fault, error.after, error.billed)


def _too_late() -> ProviderError:
    return ProviderError("the episode's time is up (--episode-timeout).", Fault.TIMEOUT)


async def _wait_for(condition: asyncio.Condition) -> None:
    """Waits to be notified, but not for long, so that a stop is noticed."""
    try:
        async with asyncio.timeout(POLL_SECONDS):
            await condition.wait()
    except TimeoutError:
        pass
