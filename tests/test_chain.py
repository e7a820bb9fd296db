"""Chains: their construction, the six tables of the rules against the recorded ones, and the four ways to walk them."""

import os
import pickle
import random
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stocktake_jax.chain import Chain, Layout, inverse_cdf
from stocktake_jax.factors import FACTORS, MODULES

ROWS = {"a": {"b:0": 0.25, "a": 0.75}, "b:0": {"b:1": 1.0}, "b:1": {"a": 0.5, "c": 0.25, "b:1": 0.25}, "c": {"c": 1.0}}

jitted_step = jax.jit(lambda chain, state, u: chain.step(state, u))
steps = jax.jit(jax.vmap(lambda chain, state, u: chain.step(state, u), in_axes=(None, 0, 0)))
predict = jax.jit(jax.vmap(Chain.predict, in_axes=(None, 0)))


@pytest.fixture
def chain():
    return Chain.from_rows(ROWS)


def rows(chain):
    """The chain as it was written down: ``{state: {successor: probability}}``."""
    labels = chain.layout.labels
    return {
        label: {labels[to]: float(p) for to, p in zip(successors, probabilities, strict=False)}
        for label, successors, probabilities in zip(labels, chain.layout.successors, chain.probabilities, strict=True)
    }


# Construction


def test_from_rows_keeps_states_and_successors_in_the_order_given(chain):
    assert chain.layout.labels == ("a", "b:0", "b:1", "c")
    assert chain.layout.successors == ((1, 0), (2,), (0, 3, 2), (3,))
    assert [list(row.items()) for row in rows(chain).values()] == [list(row.items()) for row in ROWS.values()]


def test_rows_are_padded_with_nothing_and_their_last_successor(chain):
    np.testing.assert_array_equal(chain.layout.table, [[1, 0, 0], [2, 2, 2], [0, 3, 2], [3, 3, 3]])
    np.testing.assert_array_equal(chain.probabilities[:2], [[0.25, 0.75, 0], [1, 0, 0]])
    assert chain.layout.table.dtype == np.int32
    assert chain.probabilities.dtype == np.float64


def test_from_rows_refuses_a_successor_that_is_no_state():
    with pytest.raises(ValueError, match="not in tuple"):
        Chain.from_rows({"a": {"b": 1.0}})


def test_with_row_changes_one_row_and_nothing_else(chain):
    other = chain.with_row("b:1", {"b:1": 0.2, "a": 0.7, "c": 0.1})
    assert rows(other) == ROWS | {"b:1": {"a": 0.7, "c": 0.1, "b:1": 0.2}}
    assert rows(chain) == ROWS
    assert other.layout is chain.layout


@pytest.mark.parametrize(
    "row", [{"a": 1.0}, {"a": 0.5, "c": 0.25, "b:1": 0.25, "b:0": 0.0}, {"a": 0.5, "c": 0.5, "x": 0}]
)
def test_with_row_refuses_other_successors(chain, row):
    with pytest.raises(ValueError, match="b:1 goes to a, c, b:1: give a probability for each, and for no other"):
        chain.with_row("b:1", row)


def test_with_row_refuses_an_unknown_state(chain):
    with pytest.raises(ValueError, match="not in tuple"):
        chain.with_row("d", {"a": 1.0})


# Layouts


def test_layouts_are_equal_by_content(chain):
    same = Layout(tuple(["a", "b:0", "b:1", "c"]), ((1, 0), (2,), (0, 3, 2), (3,)))
    assert same == chain.layout
    assert hash(same) == hash(chain.layout)
    assert len({same, chain.layout}) == 1
    assert pickle.loads(pickle.dumps(same)) == same


def test_a_layout_pickled_by_another_process_hashes_as_its_equals_do():
    code = """if True:
        import pickle, sys
        from stocktake_jax.factors import canal
        sys.stdout.buffer.write(pickle.dumps(canal.LAYOUT))
    """
    environment = os.environ | {"PYTHONHASHSEED": "1", "PYTHONPATH": str(Path(__file__).parents[1])}
    pickled = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True).stdout
    layout = pickle.loads(pickled)
    assert layout == MODULES["canal"].LAYOUT
    assert hash(layout) == hash(MODULES["canal"].LAYOUT)


@pytest.mark.parametrize(
    "other",
    [
        Layout(("a", "b:0", "b:1", "d"), ((1, 0), (2,), (0, 3, 2), (3,))),
        Layout(("a", "b:0", "b:1", "c"), ((0, 1), (2,), (0, 3, 2), (3,))),
        "a, b:0, b:1, c",
    ],
)
def test_layouts_differ_by_a_label_or_the_order_of_successors(chain, other):
    assert chain.layout != other


