"""Reference costs: many oracle runs in lockstep, on the paper's own random stream or a fresh one.

All runs stand in the same week. Their menus differ in length, so what stands on them is dealt into small blocks of
candidates of one run, and only as many blocks are scored as there are: a masked candidate costs nothing. Some blocks
are scored side by side: each operation is then large enough to pay for being started, and small enough for the cache.
"""

import functools
import random
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from stocktake_jax.devices import over_devices
from stocktake_jax.env import observe_row
from stocktake_jax.logistics import State, initial_state, transition
from stocktake_jax.oracle.filters import Beliefs, prior, update
from stocktake_jax.oracle.futures import DRAW_ORDER
from stocktake_jax.oracle.menu import SLOTS, Candidates, menu, to_action
from stocktake_jax.oracle.rollout import policy, prepare
from stocktake_jax.oracle.surrogate import Books, books, rollout_costs
from stocktake_jax.params import WorldParams, default_params, whole
from stocktake_jax.published import published_tape
from stocktake_jax.randomness import Array, fold_in, threefry, uniform
from stocktake_jax.tape import Row, Tape, stack

PUBLISHED_FUTURES = range(191, 211)
"""Futures of each of the paper's twenty runs of a seed."""

RUNS_ON_CPU = 32
"""Runs in lockstep at a time on a CPU: more fall out of its cache."""

_BLOCK = 6  # candidates
# The oracle's own randomness: no other use of the same key shares its stream.
_REFERENCE_STREAM = 0x5245_4600


@jax.jit
def _read(params: WorldParams, state: State, beliefs: Beliefs, row: Row) -> tuple[Beliefs, Candidates, Books]:
    """What each run ``[n]`` believes after its week's report, its menu ``[n, 192]``, and its books."""

    def one(state: State, beliefs: Beliefs, row: Row) -> tuple[Beliefs, Candidates, Books]:
        observation = observe_row(params, state, row)
        beliefs = update(params, beliefs, observation)
        return beliefs, menu(params, beliefs, observation), books(observation)

    return jax.vmap(one)(state, beliefs, row)


@functools.partial(jax.jit, static_argnames="at_once")
def _score_blocks(
    params: WorldParams,
    week: Array,
    known: Books,
    beliefs: Beliefs,
    candidates: Candidates,
    uniforms: Array,
    futures: Array,
    runs: Array,
    slots: Array,
    blocks: Array,
    at_once: int,
) -> Array:
    """Mean cost of the candidates in every block, ``[most blocks, block]``, of which the first ``blocks`` are scored.

    Args:
        params: the world.
        week: int32 scalar, the decision week of all runs.
        known, beliefs, candidates: of every run ``[n]``.
        uniforms: ``[n, 6, 1 + weeks, k]``.
        futures: int32 scalar, how many of the ``k`` futures count.
        runs: int32 ``[most blocks]``, the run that a block belongs to.
        slots: int32 ``[most blocks, block]``, its candidates' places on the menu.
        blocks: int32 scalar.
        at_once: blocks that are scored side by side, a divisor of ``most blocks``. Values differ in the last bit
            between some numbers of them, since sums are then taken in another order.
    """
    params = params.arrays()
    weeks_left = jnp.int32(params.horizon) - week
    ours = jax.vmap(lambda k, b, u: prepare(params, k.replace(weeks_left=weeks_left), b, u))(known, beliefs, uniforms)
    counts = (jnp.arange(uniforms.shape[-1], dtype=jnp.int32) < futures)[None]

    def score(run: Array, places: Array) -> Array:
        books, (sampled, afloat) = jax.tree.map(lambda leaf: leaf[run], (known, ours))
        chosen = jax.tree.map(lambda leaf: leaf[run][places], candidates)
        costs = rollout_costs(params, books.replace(weeks_left=weeks_left), afloat, chosen, sampled)
        total = jnp.where(counts, costs, 0).sum(axis=1)
        return total / futures.astype(total.dtype)

    def some_blocks(i: Array, means: Array) -> Array:
        first = i * at_once
        some = (jax.lax.dynamic_slice_in_dim(column, first, at_once) for column in (runs, slots))
        return jax.lax.dynamic_update_slice_in_dim(means, jax.vmap(score)(*some), first, axis=0)

    steps = (blocks + at_once - 1) // at_once
    return jax.lax.fori_loop(0, steps, some_blocks, jnp.zeros(slots.shape, uniforms.dtype))


