"""Which tapes a run plays: the grammar of ``--seeds``.

A list is made of items parted by commas: a seed (``25``), a range (``0-19``), a group of the fifty published seeds
(``published``, or one stress profile such as ``isolated``), or ``mint:`` before seeds and ranges, which turns all the
numbers after it into minted tapes (``25,mint:7,8``). Anything else is taken as a file holding one list per line.
"""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

import stocktake_jax as st
from stocktake_agents.errors import UsageError

MAX_SEED = 2**32 - 1  # a tape is named by an unsigned 32-bit number; a larger one would wrap around in the key
MAX_EPISODES = 10_000  # a range such as 0-4294967295 is a slip of the pen, not a plan
GROUPS = ("published", *st.PROFILES)
ITEMS = f"a seed (25), a range (0-19), a group ({', '.join(GROUPS)}) or minted tapes (mint:7,8)"


@dataclass(frozen=True)
class EpisodeName:
    """Names one tape, and which time it is played.

    Attributes:
        source: "published" (the paper's stream) or "minted".
        seed: a 32-bit number.
        repeat: from 1.
    """

    source: str
    seed: int
    repeat: int = 1

    def tape(self) -> st.Tape:
        """Draws the tape."""
        return st.published_tape(self.seed) if self.source == "published" else st.mint(np.uint32(self.seed))

    @property
    def first(self) -> "EpisodeName":
        """The first repeat, which stands for the tape."""
        return replace(self, repeat=1)

    @property
    def stem(self) -> str:
        """The file name of this episode's log, without its suffix."""
        return f"{self.source}-{self.seed}" + (f"-r{self.repeat}" if self.repeat > 1 else "")

    def __str__(self) -> str:
        seed = str(self.seed) if self.source == "published" else f"mint:{self.seed}"
        return seed + (f" (repeat {self.repeat})" if self.repeat > 1 else "")


def repeated(names: Iterable[EpisodeName], repeats: int) -> tuple[EpisodeName, ...]:
    """Every name ``repeats`` times: all tapes once before any a second time."""
    names = tuple(names)
    return tuple(replace(name, repeat=repeat) for repeat in range(1, repeats + 1) for name in names)


def parse_seeds(text: str, most: int = MAX_EPISODES) -> tuple[EpisodeName, ...]:
    """Reads a ``--seeds`` argument.

    Args:
        text: a list in the grammar above, or the path of a file with one list per line and # comments.
        most: how many tapes may be named.

    Returns:
        The tapes, published before minted, each in rising order and once.

    Raises:
        UsageError: the text fits neither, or names more than ``most`` tapes.
    """
    try:
        names = _parse_list(text, most)
    except UsageError:
        if not os.path.exists(text):
            raise
        names = _parse_file(Path(text), most)
    if len(names) > most:
        raise UsageError(f"--seeds names {len(names)} tapes: one run plays at most {most}.")
    return tuple(sorted(names, key=lambda name: (name.source == "minted", name.seed)))


def slug(text: str) -> str:
    """A folder name for a ``--seeds`` argument: the text itself where it is short and harmless."""
    name = Path(text).stem if os.path.isfile(text) else text
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", name.replace(" ", "").replace(",", "_")).strip("-_")
    return name if len(name) <= 60 else f"{name[:50]}-and-more"


def _parse_file(path: Path, most: int) -> set[EpisodeName]:
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the seed file {path} cannot be read ({error}): give a text file in UTF-8.") from error
    names: set[EpisodeName] = set()
    for number, line in enumerate(lines, start=1):
        content = line.partition("#")[0].strip()
        if content:
            try:
                names |= _parse_list(content, most)
            except UsageError as error:
                raise UsageError(f"{path}, line {number}: {error}") from error
    if not names:
        raise UsageError(f"the seed file {path} names no seed: put {ITEMS} on a line.")
    return names


def _parse_list(text: str, most: int) -> set[EpisodeName]:
    source = "published"
    names: set[EpisodeName] = set()
    for item in text.split(","):
        item = item.strip()
        if item.startswith("mint:"):
            source, item = "minted", item.removeprefix("mint:").strip()
        names |= set(_parse_item(item, source, most))
    return names


def _parse_item(item: str, source: str, most: int) -> Iterable[EpisodeName]:
    if item in GROUPS:
        return [EpisodeName("published", s.seed) for s in st.published_seeds() if item in ("published", s.group)]
    match = re.fullmatch(r"([0-9]+)(?:\s*-\s*([0-9]+))?", item)
    if match is None:
        if re.fullmatch(r"-\s*[0-9]+", item):
            raise UsageError(f"seed {item} is negative: seeds are whole numbers from 0 to {MAX_SEED}.")
        raise UsageError(f"--seeds has {item[:40]!r}, which is neither {ITEMS} nor a readable file of those.")
    first, last = int(match[1]), int(match[2] or match[1])
    if max(first, last) > MAX_SEED:
        raise UsageError(f"seed {max(first, last)} is too large: seeds are whole numbers from 0 to {MAX_SEED}.")
    if last < first:
        raise UsageError(f"the range {item} runs backwards: write {last}-{first}.")
    if last - first >= most:
        raise UsageError(f"the range {item} has {last - first + 1} seeds: one run plays at most {most}.")
    return [EpisodeName(source, seed) for seed in range(first, last + 1)]
