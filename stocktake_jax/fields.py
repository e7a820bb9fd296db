"""Fields of parameter pytrees: each number with its type, unit, bounds and meaning, checked on the host."""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from stocktake_jax.chain import Chain


def number(default: Any, doc: str, *, unit: str = "", least: float = 0.0, most: float = math.inf) -> Any:
    """A field that holds a number or an array of numbers, float or whole as its default is.

    Args:
        default: the paper's value; its shape is the field's shape.
        doc: what the number means.
        unit: its unit, empty for a pure number.
        least, most: bounds that every entry keeps, both included.
    """
    kind = np.float64 if np.asarray(default).dtype.kind == "f" else np.int32
    shape = np.shape(default)
    metadata = {"doc": doc, "unit": unit, "least": least, "most": most, "kind": kind, "shape": shape}
    return struct.field(default_factory=lambda: np.array(default, kind)[()], metadata=metadata)


def probability(default: Any, doc: str) -> Any:
    """A field that holds a probability or an array of them."""
    return number(default, doc, most=1.0)


class Params(struct.PyTreeNode):
    """Base of parameter pytrees: NumPy leaves of fixed types, so that no value ever recompiles anything.

    Floats are kept in float64 and become what the precision in force makes of them on their way into a compiled
    function: float32, or float64 under ``jax.enable_x64(True)``.
    """

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            kind, value = field.metadata.get("kind"), getattr(self, field.name)
            # JAX puts other objects into pytrees now and then: shapes, axis numbers, None.
            if kind is np.float64 and isinstance(value, jax.Array) and value.dtype.kind in "iub":
                object.__setattr__(self, field.name, value.astype(jax.dtypes.canonicalize_dtype(kind)))
            if kind is None or not isinstance(value, bool | int | float | list | tuple | np.ndarray | np.generic):
                continue
            value = np.asarray(value)
            if value.dtype.kind in "biuf" and (kind is np.float64 or _fits_int32(value)):
                value = value.astype(kind, copy=False)
            # Scalars for single numbers: JAX 0.10 remembers what it made of a 0-d array, whatever the precision.
            object.__setattr__(self, field.name, value[()])

    def in_force(self) -> Self:
        """The same parameters with NumPy floats of the type that the precision in force makes of float64.

        A compiled function must never meet one NumPy object under two precisions: JAX 0.10 remembers by the object
        what it made of it.
        """
        return jax.tree.map(_in_force, self)

    def arrays(self) -> Self:
        """The same parameters as JAX arrays in the precision in force; what a pure function computes with."""
        return jax.tree.map(lambda leaf: jnp.asarray(_in_force(leaf)), self)


def _in_force(leaf: Any) -> Any:
    if isinstance(leaf, np.ndarray | np.generic) and leaf.dtype.kind == "f":
        return np.asarray(leaf, jax.dtypes.canonicalize_dtype(leaf.dtype))[()]
    return leaf


def _fits_int32(value: np.ndarray) -> bool:
    """Whether all entries are whole and within 32 bits; others are kept as they are, for ``problems`` to name."""
    limits = np.iinfo(np.int32)
    return bool(np.all((value >= limits.min) & (value <= limits.max) & (value == np.floor(value))))


def problems(params: Params, path: str) -> Iterator[str]:
    """A sentence for every number in ``params`` that cannot be, nested pytrees included."""
    for field in dataclasses.fields(params):
        value, name = getattr(params, field.name), f"{path}.{field.name}"
        if isinstance(value, Params):
            yield from problems(value, name)
        elif isinstance(value, Chain):
            yield from _chain_problems(value, name)
        elif "kind" in field.metadata:
            yield from _number_problems(np.asarray(value), name, field.metadata)


def _number_problems(value: np.ndarray, name: str, metadata: Any) -> Iterator[str]:
    least, most, shape = metadata["least"], metadata["most"], metadata["shape"]
    if value.shape != shape:
        yield f"{name} has shape {list(value.shape)}; it must have shape {list(shape)}."
    elif not np.all(np.isfinite(value)):
        yield f"{name} is {value.tolist()}; it must be finite."
    elif metadata["kind"] is np.int32 and not _fits_int32(value):
        wrong = "be a whole number" if np.any(value != np.floor(value)) else "fit in 32 bits"
        yield f"{name} is {value.tolist()}; it must {wrong}."
    elif np.any(value < least) or np.any(value > most):
        bounds = f"at least {least:g}" if most == math.inf else f"between {least:g} and {most:g}"
        yield f"{name} is {value.tolist()}; it must be {bounds}."


def _chain_problems(chain: Chain, name: str) -> Iterator[str]:
    probabilities = np.asarray(chain.probabilities, np.float64)
    if probabilities.shape != chain.layout.table.shape:
        yield f"{name} has shape {list(probabilities.shape)}; it must have shape {list(chain.layout.table.shape)}."
        return
    for label, row, successors in zip(chain.layout.labels, probabilities, chain.layout.successors, strict=True):
        listed, padding = row[: len(successors)], row[len(successors) :]
        if not np.all(np.isfinite(row)) or np.any(row < 0) or np.any(row > 1):
            yield f"{name}: the row of {label} is {listed.tolist()}; a probability lies between 0 and 1."
        elif np.any(padding != 0) or abs(listed.sum() - 1.0) > 1e-6:
            yield f"{name}: the row of {label} sums to {row.sum():.6g}; it must sum to 1 over its own successors."
