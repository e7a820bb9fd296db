"""Episodes to test with: a tape by hand, and many side by side through ``st.step`` and ``st.observe``.

All tests use one number of lanes, so that a session compiles each function once for each precision.
"""

import functools
from typing import Any

import jax
import numpy as np

import stocktake_jax as st
from stocktake_jax.factors import MODULES
from stocktake_jax.tape import start_row

LANES = 128
MANY = 2048
"""Tapes of a sweep, another shape that all tests share."""
WEEKS = 26
LEVERS = ("lock_weeks", "air", "inspect", "briefing", "audit")

_PAPER = st.WorldParams()
_reset = jax.jit(jax.vmap(st.reset, in_axes=(0, None)))
_step = jax.jit(jax.vmap(st.step, in_axes=(0, 0, 0, None)))
_observe = jax.jit(jax.vmap(st.observe, in_axes=(0, 0, None)))
_mint = jax.jit(jax.vmap(st.mint, in_axes=(0, None)))


def quiet_tape(weeks: int = WEEKS, **changes: dict[int, int | str]) -> st.Tape:
    """A season in which nothing happens, but for changes: ``canal={3: "long:0"}`` sets one column in one week.

    Demand is 20 and spot ships in full.
    """
    rows = jax.tree.map(lambda value: np.full(weeks + 1, value, np.int32), start_row())
    rows.fill[:] = 100
    for name, entries in changes.items():
        for week, value in entries.items():
            if isinstance(value, str):
                value = MODULES[name].LAYOUT.index(value)
            getattr(rows, name)[week] = value
    return st.Tape(rows=rows, id=np.uint32(0), minted=np.bool_(False))


def mint(params: st.WorldParams = _PAPER, first: int = 0) -> st.Tape:
    """A tape for every lane, of seeds from ``first`` on (NumPy leaves)."""
    return jax.device_get(_mint(np.arange(first, first + LANES, dtype=np.uint32), params))


@functools.cache
def pool(count: int = MANY) -> st.Tape:
    """The tapes of seeds 0.., a multiple of ``LANES`` (NumPy leaves)."""
    batches = [mint(first=first) for first in range(0, count, LANES)]
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *batches)


def repeat(tree: Any) -> Any:
    """The same thing on every lane."""
    return jax.tree.map(lambda leaf: np.repeat(np.asarray(leaf)[None], LANES, axis=0), tree)


def lane(tree: Any, i: int) -> Any:
    """One lane of it."""
    return jax.tree.map(lambda leaf: leaf[i], tree)


def reset(tapes: st.Tape, params: st.WorldParams = _PAPER) -> st.State:
    return _reset(tapes, params)


def step(state: st.State, action: st.Action, tapes: st.Tape, params: st.WorldParams = _PAPER) -> tuple:
    return _step(state, action, tapes, params)


def observe(state: st.State, tapes: st.Tape, params: st.WorldParams = _PAPER) -> st.Observation:
    return _observe(state, tapes, params)


def play(
    tapes: st.Tape, actions: st.Action, params: st.WorldParams = _PAPER
) -> tuple[list[st.State], list[st.WeekResult], list[st.Observation]]:
    """Plays ``actions``, leaves ``[lanes, weeks]``.

    Returns:
        States and observations of weeks 0, 1, ..., and the results of the weeks between; NumPy leaves, lanes in front.
    """
    tapes, actions = jax.device_put((tapes, actions))
    state = reset(tapes, params)
    states, results, observations = [state], [], [observe(state, tapes, params)]
    for week in range(actions.qty.shape[1]):
        state, result = step(state, jax.tree.map(lambda leaf: leaf[:, week], actions), tapes, params)  # noqa: B023
        states.append(state)
        results.append(result)
        observations.append(observe(state, tapes, params))
    return jax.device_get((states, results, observations))


def random_actions(
    rng: np.random.Generator,
    *,
    lanes: int = LANES,
    weeks: int = WEEKS,
    illegal: float = 0.0,
    most_order: int = 100,
    levers: tuple[str, ...] = LEVERS,
) -> st.Action:
    """Random actions, ``[lanes, weeks]``; with probability ``illegal`` each part is one that no rule allows.

    Contracts are signed with the supplier that is ordered from, more often than not. An order from a supplier without
    a live contract is never ruled out.
    """
    shape = (lanes, weeks)

    def whole(least: int, most: int) -> np.ndarray:
        return rng.integers(least, most, shape, endpoint=True).astype(np.int32)

    def spoilt(values: np.ndarray, bad: tuple[int, ...]) -> np.ndarray:
        return np.where(rng.random(shape) < illegal, rng.choice(np.array(bad, np.int32), shape), values)

    def now_and_then(share: float, values: np.ndarray) -> np.ndarray:
        return np.where(rng.random(shape) < share, values, np.int32(0))

    supplier = whole(0, 2)
    signed = np.where(rng.random(shape) < 0.7, supplier, whole(0, 2))
    pulled = {
        "lock_weeks": spoilt(now_and_then(0.15, whole(1, 6)), (-1, -(2**31))),
        "air": spoilt(now_and_then(0.2, whole(1, 40)), (-1, -20)),
        "inspect": now_and_then(0.25, whole(1, 1)),
        "briefing": now_and_then(0.15, whole(1, 1)),
        "audit": now_and_then(0.15, whole(1, 1)),
    }
    return st.Action(
        qty=spoilt(now_and_then(0.85, whole(0, most_order)), (-1, -50, most_order + 1, 10**9)),
        route=spoilt(whole(0, 1), (-1, 2, 99)),
        supplier=spoilt(supplier, (-1, 3, 99)),
        contract_action=spoilt(now_and_then(0.4, whole(1, 4)), (-1, 5, 99)),
        contract_supplier=spoilt(signed, (-1, 3, 99)),
        contract_terms=spoilt(whole(0, 4), (-1, 5, 99)),
        **{name: values if name in levers else np.zeros(shape, np.int32) for name, values in pulled.items()},
    )


@functools.cache
def random_play(seed: int = 0) -> tuple[st.Action, list[st.State], list[st.WeekResult], list[st.Observation]]:
    """Random play on the first tapes of the pool, part of it illegal: actions and what ``play`` returns."""
    actions = random_actions(np.random.default_rng(seed), illegal=0.01)
    return actions, *play(mint(), actions)