def test_equal_layouts_share_a_compilation(chain):
    traces = []

    @jax.jit
    def start(chain):
        traces.append(1)
        return chain.probabilities[0, 0]

    start(chain)
    start(Chain.from_rows(ROWS).with_row("a", {"a": 0.5, "b:0": 0.5}))
    assert len(traces) == 1


def test_mask_selects_whole_regimes(chain):
    np.testing.assert_array_equal(chain.layout.mask("b"), [False, True, True, False])
    np.testing.assert_array_equal(chain.layout.mask("a", "c"), [True, False, False, True])
    assert chain.layout.regimes == ("a", "b", "b", "c")


def test_mask_refuses_an_unknown_regime(chain):
    with pytest.raises(ValueError, match=r"no regime \['b:0', 'd'\] here; the regimes are \['a', 'b', 'c'\]"):
        chain.layout.mask("b", "d", "b:0")


def test_repr_of_a_layout_names_its_states(chain):
    assert repr(chain.layout) == "Layout(4 states: a, b:0, b:1, c)"


# The six factors


@pytest.mark.parametrize("factor", FACTORS)
def test_rows_of_a_factor_sum_to_one(factor):
    chain = MODULES[factor].CHAIN
    np.testing.assert_allclose(chain.probabilities.sum(axis=1), 1, rtol=0, atol=1e-15)
    for row, successors in zip(chain.probabilities, chain.layout.successors, strict=True):
        assert np.all(row[: len(successors)] >= 0)
        assert np.all(row[len(successors) :] == 0)
        assert len(set(successors)) == len(successors)


def golden_labels(states):
    return [state.removeprefix("disruption:") for state in states]


@pytest.mark.parametrize("factor", FACTORS)
def test_states_and_successors_stand_in_canonical_order(factor, load_golden):
    recorded = load_golden("filters.json.gz")["filters"][factor]
    chain = MODULES[factor].CHAIN
    assert list(chain.layout.labels) == golden_labels(recorded["states"])
    assert [list(successors) for successors in chain.layout.successors] == [
        [to for to, _ in row] for row in recorded["rows"]
    ]
    for ours, row in zip(chain.probabilities, recorded["rows"], strict=True):
        np.testing.assert_allclose(ours[: len(row)], [p for _, p in row], rtol=0, atol=1e-15)


@pytest.mark.parametrize("factor", FACTORS)
def test_predict_is_the_recorded_matrix(factor, load_golden):
    matrix = np.array(load_golden("filters.json.gz")["filters"][factor]["matrix"])
    chain = MODULES[factor].CHAIN
    size = len(chain.layout.labels)
    beliefs = np.concatenate([np.eye(size), np.random.default_rng(0).dirichlet(np.ones(size), 20)])
    with jax.enable_x64(True):
        predicted = predict(chain, beliefs)
    assert predicted.dtype == np.float64
    np.testing.assert_allclose(predicted, beliefs @ matrix, rtol=0, atol=1e-12)


@pytest.mark.parametrize("factor", FACTORS)
def test_predict_keeps_the_precision_of_the_belief(factor):
    chain = MODULES[factor].CHAIN
    belief = np.full((1, len(chain.layout.labels)), 1 / len(chain.layout.labels), np.float32)
    predicted = predict(chain, belief)
    assert predicted.dtype == np.float32
    assert float(predicted.sum()) == pytest.approx(1, abs=1e-6)


# Inverse CDF


@pytest.mark.parametrize(
    ("u", "index"),
    [
        (0.0, 0),
        (np.nextafter(np.float32(0.25), np.float32(0)), 0),
        (0.25, 1),
        (0.5, 3),
        (np.nextafter(np.float32(0.875), np.float32(0)), 3),
        (0.875, 4),
        (np.nextafter(np.float32(1), np.float32(0)), 4),
        (1.0, 4),
        (2.0, 4),
    ],
)
def test_inverse_cdf_takes_the_first_entry_strictly_above(u, index):
    cumulative = jnp.cumsum(jnp.array([0.25, 0.25, 0.0, 0.375, 0.125]))
    picked = inverse_cdf(cumulative, jnp.float32(u))
    assert picked == index
    assert picked.dtype == jnp.int32


def test_inverse_cdf_falls_back_on_the_last_entry_when_the_sum_is_short():
    assert inverse_cdf(jnp.array([0.3, 0.6, 0.9]), jnp.float32(0.95)) == 2


