"""The paper's fifty seeds: their tapes, draw for draw on CPython's stream, and their published figures."""

import csv
import functools
import importlib.resources
import random
from typing import NamedTuple

import numpy as np

from stocktake_jax.factors import MODULES
from stocktake_jax.params import default_params, whole
from stocktake_jax.tape import COLUMNS, MOST_SEED, Row, Tape, start_row

# Within a week the published stream serves the factors in this order.
_ORDER = ("canal", "supplier", "demand", "freight", "port", "quality")


class PublishedSeed(NamedTuple):
    """A published seed and its published figures, total cost of an episode in $."""

    seed: int
    group: str
    """Its stress profile as published, one of ``PROFILES``."""
    floor: float
    oracle_mean: float
    """Mean over 20 runs of the paper's oracle."""
    oracle_se: float
    """Standard error of that mean."""
    model_costs: dict[str, float]
    """Cost of the one run of each published model, by the model's name."""


@functools.cache
def _published_seeds() -> tuple[PublishedSeed, ...]:
    file = importlib.resources.files("stocktake_jax") / "data" / "published.csv"
    rows = list(csv.DictReader(file.read_text(encoding="utf-8").splitlines()))
    figures = ("seed", "group", "floor", "oracle_mean", "oracle_se")
    return tuple(
        PublishedSeed(
            seed=int(row["seed"]),
            group=row["group"],
            floor=float(row["floor"]),
            oracle_mean=float(row["oracle_mean"]),
            oracle_se=float(row["oracle_se"]),
            model_costs={name: float(cost) for name, cost in row.items() if name not in figures},
        )
        for row in rows
    )


def published_seeds() -> list[PublishedSeed]:
    """The fifty published seeds with their published figures, by rising seed."""
    return list(_published_seeds())


def published_tape(seed: int) -> Tape:
    """The tape of a seed on the paper's random stream, CPython's ``random.Random(seed)`` (docs/rules.md 1.2).

    Any seed of the stream will do, published or not; the paper drew its fifty from 0..199.

    Raises:
        ValueError: the seed is not a whole number from 0 to 2**32 - 1.
    """
    seed = whole(seed, "The seed", 0, MOST_SEED)
    return _replay(random.Random(seed), seed)


def _replay(source: random.Random, seed: int) -> Tape:
    """The tape that a fresh stream yields; the stream is left at the first number after week 26."""
    params = default_params()
    start = start_row()
    columns: dict[str, list[int]] = {name: [getattr(start, name)] for name in COLUMNS}
    records = {name: [getattr(start, name), *start.readings(name)] for name in MODULES}
    for _ in range(params.horizon):
        for name in _ORDER:
            state, readings = MODULES[name].replay(getattr(params, name), source, records[name][0], records[name])
            records[name] = [state, *readings]
        for name, module in MODULES.items():
            for column, value in zip((name, *module.READINGS), records[name], strict=True):
                columns[column].append(value)
    rows = Row(**{name: np.array(column, np.int32) for name, column in columns.items()})
    return Tape(rows=rows, id=np.uint32(seed), minted=np.bool_(False))
