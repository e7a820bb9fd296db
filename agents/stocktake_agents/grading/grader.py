"""What a grader is: it reads one rationale and nothing else, and says which processes the text calls a problem.

It never sees the truth, a score, the agent's name or another week. It names a process only with a piece of the text as
evidence. A grader that fails raises: a week without a grade is left out of every figure and counted, and never taken
for a week in which nothing was named.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import stocktake_jax as st

GRADING_VERSION = 1
"""Raised with every change of what counts as naming; grades of two versions never meet in one table."""


class GradeError(Exception):
    """A grader gave no usable grade."""


@dataclass(frozen=True)
class Grade:
    """What a rationale names.

    Attributes:
        evidence: for each named process a piece of the rationale, word for word.
    """

    evidence: Mapping[str, str]

    @property
    def named(self) -> tuple[str, ...]:
        """The named processes, in the order of ``st.FACTORS``."""
        return tuple(factor for factor in st.FACTORS if factor in self.evidence)


class Grader(Protocol):
    """Grades rationales one at a time.

    Attributes:
        name: of the grader, for tables and file names.
        identity: all that a grade depends on beside the text, JSON.
    """

    name: str
    identity: Mapping[str, Any]

    async def grade(self, rationale: str) -> Grade:
        """The grade of one rationale.

        Raises:
            GradeError: there is none.
        """
        ...


def checked(evidence: Mapping[str, str], rationale: str) -> Grade:
    """A grade whose evidence really stands in the rationale.

    White space, case and the kind of quotation marks may differ, since models tidy what they quote.

    Raises:
        GradeError: a factor is unknown, or its evidence is blank or not in the rationale.
    """
    text = _plain(rationale)
    for factor, quote in evidence.items():
        if factor not in st.FACTORS:
            raise GradeError(f"{factor[:40]!r} is none of {', '.join(st.FACTORS)}.")
        if not _plain(quote) or _plain(quote) not in text:
            raise GradeError(f"the evidence for {factor}, {quote[:60]!r}, does not stand in the rationale.")
    return Grade({factor: evidence[factor] for factor in st.FACTORS if factor in evidence})


_MARKS = str.maketrans({"“": '"', "”": '"', "‘": "'", "’": "'", "–": "-", "—": "-", "\u00a0": " "})


def _plain(text: str) -> str:
    return " ".join(text.translate(_MARKS).lower().split()).strip("\"'. ")