def test_inverse_cdf_works_along_the_last_axis():
    cumulative = jnp.array([[0.5, 1.0], [0.1, 1.0]])
    np.testing.assert_array_equal(inverse_cdf(cumulative, jnp.float32(0.3)), [0, 1])


def test_cumulative_sums_run_from_the_left():
    chain = MODULES["canal"].CHAIN
    with jax.enable_x64(True):
        cumulative = chain.cumulative(np.float64)
    for sums, row in zip(cumulative, chain.probabilities.tolist(), strict=True):
        total, expected = 0.0, []
        for p in row:
            total += p
            expected.append(total)
        assert sums.tolist() == expected


# Walking


def test_step_picks_by_inverse_cdf_over_the_listed_successors(chain):
    for state, u, following in [(0, 0.2, 1), (0, 0.25, 0), (1, 0.99, 2), (2, 0.49, 0), (2, 0.5, 3), (2, 0.75, 2)]:
        stepped = jitted_step(chain, jnp.int32(state), jnp.float32(u))
        assert stepped == following
        assert stepped.dtype == jnp.int32


@pytest.mark.parametrize("factor", FACTORS)
def test_step_at_a_uniform_of_one_takes_the_last_successor(factor):
    chain = MODULES[factor].CHAIN
    states = jnp.arange(len(chain.layout.labels), dtype=jnp.int32)
    last = [successors[-1] for successors in chain.layout.successors]
    np.testing.assert_array_equal(steps(chain, states, jnp.ones(len(states))), last)


@pytest.mark.parametrize("factor", FACTORS)
def test_step_frequencies_are_the_probabilities(factor):
    # With evenly spread uniforms a frequency is exact but for one uniform at each end of an interval.
    chain, count = MODULES[factor].CHAIN, 1 << 12
    size = len(chain.layout.labels)
    even = np.tile((np.arange(count, dtype=np.float32) + np.float32(0.5)) / np.float32(count), size)
    states = np.repeat(np.arange(size, dtype=np.int32), count)
    following = np.asarray(steps(chain, states, even))
    frequencies = np.bincount(states * size + following, minlength=size**2).reshape(size, size) / count
    dense = np.zeros((size, size))
    np.add.at(dense, (np.arange(size)[:, None], chain.layout.table), chain.probabilities)
    np.testing.assert_allclose(frequencies, dense, rtol=0, atol=2 / count)


@pytest.mark.parametrize("factor", FACTORS)
def test_a_path_is_repeated_steps(factor):
    chain, start = MODULES[factor].CHAIN, MODULES[factor].START
    uniforms = np.random.default_rng(1).random(200, np.float32)
    expected, state = [], jnp.int32(start)
    for u in uniforms:
        state = jitted_step(chain, state, u)
        expected.append(int(state))
    path = jax.jit(Chain.path)(chain, start, uniforms)
    assert path.tolist() == expected
    assert path.dtype == jnp.int32
    assert len(set(expected)) > 2


class Counted(random.Random):
    """CPython's stream, counting the uniforms taken from it."""

    taken = 0

    def random(self):
        self.taken += 1
        return super().random()


def test_replay_takes_no_uniform_where_nothing_is_left_to_chance(chain):
    source = Counted(1)
    assert chain.replay(source, 1) == 2
    assert chain.replay(source, 3) == 3
    assert source.taken == 0
    chain.replay(source, 2)
    assert source.taken == 1


@pytest.mark.parametrize("factor", FACTORS)
def test_replay_picks_what_step_picks(factor):
    chain, start = MODULES[factor].CHAIN, MODULES[factor].START
    source, twin = random.Random(2), random.Random(2)
    states, uniforms = [start], []
    for _ in range(500):
        alone = len(chain.layout.successors[states[-1]]) == 1
        uniforms.append(0.5 if alone else twin.random())
        states.append(chain.replay(source, states[-1]))
    with jax.enable_x64(True):
        path = jax.jit(Chain.path)(chain, start, jnp.asarray(uniforms))
    assert path.tolist() == states[1:]
    assert source.random() == twin.random()


def test_chains_with_other_numbers_are_vmapped_over():
    chain = MODULES["supplier"].CHAIN
    several = chain.replace(
        probabilities=jnp.stack([jnp.asarray(chain.probabilities), jnp.asarray(chain.probabilities)])
    )
    several = several.replace(probabilities=several.probabilities.at[1, 0].set(jnp.array([0.9, 0.1, 0.0])))
    following = jax.jit(jax.vmap(Chain.step, in_axes=(0, None, None)))(several, jnp.int32(0), jnp.float32(0.5))
    assert [chain.layout.labels[state] for state in following] == ["reliable", "wobbling"]
