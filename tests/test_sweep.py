"""Sweeps: a result is a function of policy, tape, key and world, and of nothing else."""

import functools
import hashlib
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stocktake_jax as st
from stocktake_jax import sweep
from stocktake_jax.devices import computed_once
from tests import lanes

RANDOM = st.policies.random_legal()
KEY = 7


@functools.cache
def played(key=KEY):
    """Random play on the whole pool."""
    return jax.device_get(st.evaluate(RANDOM, lanes.pool(), jax.random.key(key)))


@functools.cache
def published():
    return st.stack([st.published_tape(seed.seed) for seed in st.published_seeds()])


@functools.cache
def floored(key=0):
    return jax.device_get(st.evaluate(st.policies.floor(), published(), jax.random.key(key), float64=True))


def pick(tree, rows):
    return jax.tree.map(lambda leaf: leaf[rows], tree)


def assert_same(one, other):
    """Bit for bit."""
    jax.tree.map(np.testing.assert_array_equal, one, other)


# What a result does not depend on.


def test_place_in_the_batch_does_not_matter():
    order = np.random.default_rng(0).permutation(lanes.MANY)
    shuffled = st.evaluate(RANDOM, pick(lanes.pool(), order), jax.random.key(KEY))
    assert_same(shuffled, pick(played(), order))


@pytest.mark.parametrize(
    ("rows", "chunk"),
    [
        (range(300, 400), 25),
        pytest.param(range(300, 413), 25, marks=pytest.mark.slow),
        pytest.param([5], 1024, marks=pytest.mark.slow),
        pytest.param([2047, 0, 1000], 1, marks=pytest.mark.slow),
        pytest.param(range(0, 2048, 3), 64, marks=pytest.mark.slow),
    ],
    ids=["100 by 25", "113 by 25", "one", "3 one by one", "683 by 64"],
)
def test_neighbours_and_chunk_do_not_matter(rows, chunk):
    rows = np.array(rows)
    alone = st.evaluate(RANDOM, pick(lanes.pool(), rows), jax.random.key(KEY), chunk=chunk)
    assert_same(alone, pick(played(), rows))


@pytest.mark.slow
@pytest.mark.parametrize("chunk", [1, 4, 13])
def test_floor_does_not_depend_on_neighbours_and_chunk(chunk):
    rows = np.arange(49, 36, -1)
    key = jax.random.key(0)
    alone = st.evaluate(st.policies.floor(), pick(published(), rows), key, chunk=chunk, float64=True)
    assert_same(alone, pick(floored(), rows))


def test_same_tape_twice_in_a_batch_is_played_alike():
    twice = st.evaluate(RANDOM, pick(lanes.pool(), np.full(lanes.MANY, 17)), jax.random.key(KEY))
    assert_same(twice, pick(played(), np.full(lanes.MANY, 17)))


def test_key_matters_to_random_play_and_not_to_the_floor():
    one, other = played(), played(KEY + 1)
    assert np.mean(one.actions.qty != other.actions.qty) > 0.9
    assert np.all(one.total_cost != other.total_cost)
    assert_same(floored(0), floored(1))


def test_tapes_of_one_key_are_played_with_different_luck():
    first_orders = {tuple(row) for row in played().actions.qty.tolist()}
    assert len(first_orders) == lanes.MANY


_DIGEST = """
import os, sys
import jax
jax.config.update("jax_num_cpu_devices", int(sys.argv[1]))
import hashlib
import numpy as np
import stocktake_jax as st
tapes = st.stack([st.published_tape(seed) for seed in range(7)])
result = st.evaluate(st.policies.random_legal(), tapes, jax.random.key(3), chunk=2)
assert jax.local_device_count() == int(sys.argv[1])
print(hashlib.sha256(b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(result))).hexdigest())
"""


