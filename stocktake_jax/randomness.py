"""Random numbers as data: words that are a pure function of (seed, channel, week, position).

The generator is Threefry-2x32 with 20 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
SC 2011), the cipher under ``jax.random`` too. It is written out here, as one expression of integer operations, so that
XLA fuses it into whatever consumes the words; ``jax.random.bits`` runs it as a loop over memory and uses half of
each block, which made minting a tape about ten times as slow on a CPU (docs/performance.md).

From a word on, sampling stays in whole numbers: quantile tables hold fixed-point values and are interpolated with
integers, and the one float multiplication in :func:`scaled` is never followed by an addition that a compiler could
fuse with it. So a seed names the same tape on every backend, in every batch, at every precision.
"""

import math
from statistics import NormalDist
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Array = Any
"""A JAX array, a tracer of one, or a NumPy array: whatever the pure functions of this package take and give."""

FIXED_POINT_BITS = 20
"""Binary digits after the point in the fixed-point numbers of this module."""

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)

# A quantile table has 128 cells in every octave of a 32-bit number: fine where the tail is.
_CELLS_PER_OCTAVE = 128
_FLOAT32_ONE = np.int32(127 << 23)


def threefry(key0: Array, key1: Array, counter0: Array, counter1: Array) -> tuple[Array, Array]:
    """Threefry-2x32-20: two uint32 words for each pair of counters under a pair of key words (all broadcast)."""
    keys = (key0, key1, key0 ^ key1 ^ _PARITY)
    x0, x1 = counter0 + keys[0], counter1 + keys[1]
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            x0 = x0 + x1
            x1 = (x1 << np.uint32(rotation)) | (x1 >> np.uint32(32 - rotation))
            x1 = x0 ^ x1
        x0 = x0 + keys[(group + 1) % 3]
        x1 = x1 + keys[(group + 2) % 3] + np.uint32(group + 1)
    return x0, x1


def words(seed: Array, channel: int, week: Array, count: int) -> list[Array]:
    """``count`` uint32 words, each scalar, for one channel of a seed in one week.

    Args:
        seed: uint32 scalar.
        channel: the name of the stream, a Python int below 2**32; streams of different channels are independent.
        week: uint32 scalar.
        count: how many words.
    """
    drawn: list[Array] = []
    for block in range((count + 1) // 2):
        drawn += threefry(seed, np.uint32(channel), week, np.uint32(block))
    return drawn[:count]


def bits(key: Array, count: int) -> list[Array]:
    """``count`` uint32 words, each scalar, from a typed random key; fused like ``words``, so for inner loops."""
    key0, key1 = jax.random.key_data(key)
    drawn: list[Array] = []
    for block in range((count + 1) // 2):
        drawn += threefry(key0, key1, np.uint32(0), np.uint32(block))
    return drawn[:count]


def uniforms(key: Array, shape: tuple[int, ...]) -> Array:
    """Uniforms in [0, 1), float32 of a shape, from a typed random key; fused like ``words``."""
    key0, key1 = jax.random.key_data(key)
    *outer, last = shape
    half = -(-last // 2)
    counters = jnp.arange(math.prod(outer) * half, dtype=jnp.uint32).reshape(*outer, half)
    first, second = threefry(key0, key1, jnp.zeros_like(counters), counters)
    return uniform(jnp.concatenate([first, second], axis=-1)[..., :last])


def fold_in(key: Array, data: Array) -> Array:
    """``jax.random.fold_in(key, data)``, number for number, fused like ``words``; for threefry keys."""
    key0, key1 = jax.random.key_data(key)
    folded = threefry(key0, key1, np.uint32(0), jnp.asarray(data).astype(jnp.uint32))
    return jax.random.wrap_key_data(jnp.stack(folded), impl="threefry2x32")


def uniform(word: Array) -> Array:
    """A float32 in [0, 1) from a word: its upper 24 bits, exactly."""
    return (word >> np.uint32(8)).astype(jnp.float32) * np.float32(2.0**-24)


def _grid(upper_tail: Any) -> np.ndarray:
    """``upper_tail(p)`` in fixed point on the grid p = (1 + cell/128) 2**octave / 2**32; int32[32 * 128 + 2]."""
    cell = np.arange(32 * _CELLS_PER_OCTAVE + 2)
    p = (1 + cell % _CELLS_PER_OCTAVE / _CELLS_PER_OCTAVE) * 2.0 ** (cell // _CELLS_PER_OCTAVE) / 2.0**32
    return np.round([upper_tail(min(x, 1.0)) * 2**FIXED_POINT_BITS for x in p]).astype(np.int32)


_HALF_NORMAL = _grid(lambda p: -NormalDist().inv_cdf(p / 2))
_EXPONENTIAL = _grid(lambda p: -np.log(p))


def _quantile(table: np.ndarray, word: Array) -> Array:
    """The table at p = word / 2**32, between its grid points by straight lines; ``word`` is not 0.

    The float32 that holds a whole number has its octave and cell in its upper bits and the way to the next cell in
    the lower 16, and the conversion is exactly rounded on every machine.
    """
    bits = jax.lax.bitcast_convert_type(word.astype(jnp.float32), jnp.int32) - _FLOAT32_ONE
    cell, fraction = bits >> 16, bits & 0xFFFF
    height = jnp.asarray(table).at[cell].get(mode="promise_in_bounds")
    slope = jnp.asarray(np.diff(table, append=table[-1])).at[cell].get(mode="promise_in_bounds")
    return height + ((slope * fraction) >> 16)


def standard_normal(word: Array) -> Array:
    """A standard normal deviate in fixed point (int32, units of 2**-20) from a word; off by 1e-5 at most."""
    magnitude = _quantile(_HALF_NORMAL, (word << np.uint32(1)) | np.uint32(1))
    return jnp.where(word >> np.uint32(31) != 0, -magnitude, magnitude)


def standard_exponential(word: Array) -> Array:
    """A standard exponential deviate in fixed point (int32, units of 2**-20) from a word; off by 1e-5 at most."""
    return _quantile(_EXPONENTIAL, word | np.uint32(1))


def scaled(deviate: Array, factor: Array) -> Array:
    """``factor`` times a fixed-point deviate, rounded to fixed point (int32, units of 2**-20)."""
    return jnp.round(deviate.astype(jnp.float32) * factor.astype(jnp.float32)).astype(jnp.int32)


def rounded_normal(word: Array, mean: Array, sd: Array, resolution: int = 1) -> Array:
    """``round(resolution * N(mean, sd))`` as int32: a reading of a normal quantity to 1 / ``resolution``.

    Args:
        word: uint32 scalar.
        mean, sd: float scalars in the quantity's unit; ``mean + 6 sd`` below 2,000.
        resolution: whole steps per unit, 1 to 10,000.
    """
    # Digits that the resolution takes from the front are dropped at the back, so that the sum stays within 31 bits.
    spare = FIXED_POINT_BITS - (resolution - 1).bit_length()
    to_steps = np.float32(resolution * 2.0 ** (spare - FIXED_POINT_BITS))
    centre = jnp.round(mean.astype(jnp.float32) * np.float32(resolution * 2.0**spare)).astype(jnp.int32)
    noise = scaled(standard_normal(word), sd.astype(jnp.float32) * to_steps)
    return (centre + noise + np.int32(1 << (spare - 1))) >> spare
