"""Policies over many tapes, in chunks."""

import contextlib
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from stocktake_jax.actions import Action, to_int32
from stocktake_jax.env import observe_row
from stocktake_jax.logistics import initial_state, transition
from stocktake_jax.params import WorldParams, default_params
from stocktake_jax.policies import Policy
from stocktake_jax.randomness import Array, fold_in
from stocktake_jax.tape import Row, Tape

CHUNK = 1024
"""Episodes stepped side by side. Larger chunks fall out of a CPU's cache; on a GPU take all at once."""

# A policy's own randomness: no stream of a tape or of another use of the same key is ever the same.
_POLICY_STREAM = 0x504F_4C00


class EpisodeResult(struct.PyTreeNode):
    """What a policy did and what it cost, one entry a tape.

    Attributes:
        total_cost: float ``[n]``, $.
        costs: float ``[n, 26, 13]``, $ by week and line, lines in the order of ``COSTS``; entry w is the decision
            of week w, whose costs fall in week w + 1.
        unmet: int32 ``[n, 26]``, units of demand not served.
        actions: int32 leaves ``[n, 26]``.
        refusals: int32 ``[n, 26]``, a ``Refusal`` each, 0 where the action was legal.
    """

    total_cost: Array
    costs: Array
    unmet: Array
    actions: Action
    refusals: Array


def play(policy: Policy, tape: Tape, key: Array, params: WorldParams) -> EpisodeResult:
    """One episode of a policy on one tape, no leading axes. Pure; ``evaluate`` maps it over tapes."""
    params = params.arrays()
    key = fold_in(jax.random.fold_in(key, np.uint32(_POLICY_STREAM)), tape.id)

    def week(loop: tuple, exogenous: tuple[Row, Array]) -> tuple[tuple, tuple]:
        state, memory, total, now = loop
        row, number = exogenous
        observation = observe_row(params, state, now)
        action, memory = policy.act(params, memory, observation, fold_in(key, state.week))
        action = _computed_once(to_int32(action), number >= 0)
        state, result = transition(params, state, action, now, row)
        total = total + result.cost
        return (state, memory, total, row), (result.costs, result.unmet, action, result.refusal)

    state = initial_state(params)
    first = jax.tree.map(lambda column: column[0], tape.rows)
    rest = jax.tree.map(lambda column: column[1:], tape.rows)
    loop = (state, policy.init(params), jnp.zeros((), params.costs.holding.dtype), first)
    numbers = jnp.arange(params.horizon, dtype=jnp.int32)
    (_, _, total, _), (costs, unmet, actions, refusals) = jax.lax.scan(week, loop, (rest, numbers))
    return EpisodeResult(total_cost=total, costs=costs, unmet=unmet, actions=actions, refusals=refusals)


def _computed_once(tree: Any, true: Array) -> Any:
    """``tree``, kept by a CPU's compiler instead of computed anew in every loop that reads it.

    XLA copies cheap expressions into each of their consumers; a policy's arithmetic would run ten times over. The
    branches of a conditional are a border that it does not fuse across, nor can it know that ``true`` always is.
    """

    def conditional(tree: Any) -> Any:
        return jax.lax.cond(true, lambda x: x, lambda x: jax.tree.map(jnp.zeros_like, x), tree)

    return jax.lax.platform_dependent(tree, cpu=conditional, default=lambda x: x)


@functools.partial(jax.jit, static_argnames=("policy", "chunk"))
def _evaluate(policy: Policy, tapes: Tape, key: Array, params: WorldParams, chunk: int | None) -> EpisodeResult:
    return jax.lax.map(lambda tape: play(policy, tape, key, params), tapes, batch_size=chunk)


def evaluate(
    policy: Policy,
    tapes: Tape,
    key: Array,
    params: WorldParams | None = None,
    *,
    chunk: int = CHUNK,
    float64: bool = False,
) -> EpisodeResult:
    """Plays a policy on every tape.

    Each tape's randomness is a function of ``key`` and the tape's id, so a result does not depend on the
    tape's place in the batch, nor on the chunk.

    Args:
        policy: frozen and hashable.
        tapes: stacked, with one leading axis.
        key: a typed random key, as from ``jax.random.key``.
        params: the world's numbers; the paper's if None.
        chunk: episodes stepped side by side.
        float64: whether to account in double precision, as published figures are; otherwise in the precision
            in force, float32 unless ``jax.enable_x64`` says otherwise.

    Raises:
        ValueError: the tapes are not stacked, are none, or are of another horizon.
    """
    params = default_params() if params is None else params
    shape = np.shape(tapes.rows.pos_units)
    if len(shape) != 2 or shape[0] == 0 or shape[1] != params.horizon + 1:
        raise ValueError(
            f"The tapes' columns have shape {list(shape)}; stack one or more tapes of {params.horizon + 1} weeks."
        )
    with jax.enable_x64(True) if float64 else contextlib.nullcontext():
        return _evaluate(policy, tapes, key, params, min(chunk, shape[0]))
