"""Whole steps as fractions, and products rounded to whole units (docs/rules.md, Precision)."""

import jax.numpy as jnp
import numpy as np

from stocktake_jax.randomness import Array


def fraction(steps: Array, per_unit: int, dtype: jnp.dtype) -> Array:
    """``steps / per_unit``, exactly rounded: the number that was stored as whole steps.

    Args:
        steps: int32, not negative.
        per_unit: steps in one unit.
        dtype: float type of the result.
    """
    # XLA turns a division by a constant into a product with its reciprocal, which is one bit off for a quarter of
    # all values and then falls on the other side of a tie. A divisor that it cannot know is divided by.
    divisor = np.int32(per_unit) + jnp.minimum(steps, 0)
    return steps.astype(dtype) / divisor.astype(dtype)


def rounded_product(qty: Array, share: Array) -> Array:
    """``round(qty * share)`` as int32, ties to even, in the float type of ``share``.

    In float64 this is Python's rounding of Python's product. In float32 it differs only where the true product sits
    on a tie.
    """
    return jnp.round(qty.astype(share.dtype) * share).astype(jnp.int32)
