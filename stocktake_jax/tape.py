"""Tapes: all that the hidden world does in an episode, fixed before any decision (docs/rules.md 1.2 and 4)."""

import functools
import hashlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from stocktake_jax.factors import FACTORS, MODULES, port, supplier
from stocktake_jax.params import WorldParams, or_default, whole
from stocktake_jax.randomness import Array, uniform, words

PROFILES = ("isolated", "persistent", "compound")
MOST_SEED = 2**32 - 1

# Names of the random streams of a tape. They are far from the small numbers that users give to `jax.random.key`,
# so that no planner's stream is ever its world's.
_STATES = 0x5354_4B00
_READINGS = {name: 0x5354_4B10 + i for i, name in enumerate(FACTORS)}


class Row(struct.PyTreeNode):
    """One week of the hidden world: whole numbers only, int32 scalars unless a shape is given.

    Attributes:
        canal, demand, freight, port, quality, supplier: the factor's state, by its chain's canonical order.
        cape_congestion: 1 in a week of local congestion at the Cape.
        pos_units: realized demand, units.
        demand_forecast: units.
        freight_multiplier: in 1/10,000.
        freight_outlook: in 1/10,000.
        berth_wait: days.
        wait_outlook: days.
        defect_fraction: of what lands this week, in 1/100,000.
        aql_result: 0 accept, 1 marginal, 2 reject.
        lead_slip: of the spot supplier, in tenths of a day.
        fill: share of a spot order that is shipped, in 1/100.
    """

    canal: Array
    demand: Array
    freight: Array
    port: Array
    quality: Array
    supplier: Array
    cape_congestion: Array
    pos_units: Array
    demand_forecast: Array
    freight_multiplier: Array
    freight_outlook: Array
    berth_wait: Array
    wait_outlook: Array
    defect_fraction: Array
    aql_result: Array
    lead_slip: Array
    fill: Array

    @property
    def states(self) -> Array:
        """The states of all factors, ``[..., 6]`` in the order of ``FACTORS``."""
        return jnp.stack([getattr(self, name) for name in FACTORS], axis=-1)

    def readings(self, factor: str) -> list[Array]:
        """One factor's readings, in its module's order."""
        return [getattr(self, name) for name in MODULES[factor].READINGS]


COLUMNS = tuple(Row.__dataclass_fields__)


class Tape(struct.PyTreeNode):
    """The action-independent record of an episode.

    Attributes:
        rows: weeks 0..horizon stacked, every field with a leading axis ``[horizon + 1]``.
        id: uint32 scalar, the seed.
        minted: bool scalar; False for a tape of the published stream, where the same seed names another tape.
    """

    rows: Row
    id: Array
    minted: Array

    def week(self, week: Array) -> Row:
        """The row of one week."""
        return jax.tree.map(lambda column: column[week], self.rows)


def start_row() -> Row:
    """Week 0, the same on every tape (NumPy int32)."""
    readings = {
        name: np.int32(value)
        for module in MODULES.values()
        for name, value in zip(module.READINGS, module.BASELINE, strict=True)
    }
    return Row(**_start_states(), **readings)


def _start_states() -> dict[str, Array]:
    return {name: np.int32(module.START) for name, module in MODULES.items()}


def next_states(params: WorldParams, states: dict[str, Array], seed: Array, week: Array) -> dict[str, Array]:
    """States of a minted tape in ``week`` (uint32 scalar), by factor, from the states of the week before."""
    params = params.arrays()
    drawn = words(seed, _STATES, week, len(FACTORS))
    return {
        name: getattr(params, name).chain.step(states[name], uniform(word))
        for name, word in zip(FACTORS, drawn, strict=True)
    }


def next_row(params: WorldParams, row: Row, seed: Array, week: Array) -> Row:
    """The row of a minted tape in ``week`` (uint32 scalar), from the row of the week before.

    It reads nothing else, so training can draw an episode week by week instead of carrying a tape.
    """
    params = params.arrays()
    before = {name: getattr(row, name) for name in FACTORS}
    states = next_states(params, before, seed, week)
    readings: dict[str, Array] = {}
    for name, module in MODULES.items():
        drawn = words(seed, _READINGS[name], week, module.WORDS)
        values = module.read(getattr(params, name), states[name], [before[name], *row.readings(name)], drawn)
        readings |= dict(zip(module.READINGS, values, strict=True))
    return Row(**states, **readings)


def _scan_weeks(following: Callable[[Any, Array], Any], start: Any, horizon: int) -> Any:
    """Weeks 0..horizon stacked, from week 0 and what follows a week (a pytree, and the number of the next)."""

    def step(record: Any, week: Array) -> tuple[Any, Any]:
        record = following(record, week)
        return record, record

    start = jax.tree.map(jnp.asarray, start)
    _, rest = jax.lax.scan(step, start, jnp.arange(1, horizon + 1, dtype=jnp.uint32))
    return jax.tree.map(lambda first, others: jnp.concatenate([first[None], others]), start, rest)


@jax.jit
def _mint(seed: Array, params: WorldParams) -> Tape:
    rows = _scan_weeks(lambda row, week: next_row(params, row, seed, week), start_row(), params.horizon)
    return Tape(rows=rows, id=seed, minted=jnp.array(True))


@jax.jit
def _mint_states(seed: Array, params: WorldParams) -> Array:
    states = _scan_weeks(lambda states, week: next_states(params, states, seed, week), _start_states(), params.horizon)
    return jnp.stack(list(states.values()), axis=-1)


def mint(seed: Array, params: WorldParams | None = None) -> Tape:
    """The tape that a seed names in a world (docs/rules.md 1.2). Pure; ``jax.vmap(mint)(seeds)`` makes a pool.

    Args:
        seed: uint32 scalar, or a Python int from 0 to 2**32 - 1.
        params: the world; the paper's if None.

    Raises:
        ValueError: a seed out of range, which would wrap silently.
    """
    return _mint(_seed(seed), or_default(params))


