"""What answers cost: dated prices of tokens, and three honest kinds of cost: reported, computed, unknown."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stocktake_agents.errors import UsageError
from stocktake_agents.usage import Usage

MILLION = 1_000_000


@dataclass(frozen=True)
class Price:
    """Dollars for a million tokens, and the day on which that was read off the provider's page.

    Attributes:
        input, cache_read, cache_write_5m, cache_write_1h, output: $ a million tokens, as ``Usage`` names them.
        as_of: ISO date.
    """

    input: float
    output: float
    cache_read: float
    cache_write_5m: float
    cache_write_1h: float
    as_of: str

    def cost(self, usage: Usage) -> float:
        """Dollars for an answer."""
        return (
            usage.input * self.input
            + usage.cache_read * self.cache_read
            + usage.cache_write_5m * self.cache_write_5m
            + usage.cache_write_1h * self.cache_write_1h
            + usage.output * self.output
        ) / MILLION

    def worst(self, prompt_tokens: int, output_tokens: int) -> float:
        """The most that a request can cost, in dollars: every prompt token at the dearest rate."""
        dearest = max(self.input, self.cache_read, self.cache_write_5m, self.cache_write_1h)
        return (prompt_tokens * dearest + output_tokens * self.output) / MILLION


def load_prices(path: Path) -> dict[str, Price]:
    """Reads a price file: a JSON object from model strings to the fields of ``Price``.

    ``{"anthropic/some-model": {"input": 3, "output": 15, "as_of": "2026-11-30"}}``. A cached read or write that has no
    price of its own costs as much as plain input.

    Raises:
        UsageError: the file cannot be read, or an entry is no price.
    """
    try:
        entries = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        raise UsageError(f"the price file {path} cannot be read ({error}): give a JSON file in UTF-8.") from error
    if not isinstance(entries, dict):
        raise UsageError(f"the price file {path} holds no object: map model strings to prices.")
    return {model: _price(path, model, entry) for model, entry in entries.items()}


def _price(path: Path, model: str, entry: Any) -> Price:
    rates = ("input", "output", "cache_read", "cache_write_5m", "cache_write_1h")
    if not isinstance(entry, Mapping) or not {"input", "output", "as_of"} <= set(entry) <= {*rates, "as_of"}:
        raise UsageError(
            f"the price of {model} in {path} must have input, output and as_of, and may have cache_read, "
            "cache_write_5m and cache_write_1h."
        )
    dollars = {name: entry.get(name, entry["input"]) for name in rates}
    for name, value in dollars.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e6:
            raise UsageError(
                f"{name} of {model} in {path} is {value!r}: it must be dollars a million tokens, 0 or more."
            )
    return Price(**{name: float(value) for name, value in dollars.items()}, as_of=str(entry["as_of"]))
