"""Grades of a run, one file for each grader: ``grades-NAME.jsonl``, a line for each text.

A grade belongs to a text, whoever wrote it and when: the same words are graded once. The file is its own cache, so that
a second pass asks for nothing but what is missing or could not be graded. Another rubric, model or version is another
grader, and does not write into the file.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import stocktake_jax as st
from stocktake_agents.clock import utc_now
from stocktake_agents.conversation import digest
from stocktake_agents.errors import UsageError
from stocktake_agents.grading.grader import Grade, Grader
from stocktake_agents.log import check_same, encode, read_events, read_lines
from stocktake_agents.seeds import slug

PREFIX = "grades-"


def rationales(log: Path) -> dict[int, str]:
    """The rationale of every committed week of an episode, by decision week, in the desk's own words."""
    events, _ = read_events(log)
    weeks = (event for event in events if event["event"] == "week")
    return {event["week"] - 1: event["calls"][-1]["arguments"]["rationale"] for event in weeks}


class GradeBook:
    """The grades of one grader for one run.

    Attributes:
        grader: its name.
    """

    def __init__(self, folder: Path, identity: Mapping[str, Any], name: str) -> None:
        """Reads what is there; nothing is written yet.

        Args:
            folder: a results folder.
            identity: of the grader.
            name: of the grader.

        Raises:
            UsageError: the file is another grader's.
            LogError: a line before the last is no event.
        """
        self.grader = name
        self._path = folder / f"{PREFIX}{slug(name)}.jsonl"
        self._identity = dict(identity)
        events, self._size = read_lines(self._path)
        if events:
            check_same(self._path, events[0].get("identity", {}), self._identity)
        self._entries = {event["text"]: event for event in events if event["event"] == "grade"}
        self._started = bool(events)

    @classmethod
    def read(cls, path: Path) -> "GradeBook":
        """The book in a file.

        Raises:
            UsageError: it is none.
        """
        events, _ = read_lines(path)
        if not events or "identity" not in events[0]:
            raise UsageError(f"{path} holds no grades: make them with scripts/grade.py.")
        return cls(path.parent, events[0]["identity"], events[0]["identity"]["grader"])

    @property
    def identity(self) -> dict[str, Any]:
        """Of the grader."""
        return self._identity

    def get(self, rationale: str) -> Grade | None:
        """The grade of a text, or None where there is none."""
        entry = self._entries.get(digest(rationale))
        return Grade(entry["evidence"]) if entry is not None and entry["status"] == "graded" else None

    def missing(self, texts: Iterable[str]) -> list[str]:
        """The texts without a grade, each once."""
        return [text for text in dict.fromkeys(texts) if self.get(text) is None]

    def put(self, rationale: str, grade: Grade | None, error: str = "") -> None:
        """Adds a grade, or notes that there is none and why."""
        evidence = {} if grade is None else dict(grade.evidence)
        status = "ungraded" if grade is None else "graded"
        entry = {"event": "grade", "text": digest(rationale), "status": status, "evidence": evidence, "error": error}
        lines = encode(entry)
        if not self._started:
            lines = encode({"event": "header", "identity": self._identity, "created_utc": utc_now()}) + lines
            self._started = True
        with self._path.open("ab") as file:
            file.truncate(self._size)
            file.write(lines)
        self._size += len(lines)
        self._entries[entry["text"]] = entry

    def marks(self, by_week: Mapping[int, str], weeks: int = 27) -> tuple[np.ndarray, np.ndarray]:
        """What an episode's rationales name, bool ``[weeks, 6]``, and which weeks are graded, bool ``[weeks]``."""
        named, graded = np.zeros((weeks, len(st.FACTORS)), bool), np.zeros(weeks, bool)
        for week, text in by_week.items():
            grade = self.get(text)
            if grade is not None:
                graded[week] = True
                named[week, [st.FACTORS.index(factor) for factor in grade.named]] = True
        return named, graded


def books(folder: Path) -> list[GradeBook]:
    """All the books of a run, by file name."""
    return [GradeBook.read(path) for path in sorted(folder.glob(f"{PREFIX}*.jsonl"))]


def open_book(folder: Path, grader: Grader) -> GradeBook:
    """The book of a grader for a run."""
    return GradeBook(folder, grader.identity, grader.name)