@jax.jit
def _commit(
    params: WorldParams, state: State, candidates: Candidates, choices: Array, now: Row, row: Row
) -> tuple[State, Array]:
    def one(state: State, candidates: Candidates, choice: Array, now: Row, row: Row) -> tuple[State, Array]:
        action = to_action(jax.tree.map(lambda leaf: leaf[choice], candidates))
        state, result = transition(params, state, action, now, row)
        return state, result.cost

    return jax.vmap(one)(state, candidates, choices, now, row)


def deal(live: np.ndarray, at_once: int = 1) -> tuple[np.ndarray, np.ndarray, int]:
    """Deals the candidates on the menus ``[n, 192]`` into blocks of one run each.

    Returns:
        The run of each block, the menu places in it ``[most blocks, block]`` (the last one repeated to fill a block
        up), and the number of blocks; the arrays have room for full menus, and a multiple of ``at_once`` blocks.
    """
    n = len(live)
    most = -(-n * -(-SLOTS // _BLOCK) // at_once) * at_once
    runs, slots = np.zeros(most, np.int32), np.zeros((most, _BLOCK), np.int32)
    candidates = live.sum(axis=1)
    blocks = -(-candidates // _BLOCK)
    count = int(blocks.sum())
    runs[:count] = np.repeat(np.arange(n), blocks)
    run, place = np.nonzero(live)
    rank = np.arange(len(run)) - (np.cumsum(candidates) - candidates)[run]
    last = np.zeros(n, np.int32)
    last[run] = place
    slots[:count] = last[runs[:count], None]
    slots[(np.cumsum(blocks) - blocks)[run] + rank // _BLOCK, rank % _BLOCK] = place
    return runs, slots, count


def blocks_at_once() -> int:
    """Blocks to score side by side: on a CPU what stays in a core's cache, on a GPU what keeps it busy."""
    return 8 if jax.default_backend() == "cpu" else 512


def runs_at_once(futures: int) -> int:
    """Runs in lockstep on one device: few on a CPU, elsewhere as many as fill a quarter of its memory."""
    device = jax.local_devices()[0]
    if device.platform == "cpu":
        return RUNS_ON_CPU
    memory = (device.memory_stats() or {}).get("bytes_limit", 8 << 30)
    return max(1, min(16_384, memory // 4 // bytes_per_run(futures)))


def bytes_per_run(futures: int) -> int:
    """What a run in lockstep holds at its peak, measured: some for its menu, the rest for its futures."""
    return 100_000 + 2_300 * futures


def lockstep(
    params: WorldParams, tapes: Tape, draw: Callable[[int], np.ndarray], futures: int
) -> tuple[np.ndarray, list[dict[str, np.ndarray]]]:
    """Plays the paper's oracle on every tape at once.

    Args:
        params: the world.
        tapes: stacked ``[n]``, one for each run; a tape may stand there several times.
        draw: uniforms ``[n, 6, 27, k]`` of a week, of which the first ``futures`` futures count.
        futures: futures for each decision.

    Returns:
        Total cost ``[n]`` in $, and for every week the choices: ``slot`` and ``mean_cost`` ``[n]`` and ``candidates``
        (how many stood on the menu).
    """
    params = params.in_force()
    n, at_once = len(tapes.rows.pos_units), blocks_at_once()
    everyone = functools.partial(jax.tree.map, lambda leaf: jnp.broadcast_to(leaf, (n, *leaf.shape)))
    numbers = params.arrays()
    state, beliefs = everyone(initial_state(numbers)), everyone(prior(numbers))
    total, record = np.zeros(n), []
    for week in range(params.horizon):
        now, row = (jax.tree.map(lambda column, w=w: column[:, w], tapes.rows) for w in (week, week + 1))
        beliefs, candidates, known = _read(params, state, beliefs, now)
        live = np.asarray(candidates.live)
        runs, slots, blocks = deal(live, at_once)
        scored = _score_blocks(
            params, np.int32(week), known, beliefs, candidates, draw(week), np.int32(futures), runs, slots,
            np.int32(blocks), at_once,
        )  # fmt: skip
        means = np.full(live.shape, np.inf)
        means[runs[:blocks, None], slots[:blocks]] = np.asarray(scored)[:blocks]
        # An empty menu leaves slot 0, which is off it and so orders nothing.
        choices = np.argmin(means, axis=1).astype(np.int32)
        state, cost = _commit(params, state, candidates, choices, now, row)
        total = total + np.asarray(cost)
        record.append({"slot": choices, "mean_cost": means[np.arange(n), choices], "candidates": live.sum(axis=1)})
    return total, record


class PublishedStream:
    """Uniforms of the paper's oracle runs: CPython's stream of 7919 seed + 13 + K, one after another.

    CPython's generator state is handed to NumPy's, which yields the same numbers several times as fast.
    """

    def __init__(self, seeds: Sequence[int], futures: int, horizon: int) -> None:
        self._futures, self._horizon = futures, horizon
        self._sources = []
        for seed in seeds:
            state = random.Random(7919 * seed + 13 + futures).getstate()[1]
            source = np.random.RandomState()
            source.set_state(("MT19937", np.array(state[:-1], np.uint32), state[-1], 0, 0.0))
            self._sources.append(source)

    def draw(self, week: int) -> np.ndarray:
        """Uniforms of one week, float64 ``[n, 6, 1 + horizon, most futures]``; what no run draws is 0."""
        weeks = 1 + self._horizon - week
        uniforms = np.zeros((len(self._sources), len(DRAW_ORDER), 1 + self._horizon, max(PUBLISHED_FUTURES)))
        for run, source in enumerate(self._sources):
            drawn = source.random_sample((self._futures, len(DRAW_ORDER), weeks))
            uniforms[run, :, :weeks, : self._futures] = drawn.transpose(1, 2, 0)
        return uniforms


def published_reference(seeds: Sequence[int]) -> np.ndarray:
    """Total cost ($) of the paper's own oracle runs: float64 ``[seeds, 20]``, by futures K = 191..210.

    Args:
        seeds: of the published stream.

    Raises:
        ValueError: there is no seed, or one that is no whole number from 0 to 2**32 - 1.
    """
    totals = over_devices(lambda futures: published_runs(seeds, futures)[0], PUBLISHED_FUTURES, compile_once=True)
    return np.stack(totals, axis=1)


def published_runs(seeds: Sequence[int], futures: int) -> tuple[np.ndarray, list[dict[str, np.ndarray]]]:
    """The paper's runs with K = ``futures`` of some seeds, in float64; returns as ``lockstep`` does."""
    params = default_params()
    tapes = stack([published_tape(seed) for seed in seeds])
    stream = PublishedStream(seeds, futures, params.horizon)
    with jax.enable_x64(True):
        return lockstep(params, tapes, stream.draw, futures)


@functools.partial(jax.jit, static_argnames=("futures", "weeks"))
def _fresh_uniforms(key: Array, ids: Array, replications: Array, week: Array, futures: int, weeks: int) -> Array:
    """Uniforms float32 ``[n, 6, weeks, k]``, a function of key, tape id, replication and week alone.

    They are the first rows of ``uniforms(run's key, [6, weeks, k])``; what lies beyond the horizon stays 0.
    """

    def run_key(tape_id: Array, replication: Array) -> Array:
        of_run = fold_in(fold_in(fold_in(key, np.uint32(_REFERENCE_STREAM)), tape_id), replication)
        return jax.random.key_data(fold_in(of_run, week))

    key0, key1 = (word[:, None, None] for word in jax.vmap(run_key)(ids, replications).T)
    half = -(-futures // 2)
    pairs = jnp.arange(half, dtype=jnp.uint32)[None]
    rows = jnp.arange(len(DRAW_ORDER), dtype=jnp.uint32)[:, None] * np.uint32(weeks)

    def draw(t: Array, drawn: Array) -> Array:
        counters = ((rows + t.astype(jnp.uint32)) * np.uint32(half) + pairs)[None]
        words = threefry(key0, key1, jnp.zeros_like(counters), counters)
        return drawn.at[:, :, t].set(uniform(jnp.concatenate(words, axis=-1)[..., :futures]))

    blank = jnp.zeros((len(ids), len(DRAW_ORDER), weeks, futures), jnp.float32)
    return jax.lax.fori_loop(jnp.int32(0), np.int32(weeks) - week.astype(jnp.int32), draw, blank)


def reference(
    tapes: Tape,
    key: Array,
    replications: int = 20,
    futures: int | None = None,
    kind: str = "paper",
    *,
    params: WorldParams | None = None,
    wish: float | None = None,
    most_replications: int = 400,
    chunk: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Mean cost ($) of fresh oracle runs on every tape, and its standard error.

    A run's randomness is a function of ``key``, the tape's id and the replication's number, so a tape's reference
    does not depend on the others, on the chunk, or on how many devices there are.

    Args:
        tapes: stacked, with one leading axis.
        key: a typed random key.
        replications: runs of each tape.
        futures: joint futures for each decision; 200 if None.
        kind: which oracle; so far the paper's.
        params: the world's numbers; the paper's if None.
        wish: if given, tapes whose standard error is above it get another ``replications`` runs, until it is not or
            they have ``most_replications``. Stopping by the error makes it a little too small.
        most_replications: see ``wish``.
        chunk: runs in lockstep at a time, which bounds the memory: about half a megabyte for each. If None, 32 on a
            CPU, and as many as fit well on another device.
        progress: called with the number of runs that have just ended.

    Returns:
        Mean and standard error ``[n]``, float64; the standard error of a single run is NaN.

    Raises:
        ValueError: the tapes are not stacked, or a number is no whole number of at least 1.
    """
    mean, error, _ = reference_runs(
        tapes, key, replications, futures, kind, params=params, wish=wish, most_replications=most_replications,
        chunk=chunk, progress=progress,
    )  # fmt: skip
    return mean, error


def reference_runs(
    tapes: Tape,
    key: Array,
    replications: int = 20,
    futures: int | None = None,
    kind: str = "paper",
    *,
    params: WorldParams | None = None,
    wish: float | None = None,
    most_replications: int = 400,
    chunk: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """As ``reference``, with the number of runs of each tape, int64 ``[n]``, as a third value."""
    params = default_params() if params is None else params
    oracle = policy(kind, futures)
    chunk = runs_at_once(oracle.futures) if chunk is None else chunk
    for name, value in (("replications", replications), ("most_replications", most_replications), ("chunk", chunk)):
        whole(value, name, 1, 2**31 - 1)
    shape = np.shape(tapes.rows.pos_units)
    if len(shape) != 2 or shape[0] == 0:
        raise ValueError(f"The tapes' columns have shape {list(shape)}; stack one or more tapes.")
    tapes = jax.tree.map(np.asarray, tapes)
    costs: list[list[float]] = [[] for _ in range(shape[0])]
    waiting = list(range(shape[0]))
    # Later rounds are filled up to the size of the first, so that there is one shape to compile.
    chunk = min(chunk, len(waiting) * replications)
    while waiting:
        runs = [(tape, len(costs[tape]) + extra) for tape in waiting for extra in range(replications)]
        totals = _fresh_runs(params, tapes, key, runs, oracle.futures, chunk, progress)
        for (tape, _), total in zip(runs, totals, strict=True):
            costs[tape].append(float(total))
        waiting = [
            tape
            for tape in waiting
            if wish is not None and len(costs[tape]) < most_replications and not _standard_error(costs[tape]) <= wish
        ]
    means, errors, counts = ([figure(c) for c in costs] for figure in (np.mean, _standard_error, len))
    return np.array(means), np.array(errors), np.array(counts)


def _standard_error(costs: Sequence[float]) -> float:
    return float(np.std(costs, ddof=1) / len(costs) ** 0.5) if len(costs) > 1 else float("nan")


def _fresh_runs(
    params: WorldParams,
    tapes: Tape,
    key: Array,
    runs: Sequence[tuple[int, int]],
    futures: int,
    chunk: int,
    progress: Callable[[int], None] | None,
) -> np.ndarray:
    """Total costs of runs given as (position of the tape, replication), ``chunk`` in lockstep at a time."""
    parts = [runs[start : start + chunk] for start in range(0, len(runs), chunk)]

    def play(part: Sequence[tuple[int, int]]) -> np.ndarray:
        filled = np.array([*part, *[part[-1]] * (chunk - len(part))])
        ours = jax.tree.map(lambda leaf: leaf[filled[:, 0]], tapes)
        replications = filled[:, 1].astype(np.uint32)

        def draw(week: int) -> Array:
            return _fresh_uniforms(key, ours.id, replications, np.uint32(week), futures, 1 + params.horizon)

        totals, _ = lockstep(params, ours, draw, futures)
        if progress is not None:
            progress(len(part))
        return totals[: len(part)]

    return np.concatenate(over_devices(play, parts, compile_once=True))
