"""Two-way renaming: the same world in words that no textbook and no newspaper knows."""

import json
import re
from collections.abc import Mapping
from typing import Any

import stocktake_jax as st
from stocktake_agents.arms.arm import Lens
from stocktake_agents.provider import ToolCall
from stocktake_jax.factors import canal


class Renaming:
    """A one-to-one map between words, in any case, also where they are parts of an identifier.

    Args:
        words: from the desk's words to the agent's, lower case.
        texts: phrases of the desk that the agent reads otherwise; that way only.

    Raises:
        ValueError: two words have the same image, or an image is a word of the desk.
    """

    def __init__(self, words: Mapping[str, str], texts: Mapping[str, str]) -> None:
        images = list(words.values())
        if len(set(images)) < len(images) or set(images) & set(words):
            raise ValueError("a renaming must be one to one, and its images new words")
        self._there = _replacer(words)
        self._back = _replacer({image: word for word, image in words.items()})
        self._texts = dict(texts)

    def to_agent(self, text: str) -> str:
        """A text in the agent's words."""
        for phrase, image in self._texts.items():
            text = text.replace(phrase, image)
        return self._there(text)

    def to_desk(self, text: str) -> str:
        """A text of the agent in the desk's words."""
        return self._back(text)

    def json_to_agent(self, value: Any) -> Any:
        """A JSON value with all keys and strings renamed."""
        return _walk(value, self.to_agent)

    def json_to_desk(self, value: Any) -> Any:
        """The inverse of ``json_to_agent``."""
        return _walk(value, self.to_desk)


def _replacer(words: Mapping[str, str]) -> Any:
    # Not preceded or followed by a letter: an underscore parts the words of an identifier.
    pattern = re.compile(rf"(?<![A-Za-z])({'|'.join(map(re.escape, words))})(?![A-Za-z])", re.IGNORECASE)

    def swap(match: re.Match[str]) -> str:
        found = match[0]
        image = words[found.lower()]
        return image.upper() if found.isupper() else image.capitalize() if found[0].isupper() else image

    return lambda text: pattern.sub(swap, text)


def _walk(value: Any, rename: Any) -> Any:
    if isinstance(value, str):
        return rename(value)
    if isinstance(value, Mapping):
        return {rename(key): _walk(entry, rename) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_walk(entry, rename) for entry in value]
    return value


class RenamingLens(Lens):
    """Renames whatever passes; bulletins are written anew, one for each of the canal's visible bands."""

    def __init__(self, renaming: Renaming, bulletins: Mapping[str, str]) -> None:
        self._renaming = renaming
        self._bulletins = bulletins_by_text(bulletins)

    def report(self, report: Mapping[str, Any], desk: st.Episode) -> dict[str, Any]:
        """See ``Lens``."""
        renamed: dict[str, Any] = self._renaming.json_to_agent({**report, "bulletin": ""})
        return renamed | {"bulletin": self._bulletins[report["bulletin"]]}

    def call(self, call: ToolCall) -> ToolCall:
        """See ``Lens``."""
        meant = self._renaming.json_to_desk(json.loads(call.arguments))
        return ToolCall(call.id, self._renaming.to_desk(call.name), json.dumps(meant))

    def words(self, text: str) -> str:
        """See ``Lens``."""
        return self._renaming.to_agent(text)

    def understood(self, text: str) -> str:
        """See ``Lens``."""
        return self._renaming.to_desk(text)


class BulletinLens(Lens):
    """Shows bulletins in other words, around another lens."""

    def __init__(self, inner: Lens, bulletins: Mapping[str, str]) -> None:
        self._inner = inner
        self._bulletins = bulletins_by_text(bulletins)

    def report(self, report: Mapping[str, Any], desk: st.Episode) -> dict[str, Any]:
        """See ``Lens``."""
        return self._inner.report(report, desk) | {"bulletin": self._bulletins[report["bulletin"]]}

    def call(self, call: ToolCall) -> ToolCall:
        """See ``Lens``."""
        return self._inner.call(call)

    def words(self, text: str) -> str:
        """See ``Lens``."""
        return self._inner.words(text)

    def understood(self, text: str) -> str:
        """See ``Lens``."""
        return self._inner.understood(text)


def bulletins_by_text(bulletins: Mapping[str, str]) -> dict[str, str]:
    """From the shipped bulletin of a band to the one that stands in its place."""
    return {text: bulletins[band] for band, text in zip(canal.BANDS, canal.BULLETINS, strict=True)}
