"""The grader that costs nothing: words of trouble, sentence by sentence, with an eye for denial.

A baseline, and what runs without a key. A model has to beat it on rationales graded by people before its grades are
worth their price.
"""

import re
from collections.abc import Mapping
from typing import Any

from stocktake_agents.conversation import digest
from stocktake_agents.grading.grader import GRADING_VERSION, Grade, checked

_HIGH = (
    r"(high|higher|elevated|long|longer|severe|spik\w+|surg\w+|jump\w*|ris\w+|climb\w*|worsen\w*|bad|dear|expensive)"
)
_LOW = r"(low|lower|down|drop\w*|fall\w*|fell|crash\w*|plung\w*|collaps\w*|zero|declin\w*|weak\w*|thin\w*)"
# For each process, what a text says when it says that it is in trouble.
PATTERNS: Mapping[str, tuple[str, ...]] = {
    "canal": (
        r"\b(suez|canal|bab|waterway|red sea)\b[^;]*\b(clos\w+|shut\w*|block\w*|crisis|crash\w*|disrupt\w*|incident"
        rf"|unsafe|halt\w*|{_LOW[1:-1]})\b",
        r"\b(closure|blockage|crisis|disruption|crash)\b[^;]*\b(suez|canal|waterway)\b",
        rf"\b(suez_count|bab_count|transits?|counts?)\b[^;]*\b{_LOW}\b",
    ),
    "demand": (
        r"\b(demand|sales|pos_units|pos)\b[^;]*\b(surg\w+|spik\w+|jump\w*|lift\w*|promo\w*|seasonal|declin\w*|drop\w*"
        r"|fall\w*|fell|weak\w*|elevated|high|higher|low|lower|strong\w*|ris\w+|rose|instead of|above|below)\b",
        r"\b(promotion|promo|seasonal lift|structural decline|demand (shock|shift))\b",
    ),
    "freight": (
        rf"\b(freight|freight_index|freight_outlook|rates?|multiplier)\b[^;]*\b{_HIGH}\b",
        r"\b(freight|rate)\b[^;]*\b(tighten\w*|spike)\b",
        r"\b(expensive|high|elevated|spiking)\b[^;]{0,20}\bfreight\b",
    ),
    "port": (
        r"\b(port|berths?|berth_wait|wait_outlook)\b[^;]*\b(congest\w*|jam\w*|delay\w*|backlog|hold|held|block\w*|queue\w*"
        rf"|slow\w*|{_HIGH[1:-1]})\b",
        r"\b(congestion|customs hold|demurrage)\b",
    ),
    "quality": (
        r"\b(quality|aql|aql_result|defects?|defective|rework)\b[^;]*\b(reject\w*|marginal|drift\w*|out of control|bad"
        rf"|poor|problem|issue|fail\w*|{_HIGH[1:-1]})\b",
        r"\b(reject|rejected|marginal)\b[^;]*\b(sample|aql|quality|batch)\b",
    ),
    "supplier": (
        r"\b(spot|supplier|otif)\b[^;]*\b(slip\w*|fail\w*|defunct|degrad\w*|wobbl\w*|unreliable|short\w*|late|dead"
        rf"|deteriorat\w*|weak\w*|drift\w*|problem|{_LOW[1:-1]})\b",
        r"\b(fill|realized_fill)\b[^;]*\b(low|poor|drop\w*|only|short\w*|fell|fall\w*)\b",
    ),
}
# A clause with one of these denies or dismisses what it mentions; "not yet" and "no longer" among them.
_DENIAL = re.compile(
    r"\b(no|not|isn't|aren't|without|never|none|nor|normal|normali[sz]\w+|calm|clear|cleared|eas(ed|ing)|recover\w*"
    r"|resolved|over|stable|reliable|fine|healthy|in control|back to|unlikely|if|should|in case|might|could|would)\b",
    re.IGNORECASE,
)
_SENTENCES = re.compile(r"(?<=[.;!?])\s+|\n+")  # the point of a number ends no sentence
_PARTS = re.compile(
    r",\s+(?:but|and|so|while|although|though|yet|which)\b|\bbut\b|\bhowever\b|\bwhile\b", re.IGNORECASE
)


class KeywordGrader:
    """Looks for words of trouble."""

    name = "keyword"
    identity: Mapping[str, Any] = {
        "grader": "keyword", "version": GRADING_VERSION, "patterns": digest([dict(PATTERNS), _DENIAL.pattern]),
    }  # fmt: skip

    async def grade(self, rationale: str) -> Grade:
        """See ``Grader``."""
        evidence: dict[str, str] = {}
        for sentence in _SENTENCES.split(rationale):
            for clause in _PARTS.split(sentence):
                if not clause.strip() or _DENIAL.search(clause):
                    continue
                for factor, patterns in _COMPILED.items():
                    if factor not in evidence and any(pattern.search(clause) for pattern in patterns):
                        evidence[factor] = clause.strip()
        return checked(evidence, rationale)


_COMPILED = {
    factor: [re.compile(pattern, re.IGNORECASE) for pattern in patterns] for factor, patterns in PATTERNS.items()
}
