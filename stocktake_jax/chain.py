"""The one type of hidden process: a Markov chain over labelled states as a padded table of successors.

Order is part of the meaning: a draw takes the first successor, in the order listed, whose cumulative probability
exceeds the uniform, and the last one if none does (docs/rules.md 1).
"""

import functools
import random
from collections.abc import Mapping
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from stocktake_jax.randomness import Array


class Layout:
    """What a chain's numbers hang on: state labels and each state's successors, in canonical order. Immutable.

    A label is ``regime`` or ``regime:age``. Layouts are compared by content and hashed once, since they travel
    in the structure of every parameter pytree.
    """

    def __init__(self, labels: tuple[str, ...], successors: tuple[tuple[int, ...], ...]) -> None:
        self.labels = labels
        self.successors = successors
        self._hash = hash((labels, successors))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Layout) and (self.labels, self.successors) == (other.labels, other.successors)

    def __reduce__(self) -> tuple:
        return Layout, (self.labels, self.successors)  # hashes of strings differ from process to process

    def __repr__(self) -> str:
        return f"Layout({len(self.labels)} states: {', '.join(self.labels)})"

    @functools.cached_property
    def regimes(self) -> tuple[str, ...]:
        """The regime of every state, its age left off."""
        return tuple(label.split(":")[0] for label in self.labels)

    @functools.cached_property
    def table(self) -> np.ndarray:
        """int32 ``[states, most successors]``: successors, rows filled up with their last entry."""
        width = max(map(len, self.successors))
        return np.array([row + row[-1:] * (width - len(row)) for row in self.successors], np.int32)

    def index(self, label: str) -> int:
        """The canonical index of a state."""
        return self.labels.index(label)

    def mask(self, *regimes: str) -> np.ndarray:
        """bool ``[states]``: which states belong to one of the regimes."""
        unknown = set(regimes) - set(self.regimes)
        if unknown:
            raise ValueError(f"no regime {sorted(unknown)} here; the regimes are {sorted(set(self.regimes))}")
        return np.isin(self.regimes, regimes)


class Chain(struct.PyTreeNode):
    """A Markov chain: probabilities (values, vmappable) on a layout (static).

    Attributes:
        probabilities: float ``[states, most successors]``, each row summing to 1, padding 0.
        layout: labels and successors.
    """

    probabilities: Array
    layout: Layout = struct.field(pytree_node=False)

    @classmethod
    def from_rows(cls, rows: Mapping[str, Mapping[str, float]]) -> Self:
        """A chain from ``{state: {successor: probability}}``, both levels in canonical order."""
        labels = tuple(rows)
        layout = Layout(labels, tuple(tuple(labels.index(to) for to in row) for row in rows.values()))
        probabilities = np.zeros(layout.table.shape)
        for i, row in enumerate(rows.values()):
            probabilities[i, : len(row)] = list(row.values())
        return cls(probabilities, layout)

    def with_row(self, label: str, row: Mapping[str, float]) -> Self:
        """The same chain with other probabilities, ``{successor: probability}``, for one state.

        Raises:
            ValueError: other successors than the state has; a chain's structure is fixed.
        """
        state = self.layout.index(label)
        names = [self.layout.labels[successor] for successor in self.layout.successors[state]]
        if set(row) != set(names):
            raise ValueError(f"{label} goes to {', '.join(names)}: give a probability for each, and for no other.")
        probabilities = np.array(self.probabilities)
        probabilities[state, : len(names)] = [row[name] for name in names]
        return self.replace(probabilities=probabilities)

    def cumulative(self, dtype: jnp.dtype | type) -> Array:
        """Cumulative probabilities, summed from the left, ``[states, most successors]``."""
        columns = [self.probabilities[:, 0].astype(dtype)]
        for k in range(1, self.layout.table.shape[1]):
            columns.append(columns[-1] + self.probabilities[:, k].astype(dtype))
        return jnp.stack(columns, axis=-1)

    def step(self, state: Array, u: Array) -> Array:
        """The state after ``state`` (int32 scalar) that a uniform ``u`` (float scalar in [0, 1)) picks."""
        choice = inverse_cdf(self.cumulative(u.dtype)[state], u)
        width = self.layout.table.shape[1]
        return jnp.asarray(self.layout.table.reshape(-1))[state * width + choice]

    def path(self, start: Array, uniforms: Array) -> Array:
        """States visited from ``start`` under uniforms ``[weeks]``: int32 ``[weeks]``, the start left out."""

        def week(state: Array, u: Array) -> tuple[Array, Array]:
            state = self.step(state, u)
            return state, state

        return jax.lax.scan(week, jnp.asarray(start, jnp.int32), uniforms)[1]

    def predict(self, belief: Array) -> Array:
        """The belief ``[states]`` one week later, before any evidence."""
        flow = belief[:, None] * self.probabilities.astype(belief.dtype)
        return jnp.zeros_like(belief).at[self.layout.table].add(flow)

    def replay(self, source: random.Random, state: int) -> int:
        """One step on CPython's stream: one uniform, or none where a single successor leaves nothing to chance."""
        successors = self.layout.successors[state]
        if len(successors) == 1:
            return successors[0]
        u, total = source.random(), 0.0
        for successor, probability in zip(successors, self.probabilities[state].tolist(), strict=False):
            total += probability
            if u < total:
                return successor
        return successors[-1]


def inverse_cdf(cumulative: Array, u: Array) -> Array:
    """Index (int32) of the first cumulative probability ``[..., n]`` above ``u``, the last index if none is."""
    return (u >= cumulative[..., :-1]).sum(axis=-1, dtype=jnp.int32)