@pytest.mark.slow
def test_number_of_devices_does_not_matter():
    root = Path(__file__).resolve().parent.parent
    paths = os.pathsep.join([str(root), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    digests = set()
    for devices in (1, 2, 3):
        command = [sys.executable, "-c", _DIGEST, str(devices)]
        done = subprocess.run(
            command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": paths}, check=True, cwd=root
        )
        digests.add(done.stdout.strip())
    assert len(digests) == 1
    assert len(digests.pop()) == hashlib.sha256().digest_size * 2


# What a result is.


def test_result_has_a_row_for_each_tape_and_a_column_for_each_decision():
    result = played()
    shapes = {name: np.shape(getattr(result, name)) for name in ("total_cost", "costs", "unmet", "refusals")}
    assert shapes == {
        "total_cost": (lanes.MANY,),
        "costs": (lanes.MANY, 26, 13),
        "unmet": (lanes.MANY, 26),
        "refusals": (lanes.MANY, 26),
    }
    assert {leaf.shape for leaf in jax.tree.leaves(result.actions)} == {(lanes.MANY, 26)}
    assert {leaf.dtype for leaf in jax.tree.leaves(result.actions)} == {np.dtype(np.int32)}


@pytest.mark.parametrize("result", [played, floored])
def test_total_is_the_running_sum_of_the_weeks_plain_sums(result):
    costs, total = result().costs, 0
    for week in range(26):
        cost = costs[:, week, 0]
        for line in range(1, 13):
            cost = cost + costs[:, week, line]
        total = total + cost
    np.testing.assert_array_equal(result().total_cost, total)


def test_precision_is_the_process_unless_float64_is_asked_for():
    assert played().total_cost.dtype == played().costs.dtype == np.float32
    assert floored().total_cost.dtype == floored().costs.dtype == np.float64
    assert jax.config.jax_enable_x64 is False
    assert jnp.ones(1).dtype == np.float32


def test_sweep_is_stepping_by_hand():
    rows = np.arange(lanes.LANES)
    swept = pick(played(), rows)
    _, results, observations = lanes.play(pick(lanes.pool(), rows), swept.actions)
    for week, (result, observation) in enumerate(zip(results, observations[1:], strict=True)):
        np.testing.assert_array_equal(swept.unmet[:, week], result.unmet)
        np.testing.assert_array_equal(swept.refusals[:, week], result.refusal)
        np.testing.assert_allclose(swept.costs[:, week], result.costs, rtol=1e-6)
        np.testing.assert_array_equal(observation.costs, result.costs)


@pytest.mark.slow
def test_refused_action_of_a_policy_is_reported():
    # 94 units in week 0 are within bounds, but no one is ordered from without a contract.
    result = st.evaluate(Rash(), published(), jax.random.key(0), float64=True)
    assert (np.asarray(result.refusals) == st.Refusal.NO_CONTRACT).all()
    assert not np.asarray(result.costs)[:, :, st.COSTS.index("shipping")].any()


class Rash:
    """Orders from a supplier that it never signs."""

    def init(self, params):
        return ()

    def act(self, params, carry, observation, key):
        return st.Action(qty=94, supplier=st.SUPPLIERS.index("backup")), carry


# Worlds, errors, compilation.


@pytest.mark.slow
def test_shorter_world_is_played_on_its_own_tapes():
    params = st.WorldParams(horizon=10)
    tapes = lanes.mint(params)
    assert tapes.rows.canal.shape == (lanes.LANES, 11)
    result = st.evaluate(RANDOM, tapes, jax.random.key(0), params)
    assert result.costs.shape == (lanes.LANES, 10, 13)
    assert not np.asarray(result.refusals).any()
    assert_same(pick(tapes.rows, np.s_[:, :11]), jax.tree.map(lambda c: c[: lanes.LANES, :11], lanes.pool().rows))


def test_numbers_of_the_world_are_those_given():
    params = st.WorldParams()
    dear = params.replace(costs=params.costs.replace(holding=2.0))
    result = st.evaluate(st.policies.floor(), published(), jax.random.key(0), dear, float64=True)
    holding = st.COSTS.index("holding")
    np.testing.assert_array_equal(result.costs[:, :, holding], 2 * floored().costs[:, :, holding])
    assert_same(result.actions, floored().actions)


@pytest.mark.parametrize(
    ("tapes", "shape"),
    [
        (lanes.quiet_tape(), "[27]"),
        (jax.tree.map(lambda leaf: leaf[None][:0], lanes.quiet_tape()), "[0, 27]"),
        (lanes.repeat(lanes.quiet_tape(10)), f"[{lanes.LANES}, 11]"),
        (jax.tree.map(lambda leaf: leaf[None, None], lanes.quiet_tape()), "[1, 1, 27]"),
    ],
    ids=["unstacked", "none", "another horizon", "stacked twice"],
)
def test_tapes_of_the_wrong_shape_are_refused_with_what_would_be_right(tapes, shape):
    with pytest.raises(ValueError, match="stack one or more tapes of 27 weeks") as caught:
        st.evaluate(st.policies.floor(), tapes, jax.random.key(0))
    assert shape in str(caught.value)


def test_no_tape_is_nothing_to_stack():
    with pytest.raises(ValueError, match="at least one"):
        st.stack([])


def test_no_tape_key_world_or_equal_policy_compiles_anew(monkeypatch):
    floored()
    traced = Counter()

    def counting(*args, **named):
        traced["play"] += 1
        return play(*args, **named)

    play = sweep.play
    monkeypatch.setattr(sweep, "play", counting)
    params = st.WorldParams()
    other = st.stack([st.published_tape(seed) for seed in range(50)])
    for policy, tapes, key, world in [
        (st.policies.floor(), other, 0, None),
        (st.policies.BaseStock(93), published(), 5, params),
        (st.policies.floor(), other, 1, params.replace(costs=params.costs.replace(holding=3))),
    ]:
        st.evaluate(policy, tapes, jax.random.key(key), world, float64=True)
    assert traced["play"] == 0
    tapes = jax.tree.map(lambda leaf: leaf[:3], other)
    jax.eval_shape(lambda *given: st.evaluate(st.policies.floor(), *given), tapes, jax.random.key(0), params)
    assert traced["play"] > 0


def test_computed_once_is_the_identity():
    tree = {"a": np.arange(6, dtype=np.int32), "b": (np.float32(2.5) * np.ones(6, np.float32), np.arange(6) > 2)}
    tree = jax.tree.map(jnp.asarray, tree)
    always = jnp.arange(6) >= 0
    computed = jax.jit(jax.vmap(computed_once))(tree, always)
    assert_same(computed, tree)
    assert_same(jax.jit(computed_once)(tree, always[0]), tree)


@pytest.mark.parametrize("chunk", [0, -1, 2.5, True])
def test_a_chunk_that_holds_no_episode_is_refused_in_a_sentence(chunk):
    tapes = st.stack([st.published_tape(1)])
    with pytest.raises(ValueError, match=r"^The chunk is .+; it must be a whole number from 1 to \d+\.$"):
        st.evaluate(st.policies.floor(), tapes, jax.random.key(0), chunk=chunk)
