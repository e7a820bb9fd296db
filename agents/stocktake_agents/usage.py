"""Tokens of one answer, counted alike for every provider."""

from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Usage:
    """Tokens by what they cost. The first five add up to what is billed; providers count them in different ways.

    Attributes:
        input: prompt tokens that no cache was involved in.
        cache_read: prompt tokens read from a cache.
        cache_write_5m: prompt tokens written to a cache that lasts five minutes, or an unnamed time.
        cache_write_1h: prompt tokens written to a cache that lasts an hour.
        output: tokens of the answer, reasoning included.
        reasoning: how many of ``output`` were reasoning.
    """

    input: int = 0
    cache_read: int = 0
    cache_write_5m: int = 0
    cache_write_1h: int = 0
    output: int = 0
    reasoning: int = 0

    @property
    def prompt(self) -> int:
        """All tokens of the prompt, cached or not."""
        return self.input + self.cache_read + self.cache_write_5m + self.cache_write_1h

    def __add__(self, other: "Usage") -> "Usage":
        mine, theirs = asdict(self), asdict(other)
        return Usage(**{name: mine[name] + theirs[name] for name in mine})
