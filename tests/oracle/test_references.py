"""The paper's own oracle runs, replayed on their random stream, and fresh references by the same code."""

import jax
import numpy as np
import pytest

import stocktake_jax as st
from stocktake_jax.devices import over_devices
from stocktake_jax.oracle import references
from stocktake_jax.oracle.menu import SLOTS
from stocktake_jax.oracle.references import (
    PUBLISHED_FUTURES,
    PublishedStream,
    deal,
    published_reference,
    published_runs,
    reference,
    reference_runs,
    runs_at_once,
)
from stocktake_jax.oracle.rollout import PaperOracle, policy
from stocktake_jax.randomness import uniforms

PUBLISHED = st.published_seeds()


def compare_runs(golden, seeds, futures):
    """One replication of some seeds against its records: totals, menus and the choices' mean costs."""
    recorded = {run["seed"]: run for run in golden["runs"] if run["k"] == futures}
    totals, weeks = published_runs(seeds, futures)
    for i, seed in enumerate(seeds):
        run = recorded[seed]
        assert totals[i] == pytest.approx(run["total"], abs=1e-6)
        assert [week["candidates"][i] for week in weeks] == run["n_cand"]
        assert [week["mean_cost"][i] for week in weeks] == pytest.approx(run["best_avg"], rel=1e-9)


def test_published_runs_of_all_fifty_seeds_are_replayed(load_golden):
    compare_runs(load_golden("oracle_runs.json.gz"), [s.seed for s in PUBLISHED], PUBLISHED_FUTURES[0])


@pytest.mark.slow
def test_every_published_run_and_every_published_mean(load_golden):
    runs = load_golden("oracle_runs.json.gz")["runs"]
    assert len(runs) == 1000
    recorded = {(run["seed"], run["k"]): run["total"] for run in runs}
    totals = published_reference([s.seed for s in PUBLISHED])
    expected = [[recorded[s.seed, futures] for futures in PUBLISHED_FUTURES] for s in PUBLISHED]
    np.testing.assert_allclose(totals, expected, rtol=0, atol=1e-6)


@pytest.mark.slow
def test_published_means_and_errors_without_golden_files():
    some = PUBLISHED[:6]
    totals = published_reference([s.seed for s in some])
    np.testing.assert_allclose(totals.mean(axis=1), [s.oracle_mean for s in some], rtol=0, atol=0.0501)
    errors = totals.std(axis=1, ddof=1) / 20**0.5
    np.testing.assert_allclose(errors, [s.oracle_se for s in some], rtol=0, atol=0.0501)


def test_published_stream_is_cpythons():
    import random

    source = random.Random(7919 * 25 + 13 + 191)
    drawn = PublishedStream([25], 191, 26).draw(24)
    assert drawn.shape == (1, 6, 27, 210)
    for future in range(191):
        for factor in range(6):
            assert drawn[0, factor, :3, future].tolist() == [source.random() for _ in range(3)]
    assert not drawn[0, :, 3:].any()
    assert not drawn[0, :, :, 191:].any()


