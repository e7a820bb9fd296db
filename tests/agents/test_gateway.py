"""The way to a provider: tried again where that helps, never for longer or for more money than was said."""

import asyncio
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from stocktake_agents import gateway
from stocktake_agents.conversation import Message
from stocktake_agents.errors import Fault, LogError, ProviderError, UsageError
from stocktake_agents.gateway import Budget, Direct, Gateway, Retries, Stopped, Throttle
from stocktake_agents.journal import FILE_NAME, Journal, cost_of
from stocktake_agents.prices import Price
from stocktake_agents.provider import Deadlines, Service, Turn
from stocktake_agents.usage import Usage

PRICE = Price(input=1.0, output=10.0, cache_read=0.1, cache_write_5m=1.25, cache_write_1h=2.0, as_of="2026-11-30")
SOON = Retries(attempts=4, first_wait=0.001, most_wait=0.002, most_retry_after=1.0)
FAR = float("inf")
MESSAGES: list[Message] = [{"role": "user", "content": "0123456789"}]


class FakeWire:
    """Meets a list of faults, then answers for ever."""

    sent: Mapping[str, Any] = {}
    dropped: Mapping[str, str] = {}

    def __init__(self, *faults: ProviderError, seconds: float = 0.0, turn: Turn | None = None) -> None:
        self.faults = list(faults)
        self.seconds = seconds
        self.answer = turn or Turn(stop="end", usage=Usage(input=100, output=10), model="fake-1")
        self.requests = self.now = self.most = 0

    async def turn(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> Turn:
        self.requests += 1
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await asyncio.sleep(self.seconds)
            if self.faults:
                raise self.faults.pop(0)
            return self.answer
        finally:
            self.now -= 1

    async def look_up(self) -> Mapping[str, Any]:
        return {"context": None, "max_output": None}

    async def close(self) -> None:
        pass


def service(price: Price | None = PRICE, free: bool = False) -> Service:
    return Service("local", "fake", "http://127.0.0.1", lambda deadlines, connections: FakeWire(), 1000, price, free)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with Journal(tmp_path, service()) as opened:
        yield opened


def through(wire: FakeWire, journal: Journal, **changes: Any) -> Gateway:
    settings: dict[str, Any] = {
        "deadlines": Deadlines(), "retries": SOON, "concurrency": 4, "max_usd": None, "stopping": lambda: False,
        "warn": lambda kind, sentence: None,
    }  # fmt: skip
    return Gateway(wire, service(), journal, **settings | changes)


def ask(gateway: Gateway, deadline: float = FAR) -> Turn:
    return asyncio.run(gateway.ask(MESSAGES, [], "published-1", 3, deadline))


def events(tmp_path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (tmp_path / FILE_NAME).read_bytes().splitlines()]


@pytest.mark.parametrize("fault", [Fault.THROTTLED, Fault.TRANSIENT, Fault.TIMEOUT])
def test_what_may_pass_is_tried_again(fault: Fault, journal: Journal, tmp_path: Path) -> None:
    wire = FakeWire(ProviderError("no", fault), ProviderError("no", fault))
    warned: list[str] = []
    assert ask(through(wire, journal, warn=lambda kind, sentence: warned.append(kind))) == wire.answer
    assert wire.requests == 3
    assert warned == [fault, fault]
    assert [event["event"] for event in events(tmp_path)] == ["ask", "fault", "ask", "fault", "ask", "answer"]
    assert [event["attempt"] for event in events(tmp_path) if event["event"] == "ask"] == [1, 2, 3]


@pytest.mark.parametrize("fault", [Fault.REJECTED, Fault.TRUNCATED, Fault.ACCOUNT, Fault.QUOTA])
def test_what_will_not_pass_is_asked_once(fault: Fault, journal: Journal) -> None:
    wire = FakeWire(ProviderError("no", fault))
    with pytest.raises(ProviderError, match="no"):
        ask(through(wire, journal))
    assert wire.requests == 1


def test_attempts_come_to_an_end_and_say_so(journal: Journal) -> None:
    wire = FakeWire(*[ProviderError("502 Bad Gateway.", Fault.TRANSIENT)] * 9)
    with pytest.raises(ProviderError, match=r"^502 Bad Gateway \(given up after 4 attempts\)\.$"):
        ask(through(wire, journal))
    assert wire.requests == 4


def test_retry_after_is_honoured_up_to_a_cap(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def sleep(self: Gateway, seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(Gateway, "_sleep", sleep)
    ask(through(FakeWire(ProviderError("slow down", Fault.THROTTLED, after=0.9)), journal))
    assert slept == [0.9]
    wire = FakeWire(ProviderError("slow down", Fault.THROTTLED, after=3600))
    with pytest.raises(ProviderError, match="asks to wait 3600 s, and 1 s is the most") as caught:
        ask(through(wire, journal))
    assert (caught.value.fault.status, wire.requests, slept) == ("provider", 1, [0.9])


def test_waits_double_up_to_a_cap_and_are_spread() -> None:
    retries = Retries(first_wait=1.0, most_wait=8.0)
    for attempt, most in ((1, 1.0), (2, 2.0), (3, 4.0), (4, 8.0), (9, 8.0)):
        waits = [retries.wait(attempt, None) for _ in range(200)]
        assert most / 2 <= min(waits) < 0.6 * most
        assert 0.9 * most < max(waits) <= most
    assert retries.wait(1, 30.0) == 30.0


def test_an_attempt_has_a_deadline_whatever_the_wire_does(journal: Journal, tmp_path: Path) -> None:
    wire = FakeWire(seconds=60.0)
    patient = through(wire, journal, deadlines=Deadlines(attempt=0.01), retries=Retries(attempts=2, first_wait=0.001))
    with pytest.raises(ProviderError, match=r"no answer within .+given up after 2 attempts") as caught:
        ask(patient)
    assert caught.value.fault.status == "timeout"
    assert [event["fault"] for event in events(tmp_path) if event["event"] == "fault"] == ["timeout", "timeout"]


def test_an_episode_has_a_deadline_that_no_wait_passes(journal: Journal) -> None:
    wire = FakeWire(*[ProviderError("busy", Fault.TRANSIENT, after=0.9)] * 9)
    with pytest.raises(ProviderError, match=r"--episode-timeout") as caught:
        ask(through(wire, journal), deadline=time.monotonic() + 0.5)
    assert (caught.value.fault.status, wire.requests) == ("timeout", 1)
    with pytest.raises(ProviderError, match=r"--episode-timeout"):
        asyncio.run(Direct(FakeWire(seconds=60.0)).ask(MESSAGES, [], "a", 0, time.monotonic() + 0.01))


def test_a_stop_ends_the_wait_and_nothing_new_leaves(journal: Journal) -> None:
    wire = FakeWire(*[ProviderError("busy", Fault.TRANSIENT)] * 9)
    with pytest.raises(Stopped):
        ask(through(wire, journal, stopping=lambda: wire.requests == 1, retries=Retries(first_wait=60.0)))
    assert wire.requests == 1


def test_concurrency_shrinks_once_a_round_and_grows_slowly() -> None:
    throttle = Throttle(16)
    for _ in range(5):
        throttle.shrink(0)  # answers to one burst
    assert throttle.limit == 8
    throttle.shrink(1)
    assert throttle.limit == 4
    for _ in range(5):
        throttle.grow()
    assert 4.9 < throttle.limit < 5.2
    for _ in range(1000):
        throttle.grow()
    assert throttle.limit == 16
    for round in range(2, 20):
        throttle.shrink(round)
    assert throttle.limit == 1


def test_only_throttling_shrinks_and_the_limit_holds(journal: Journal) -> None:
    async def crowd(wire: FakeWire, size: int) -> float:
        line = through(wire, journal, concurrency=4)
        await asyncio.gather(*(line.ask(MESSAGES, [], f"e{i}", 0, FAR) for i in range(size)))
        return line.throttle.limit

    calm = FakeWire(*[ProviderError("busy", Fault.TRANSIENT)] * 3, seconds=0.002)
    assert asyncio.run(crowd(calm, 12)) == 4
    assert (calm.most, calm.requests) == (4, 15)
    throttled = FakeWire(*[ProviderError("slow down", Fault.THROTTLED)] * 4, seconds=0.002)
    assert 2 < asyncio.run(crowd(throttled, 4)) < 4
    assert throttled.requests == 8


def test_costs_are_reported_priced_free_or_unknown() -> None:
    usage = Usage(input=1_000_000, cache_read=1_000_000, cache_write_5m=400_000, cache_write_1h=500_000, output=100_000)
    turn = Turn(stop="end", usage=usage)
    assert cost_of(turn, service()) == (pytest.approx(1.0 + 0.1 + 0.5 + 1.0 + 1.0), "priced")
    assert cost_of(Turn(stop="end", usage=usage, usd=0.5), service()) == (0.5, "reported")
    assert cost_of(turn, service(price=None)) == (None, "unpriced")
    assert cost_of(Turn(stop="end"), service()) == (None, "unpriced")
    assert cost_of(turn, service(free=True)) == (0.0, "free")


def test_the_budget_is_never_passed_and_nearly_used(journal: Journal) -> None:
    answer = Turn(stop="end", usage=Usage(input=10, output=1000))  # the worst that a request can cost, or nearly
    wire = FakeWire(seconds=0.001, turn=answer)
    worst = PRICE.worst(200, 1000)

    async def crowd() -> list[Any]:
        line = through(wire, journal, concurrency=8, max_usd=10 * worst)
        return await asyncio.gather(
            *(line.ask(MESSAGES, [], f"e{i}", 0, FAR) for i in range(40)), return_exceptions=True
        )

    outcomes = asyncio.run(crowd())
    refused = [outcome for outcome in outcomes if isinstance(outcome, ProviderError)]
    assert {error.fault for error in refused} == {Fault.QUOTA}
    assert "raise --max-usd" in str(refused[0])
    assert len(refused) + wire.requests == 40
    assert 0.8 * 10 * worst < journal.spent <= 10 * worst


def test_the_worst_case_bounds_every_prompt(journal: Journal) -> None:
    line = through(FakeWire(), journal, max_usd=1.0)
    said = {"usage": {"input": 500, "output": 70}}
    first = line._worst(MESSAGES, [{"name": "tool"}])
    assert first is not None
    assert first >= PRICE.worst(len(json.dumps(MESSAGES)) - 2, 1000)
    after = [*MESSAGES * 50, {"role": "assistant", "turn": said}, *MESSAGES]
    counted = line._worst(after, [])
    assert counted == pytest.approx(PRICE.worst(570 + len(b'{"content":"0123456789","role":"user"}'), 1000))


def test_a_timed_out_request_is_settled_at_its_worst(journal: Journal) -> None:
    wire = FakeWire(ProviderError("no answer", Fault.TIMEOUT, billed=True))
    line = through(wire, journal, max_usd=1.0)
    ask(line)
    worst = line._worst(MESSAGES, [])
    assert worst is not None
    assert journal.spent == pytest.approx(worst + PRICE.cost(wire.answer.usage or Usage()))


def test_money_is_counted_over_restarts_and_a_kill_costs_its_worst(tmp_path: Path) -> None:
    with Journal(tmp_path, service()) as first:
        number = first.ask("published-1", 0, 1, 0.5, "now")
        first.answer(number, Turn(stop="end", usage=Usage(input=1_000_000)), time.monotonic())
        first.ask("published-1", 1, 1, 0.25, "now")  # killed before it was answered
    with (tmp_path / FILE_NAME).open("ab") as file:
        file.write(b'{"event":"ask","n":')  # and while it wrote
    with Journal(tmp_path, service()) as second:
        assert second.spent == pytest.approx(1.25)
        number = second.ask("published-1", 1, 1, 0.25, "now")
        second.fault(number, ProviderError("no", Fault.TRANSIENT), 0.25, time.monotonic())
    with Journal(tmp_path, service()) as third:
        assert third.spent == pytest.approx(1.25)
    assert len({event["n"] for event in events(tmp_path) if event["event"] == "ask"}) == 3
    lines = (tmp_path / FILE_NAME).read_bytes().splitlines(keepends=True)
    (tmp_path / FILE_NAME).write_bytes(b"".join([lines[0], b"not an event\n", *lines[2:]]))
    with pytest.raises(LogError, match=r"attempts.jsonl, line 2"):
        Journal(tmp_path, service())


def test_two_runs_cannot_count_into_one_journal(tmp_path: Path) -> None:
    with Journal(tmp_path, service()) as first, Journal(tmp_path, service()) as second:
        first.ask("published-1", 0, 1, None, "now")
        with pytest.raises(UsageError, match="is being written by another run"):
            second.ask("published-2", 0, 1, None, "now")


def test_a_budget_waits_for_what_others_give_back(journal: Journal) -> None:
    budget = Budget(1.0, journal)
    order: list[str] = []

    async def spend(name: str, worst: float) -> None:
        async with budget.reserve(worst, lambda: False):
            order.append(name)
            await asyncio.sleep(0.01)

    async def both() -> None:
        await asyncio.gather(spend("a", 0.9), spend("b", 0.9))

    asyncio.run(both())
    assert order == ["a", "b"]


def test_every_wait_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "POLL_SECONDS", 0.005)
    stop: list[bool] = []

    async def full() -> None:
        throttle = Throttle(1)
        async with throttle.slot(lambda: False):
            asyncio.get_running_loop().call_later(0.02, stop.append, True)
            async with throttle.slot(lambda: bool(stop)):
                pass

    with pytest.raises(Stopped):
        asyncio.run(full())
