"""The log of one episode: a line of JSON for every event, only ever appended to.

====== ===========================================================================================================
event  holds
====== ===========================================================================================================
header versions, tape, agent and its settings, as hashes where they are long; the time
turn   an agent's answer and the hash of what it answered; on disk before the world moves
result what its calls returned, or the reminder that it called nothing
week   the accepted calls of a committed week in the desk's own words, what was stated beside them, and the costs
end    how the episode ended, what it cost, and how many tokens it took
====== ===========================================================================================================

There is no saved state. Whoever opens an unfinished log plays the episode again from the start: the turns come out of
the log instead of the agent, and every event that this brings about is compared with the one on record
(``EpisodeLog.record``) until the record ends; from there on, events are appended. Nothing but the header holds a time,
so that an interrupted episode leaves the same bytes as one that was not.
"""

import json
import os
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stocktake_agents.errors import LogError, UsageError

SCHEMA = 2

Event = dict[str, Any]


def encode(event: Mapping[str, Any]) -> bytes:
    """One line of the log. Plain ASCII, so that text in any script, well formed or not, survives every machine."""
    return json.dumps(event, allow_nan=False, separators=(",", ":")).encode("ascii") + b"\n"


def read_events(path: Path) -> tuple[list[Event], int]:
    """Reads a log.

    Args:
        path: the log; one that does not exist has no events.

    Returns:
        The events, the header first, and the number of bytes they take. A last line that was cut short counts for
        nothing: what it held happens again.

    Raises:
        LogError: a line before the last is no event, or the first is no header.
    """
    events, size = read_lines(path)
    for number, event in enumerate(events, start=1):
        if (number == 1) != (event["event"] == "header"):
            raise LogError(f"{path}, line {number}: a log starts with its header and has only one.")
    return events, size


def read_lines(path: Path) -> tuple[list[Event], int]:
    """Reads any file of events, as ``read_events`` does but for the header."""
    lines = path.read_bytes().split(b"\n") if path.exists() else [b""]
    torn = lines.pop()  # empty unless the last line was cut short
    events: list[Event] = []
    size = 0
    for number, line in enumerate(lines, start=1):
        event = _parse(line)
        if event is None:
            if number == len(lines) and not torn:
                break  # the last line, garbled although it was ended
            raise LogError(
                f"{path}, line {number}: not an event of a log. Restore the file, or remove it to play it again."
            )
        events.append(event)
        size += len(line) + 1
    return events, size


def _parse(line: bytes) -> Event | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and isinstance(event.get("event"), str) else None


def check_same(path: Path, written: Mapping[str, Any], current: Mapping[str, Any]) -> None:
    """Makes sure that a file was made by this version with these settings.

    Args:
        path: the file, for the message.
        written: what the file says of itself.
        current: what this run would write; its first field is the schema's version, and all are compared in order.

    Raises:
        UsageError: names the first field that differs.
    """
    for field, mine in current.items():
        theirs = written.get(field)
        if json.loads(json.dumps(mine)) != theirs:
            raise UsageError(
                f"{path} was made with {field} {_brief(theirs)} and this run has {field} {_brief(mine)}: "
                "use the same settings and version, or another folder (--out)."
            )


def _brief(value: Any) -> str:
    shown = value if isinstance(value, str) else json.dumps(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."


class RecordEnds(Exception):
    """An episode was replayed to where its log ends."""


class Record:
    """What a log holds, to be met again event by event.

    Attributes:
        left: how many events have not been met yet.
    """

    def __init__(self, path: Path, events: Sequence[Event]) -> None:
        """Starts behind the header, ``events[0]``."""
        self._path = path
        self._line = min(len(events), 1)
        self._recorded = deque(events[1:])

    @property
    def left(self) -> int:
        return len(self._recorded)

    def next_turn(self) -> Mapping[str, Any] | None:
        """The turn on record for this moment, or None when there is none."""
        return self._recorded[0]["turn"] if self._recorded and self._recorded[0]["event"] == "turn" else None

    def record(self, event: Event, durable: bool = False) -> None:
        """Finds an event on record.

        Args:
            event: what just happened; its first key is ``event``.
            durable: says nothing here.

        Raises:
            UsageError: the record holds something else at this point.
            RecordEnds: it holds nothing more.
        """
        self._line += 1
        if not self._recorded:
            raise RecordEnds
        recorded = self._recorded.popleft()
        for field, value in json.loads(encode(event)).items():
            if recorded.get(field) != value:
                raise UsageError(
                    f"{self._path}, line {self._line}: replayed, the {event['event']} event has another {field} "
                    "than the log, which was therefore made by another version of the prompt, the tools or the world: "
                    "use that version, or another folder (--out)."
                )


class EpisodeLog(Record):
    """An open log: first replays what it holds, then grows."""

    def __init__(self, path: Path, identity: Mapping[str, Any], created_utc: str) -> None:
        """Opens a log or starts it.

        Args:
            path: the file.
            identity: what has to be the same for the episode to go on: versions, tape, agent and settings.
            created_utc: goes into the header of a new log.

        Raises:
            UsageError: the log belongs to another version or to other settings.
            LogError: it cannot be read.
        """
        events, self._size = read_events(path)
        if events:
            check_same(path, events[0], identity)
        super().__init__(path, events)
        self._file = path.open("ab")  # closed by close()
        self._file.truncate(self._size)
        if not events:
            self._append(encode({"event": "header", **identity, "created_utc": created_utc}), durable=True)

    def record(self, event: Event, durable: bool = False) -> None:
        """Puts an event on record, or finds it there.

        Args:
            event: what just happened; its first key is ``event``.
            durable: whether it must be on disk before this returns.

        Raises:
            UsageError: the record holds something else at this point.
        """
        if self._recorded:
            super().record(event)
        else:
            self._line += 1
            self._append(encode(event), durable)

    def _append(self, line: bytes, durable: bool) -> None:
        if os.fstat(self._file.fileno()).st_size != self._size:
            raise UsageError(
                f"{self._path} is being written by another run: wait for it, or use another folder (--out)."
            )
        self._file.write(line)
        self._file.flush()
        self._size += len(line)
        if durable:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Closes the file."""
        self._file.close()