def test_dealing_covers_every_live_candidate_once_and_nothing_else():
    rng = np.random.default_rng(0)
    live = rng.random((7, SLOTS)) < 0.1
    live[3] = False
    runs, slots, count = deal(live)
    dealt = {(run, slot) for run, block in zip(runs[:count], slots[:count], strict=True) for slot in block}
    assert dealt == set(zip(*np.nonzero(live), strict=True))
    assert count == sum(-(-row.sum() // slots.shape[1]) for row in live)
    assert len(deal(live, at_once=100)[0]) % 100 == 0


def test_a_reference_depends_on_the_tape_alone():
    tapes = st.stack([st.published_tape(seed) for seed in (1, 25, 112)])
    key = jax.random.key(3)
    mean, error = reference(tapes, key, replications=3, futures=24, chunk=9)
    other = jax.tree.map(lambda leaf: leaf[::-1][:2], tapes)
    again, again_error = reference(other, key, replications=3, futures=24, chunk=4)
    np.testing.assert_allclose(again, mean[::-1][:2], rtol=1e-6)
    np.testing.assert_allclose(again_error, error[::-1][:2], rtol=1e-3)
    assert not np.allclose(reference(other, jax.random.key(4), replications=3, futures=24, chunk=4)[0], again)


@pytest.mark.parametrize("at_once", [1, 4, 512])  # 512 is what a GPU is given
def test_blocks_side_by_side_do_not_matter(at_once, monkeypatch):
    """Sums are taken in another order, so a mean may differ in its last bits: no choice here is that close."""
    tapes = st.stack([st.published_tape(seed) for seed in (1, 25, 112)])

    def figures():
        return reference(tapes, jax.random.key(3), replications=2, futures=24)

    expected = figures()
    monkeypatch.setattr(references, "blocks_at_once", lambda: at_once)
    np.testing.assert_array_equal(figures(), expected)


def test_runs_in_lockstep_by_device(monkeypatch):
    class Gpu:
        platform = "gpu"

        def memory_stats(self):
            return {"bytes_limit": 80 * 10**9}

    assert runs_at_once(200) == references.RUNS_ON_CPU
    monkeypatch.setattr(jax, "local_devices", lambda: [Gpu()])
    assert 1000 < runs_at_once(200) <= 16_384
    assert runs_at_once(20_000) < runs_at_once(2_000)
    assert runs_at_once(2_000) * references.bytes_per_run(2_000) <= 20 * 10**9


def test_threads_share_a_device_where_asked():
    """On the tests' two CPU devices; a GPU's are never shared."""
    used = over_devices(lambda _: jax.numpy.zeros(()).device, range(6), compile_once=True)
    assert used == jax.local_devices()[:1] * 6
    assert over_devices(lambda item: item, range(6)) == list(range(6))


def test_numbers_of_runs_come_with_the_means():
    tapes = st.stack([st.published_tape(seed) for seed in (1, 25)])
    mean, error, runs = reference_runs(tapes, jax.random.key(3), 3, 24, wish=1.0, most_replications=6)
    assert runs.tolist() == [6, 6]
    np.testing.assert_array_equal((mean, error), reference(tapes, jax.random.key(3), replications=6, futures=24))


@pytest.mark.parametrize("futures", [24, 25])
def test_fresh_uniforms_are_those_of_the_run(futures):
    key, week = jax.random.key(3), 20
    ids, replications = np.array([5, 9], np.uint32), np.array([0, 7], np.uint32)
    drawn = np.asarray(references._fresh_uniforms(key, ids, replications, np.uint32(week), futures, 27))
    for i in range(2):
        own = key
        for name in (references._REFERENCE_STREAM, ids[i], replications[i], week):
            own = jax.random.fold_in(own, name)
        np.testing.assert_array_equal(drawn[i, :, : 27 - week], uniforms(own, (6, 27, futures))[:, : 27 - week])
    assert not drawn[:, :, 27 - week :].any()


def test_more_runs_are_added_until_the_error_is_small_enough():
    tapes = st.stack([st.published_tape(25)])
    key = jax.random.key(0)
    counts = []
    _, loose = reference(tapes, key, replications=4, futures=24, chunk=4, progress=counts.append)
    assert sum(counts) == 4
    counts.clear()
    _, error = reference(
        tapes, key, replications=4, futures=24, chunk=4, wish=0.6 * loose[0], most_replications=40,
        progress=counts.append,
    )  # fmt: skip
    assert sum(counts) > 4
    assert error[0] <= 0.6 * loose[0] or sum(counts) >= 40


@pytest.mark.slow
def test_fresh_means_agree_with_the_published_ones():
    """A paired test over the fifty seeds: standardised differences are standard normal."""
    tapes = st.stack([st.published_tape(s.seed) for s in PUBLISHED])
    mean, error = reference(tapes, jax.random.key(0))
    z = (mean - [s.oracle_mean for s in PUBLISHED]) / np.hypot(error, [s.oracle_se for s in PUBLISHED])
    assert abs(z.mean()) * 50**0.5 < 3.3
    assert np.abs(z).max() < 4.5
    assert 0.7 < z.std() < 1.4


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda tapes, key: reference(tapes, key, replications=0), "replications is 0"),
        (lambda tapes, key: reference(tapes, key, futures=0), "futures is 0"),
        (lambda tapes, key: reference(tapes, key, kind="best"), "kind is 'best'"),
        (lambda tapes, key: reference(st.published_tape(1), key), "stack one or more tapes"),
        (lambda tapes, key: policy("paper", 2.5), "futures is 2.5"),
        (lambda tapes, key: published_reference([-1]), "The seed is -1"),
        (lambda tapes, key: published_reference([]), "There is no tape"),
    ],
)
def test_bad_input_gets_a_sentence(call, sentence):
    tapes = st.stack([st.published_tape(1)])
    with pytest.raises(ValueError, match=sentence):
        call(tapes, jax.random.key(0))


def test_the_policy_explains_its_decision_and_lockstep_agrees_in_distribution():
    tape = st.published_tape(25)
    state = st.reset(tape)
    oracle = PaperOracle(futures=64)
    params = st.WorldParams()
    explain = jax.jit(oracle.explain)
    decision = explain(params, oracle.init(params.arrays()), st.observe(state, tape), jax.random.key(0))
    live = np.asarray(decision.candidates.live)
    assert live.sum() == 9  # as in the published runs: 80 units on hand, spot live, qualified to be signed
    means = np.asarray(decision.mean_cost)
    assert np.isfinite(means[live]).all()
    assert np.isinf(means[~live]).all()
    assert int(decision.choice) == int(np.argmin(means))
    assert int(decision.action.qty) == int(decision.candidates.qty[decision.choice])
    assert (np.asarray(decision.standard_error)[live] > 0).all()
    for factor in st.FACTORS:
        assert float(getattr(decision.beliefs, factor).sum()) == pytest.approx(1, abs=1e-5)


@pytest.mark.slow
def test_the_policy_swept_costs_what_its_reference_says():
    tapes = st.stack([st.published_tape(25)] * 24)
    tapes = tapes.replace(id=np.arange(24, dtype=np.uint32))  # another stream for each
    costs = st.evaluate(PaperOracle(futures=100), tapes, jax.random.key(1)).total_cost
    mean, error = reference(st.stack([st.published_tape(25)]), jax.random.key(2), replications=24, futures=100)
    pooled = np.hypot(np.std(costs, ddof=1) / 24**0.5, error[0])
    assert abs(np.mean(costs) - mean[0]) < 4 * pooled