def mint_states(seed: Array, params: WorldParams | None = None) -> Array:
    """The states of the tape ``mint`` makes, int32 ``[horizon + 1, 6]``, without drawing a reading."""
    return _mint_states(_seed(seed), or_default(params))


def _seed(seed: Array) -> Array:
    if isinstance(seed, jax.Array):
        if seed.dtype.kind not in "iu":
            raise ValueError(f"A seed is a uint32 number; this one has type {seed.dtype}.")
        if isinstance(seed, jax.core.Tracer) or seed.ndim:
            return seed.astype(jnp.uint32)
        seed = int(seed)
    return np.uint32(whole(seed, "The seed", 0, MOST_SEED))


def stack(tapes: Sequence[Tape]) -> Tape:
    """Several tapes as one, with a leading axis.

    Raises:
        ValueError: there is none.
    """
    if not tapes:
        raise ValueError("There is no tape to stack; give at least one.")
    return jax.tree.map(lambda *leaves: np.stack(leaves), *tapes)


def tape_digest(tape: Tape) -> str:
    """SHA-256, in hexadecimal, of one tape's columns in order, as little-endian int32."""
    digest = hashlib.sha256()
    for name in COLUMNS:
        digest.update(np.ascontiguousarray(getattr(tape.rows, name), "<i4").tobytes())
    return digest.hexdigest()


def stress(states: Array) -> Array:
    """Which factors are in stress, bool ``[..., 6]``, from states ``[..., 6]``."""
    # One flat table, with each factor's states after the last one's.
    offsets, table = _stress_table()
    return jnp.asarray(table)[states + jnp.asarray(offsets).reshape((1,) * (states.ndim - 1) + (-1,))]


@functools.cache
def _stress_table() -> tuple[np.ndarray, np.ndarray]:
    masks = [module.STRESS for module in MODULES.values()]
    offsets = np.cumsum([0, *map(len, masks[:-1])]).astype(np.int32)
    return offsets, np.concatenate(masks)


def stress_mask(tape: Tape) -> Array:
    """Which factors are in stress in which week, bool ``[..., 27, 6]``, factors in the order of ``FACTORS``."""
    return stress(tape.rows.states)


class StressEpisode(NamedTuple):
    """A maximal run of consecutive weeks with one factor in stress (docs/rules.md 1.1)."""

    factor: str
    onset: int
    end: int
    """Last week of the run."""


def stress_episodes(tape: Tape) -> list[StressEpisode]:
    """The stress episodes of one tape, by factor and then by onset."""
    found = []
    mask = np.asarray(stress_mask(tape))
    for factor, column in zip(FACTORS, mask.T, strict=True):
        edges = np.diff(np.concatenate([[0], column.astype(int), [0]]))
        onsets, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1) - 1
        found += [StressEpisode(factor, int(a), int(b)) for a, b in zip(onsets, ends, strict=True)]
    return found


class TapeFeatures(struct.PyTreeNode):
    """What a tape is like, over weeks 0..26 (docs/rules.md 4); int32 unless said, leading axes as the tape's.

    Attributes:
        stressed_weeks: ``[..., 6]``, weeks in stress for each factor.
        max_overlap: most factors in stress at once.
        overlap_weeks: weeks with two or more in stress.
        port_block_longest: longest unbroken run of weeks with the port blocked.
        spot_died: bool, whether the spot supplier went defunct.
    """

    stressed_weeks: Array
    max_overlap: Array
    overlap_weeks: Array
    port_block_longest: Array
    spot_died: Array


def tape_features(tape: Tape) -> TapeFeatures:
    """Features of one tape, or of a stack of them (leading axes are kept)."""
    return state_features(tape.rows.states)


@jax.jit
def state_features(states: Array) -> TapeFeatures:
    """Features from states ``[..., weeks, 6]`` alone."""
    stressed = stress(states)
    at_once = stressed.sum(axis=-1, dtype=jnp.int32)
    blocked = jnp.asarray(port.BLOCKED)[states[..., FACTORS.index("port")]]

    def week(run: Array, blocked: Array) -> tuple[Array, Array]:
        run = jnp.where(blocked, run + 1, 0)
        return run, run

    _, runs = jax.lax.scan(week, jnp.zeros(blocked.shape[:-1], jnp.int32), jnp.moveaxis(blocked, -1, 0))
    return TapeFeatures(
        stressed_weeks=stressed.sum(axis=-2, dtype=jnp.int32),
        max_overlap=at_once.max(axis=-1),
        overlap_weeks=(at_once >= 2).sum(axis=-1, dtype=jnp.int32),
        port_block_longest=runs.max(axis=0),
        spot_died=jnp.asarray(supplier.DEFUNCT)[states[..., FACTORS.index("supplier")]].any(axis=-1),
    )


def profile(features: TapeFeatures, threshold: int = 4) -> Array:
    """The stress profile, an index into ``PROFILES`` (int32), from features (docs/rules.md 4).

    Args:
        features: of one tape or many.
        threshold: weeks of blocked port and of demand stress that make a tape persistent; the first twenty
            published seeds used 7, all others 4.
    """
    isolated = features.max_overlap <= 1
    demand_weeks = features.stressed_weeks[..., FACTORS.index("demand")]
    persistent = (features.port_block_longest >= threshold) & (demand_weeks >= threshold)
    index = {name: np.int32(i) for i, name in enumerate(PROFILES)}
    return jnp.where(isolated, index["isolated"], jnp.where(persistent, index["persistent"], index["compound"]))
