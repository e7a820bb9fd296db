"""Policies over many tapes, in chunks and over devices."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from stocktake_jax.actions import Action, to_int32
from stocktake_jax.devices import computed_once, over_devices
from stocktake_jax.env import observe_row
from stocktake_jax.logistics import initial_state, transition
from stocktake_jax.params import WorldParams, default_params, whole
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


def tape_key(key: Array, tape_id: Array) -> Array:
    """A policy's own key for one tape; ``week_key`` makes it the key of one week."""
    return fold_in(jax.random.fold_in(key, np.uint32(_POLICY_STREAM)), tape_id)


def week_key(key: Array, week: Array) -> Array:
    """The key that a policy is given in one week of the tape that ``key`` is for."""
    return fold_in(key, week)


def play(policy: Policy, tape: Tape, key: Array, params: WorldParams) -> EpisodeResult:
    """One episode of a policy on one tape, no leading axes. Pure; ``evaluate`` maps it over tapes."""
    params = params.arrays()
    key = tape_key(key, tape.id)

    def week(loop: tuple, exogenous: tuple[Row, Array]) -> tuple[tuple, tuple]:
        state, memory, total, now = loop
        row, number = exogenous
        observation = observe_row(params, state, now)
        action, memory = policy.act(params, memory, observation, week_key(key, state.week))
        # Else a policy's arithmetic would be done again in each of the week's loops.
        action = computed_once(to_int32(action), number >= 0)
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


@functools.partial(jax.jit, static_argnames=("policy", "chunk"))
def _evaluate(policy: Policy, tapes: Tape, key: Array, params: WorldParams, chunk: int) -> EpisodeResult:
    return jax.lax.map(lambda tape: play(policy, tape, key, params), tapes, batch_size=chunk)


def _evaluate_over_devices(policy: Policy, tapes: Tape, key: Array, params: WorldParams, chunk: int) -> EpisodeResult:
    """``_evaluate`` on equal shares of the tapes; few of them stay on one device, which saves compiling for more."""
    count, devices = len(tapes.id), jax.local_devices()
    share = -(-count // len(devices))
    if share < chunk or len(devices) == 1:
        return _evaluate(policy, tapes, key, params, min(chunk, count))
    # By way of the host: slices of an array that lies on several devices would make these wait for one another.
    tapes = jax.tree.map(np.asarray, tapes)
    # The last share is filled up with its neighbour's last tapes, so that there is one shape to compile.
    starts = [min(start, count - share) for start in range(0, count, share)]

    def work(start: int) -> EpisodeResult:
        ours = jax.tree.map(lambda leaf: leaf[start : start + share], tapes)
        return jax.device_put(_evaluate(policy, ours, key, params, chunk), devices[0])

    shares = over_devices(work, starts)
    spare = len(starts) * share - count
    shares[-1] = jax.tree.map(lambda leaf: leaf[spare:], shares[-1])
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *shares)


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
    tape's place in the batch, nor on the chunk, nor on the number of devices.

    Args:
        policy: frozen and hashable.
        tapes: stacked, with one leading axis.
        key: a typed random key, as from ``jax.random.key``.
        params: the world's numbers; the paper's if None.
        chunk: episodes that a device steps side by side.
        float64: whether to account in double precision, as published figures are, and to return NumPy arrays;
            otherwise in the precision in force, float32 unless ``jax.enable_x64`` says otherwise.

    Raises:
        ValueError: the tapes are not stacked, are none, or are of another horizon; or the chunk is not a whole number
            of at least 1.
    """
    params = default_params() if params is None else params
    chunk = whole(chunk, "The chunk", 1, 2**31 - 1)
    shape = np.shape(tapes.rows.pos_units)
    if len(shape) != 2 or shape[0] == 0 or shape[1] != params.horizon + 1:
        raise ValueError(
            f"The tapes' columns have shape {list(shape)}; stack one or more tapes of {params.horizon + 1} weeks."
        )
    traced = any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves((tapes, key, params)))
    run = _evaluate if traced else _evaluate_over_devices
    if not float64:
        return run(policy, tapes, key, params.in_force(), chunk)
    with jax.enable_x64(True):
        # NumPy, since a float64 JAX array is of little use to a process that is otherwise in float32.
        return jax.device_get(run(policy, tapes, key, params.in_force(), chunk))
