"""What was asked of a provider and what it cost: one line for every attempt, beside the episodes' logs.

====== ===========================================================================================================
event  holds
====== ===========================================================================================================
ask    number, episode, week, attempt, the most it may cost in $ (null where that is unknown), the time
answer number, seconds, what it cost in $ and how that is known, usage, who served it, the provider's request id
fault  number, seconds, the fault and its message, what it may have cost
lost   number, and the most it may have cost: the run was killed before an answer came
====== ===========================================================================================================

Episodes replay from their own logs; nothing here is needed for that. It is where money is counted, so that a budget
holds over restarts, and where one looks when a provider misbehaves.
"""

import os
import time
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Any

from stocktake_agents.errors import ProviderError, UsageError
from stocktake_agents.log import Event, encode, read_lines
from stocktake_agents.provider import Service, Turn

FILE_NAME = "attempts.jsonl"


def cost_of(turn: Turn, service: Service) -> tuple[float | None, str]:
    """What an answer cost in $, and how that is known: "free", "reported", "priced" or "unpriced" (then None)."""
    if service.free:
        return 0.0, "free"
    if turn.usd is not None:
        return turn.usd, "reported"
    if service.price is not None and turn.usage is not None:
        return service.price.cost(turn.usage), "priced"
    return None, "unpriced"


class Journal:
    """``attempts.jsonl`` of a results folder.

    Attributes:
        spent: $ that all runs into this folder have cost, or may have.
        unpriced: answers whose cost is unknown.
        faults: how often each fault met this run.
        models, hosts: who answered in this run, and how often.
    """

    def __init__(self, folder: Path, service: Service) -> None:
        """Opens the journal; what an earlier run asked and never heard of is settled at its worst.

        Raises:
            LogError: a line before the last is no event.
            UsageError: it is being written by another run; any later call may say so, too.
        """
        self._service = service
        self._path = folder / FILE_NAME
        events, size = read_lines(self._path)
        self.spent = 0.0
        self.unpriced = 0
        self.faults: Counter[str] = Counter()
        self.models: Counter[str] = Counter()
        self.hosts: Counter[str] = Counter()
        open_asks: dict[int, float | None] = {}
        for event in events:
            if event["event"] == "ask":
                open_asks[event["n"]] = event["worst_usd"]
            else:
                open_asks.pop(event["n"], None)
                self._count(event["usd"], event["event"] == "answer")
        self._next = len(events)
        self._file = self._path.open("ab")
        self._file.truncate(size)
        self._size = size
        for number, worst in open_asks.items():
            self._write({"event": "lost", "n": number, "usd": worst})
            self._count(worst, False)

    @property
    def known(self) -> float | None:
        """``spent``, or None where nothing at all is known: what has no price must not look free."""
        return None if self.unpriced and not self.spent else self.spent

    def __enter__(self) -> "Journal":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def ask(self, episode: str, week: int, attempt: int, worst: float | None, utc: str) -> int:
        """Notes a request before it leaves; returns its number."""
        number = self._next
        self._next += 1
        self._write(
            {"event": "ask", "n": number, "episode": episode, "week": week, "attempt": attempt, "worst_usd": worst,
             "utc": utc}
        )  # fmt: skip
        return number

    def answer(self, number: int, turn: Turn, started: float) -> float | None:
        """Notes an answer; returns what it cost."""
        usd, basis = cost_of(turn, self._service)
        self._count(usd, True)
        self.models[str(turn.model)] += 1
        if turn.host is not None:
            self.hosts[turn.host] += 1
        facts = {"usd": usd, "basis": basis, "usage": turn.to_json()["usage"], "model": turn.model, "host": turn.host}
        self._write({"event": "answer", "n": number, **_seconds(started), **facts, "request_id": turn.request_id})
        return usd

    def fault(self, number: int, error: ProviderError, worst: float | None, started: float) -> float | None:
        """Notes a failed attempt; returns what it may have cost."""
        usd = worst if error.billed and not self._service.free else 0.0
        self._count(usd, False)
        self.faults[error.fault] += 1
        self._write(
            {"event": "fault", "n": number, **_seconds(started), "fault": error.fault, "message": str(error),
             "after": error.after, "usd": usd}
        )  # fmt: skip
        return usd

    def _count(self, usd: float | None, answered: bool) -> None:
        self.spent += usd or 0.0
        self.unpriced += answered and usd is None

    def _write(self, event: Event) -> None:
        if os.fstat(self._file.fileno()).st_size != self._size:
            raise UsageError(
                f"{self._path} is being written by another run: wait for it, or use another folder (--out)."
            )
        line = encode(event)
        self._file.write(line)
        self._file.flush()
        self._size += len(line)


def _seconds(started: float) -> dict[str, Any]:
    return {"seconds": round(time.monotonic() - started, 3)}
