"""The skill score (docs/rules.md 5)."""

import doctest

import numpy as np
import pytest

import stocktake_jax as st
from stocktake_jax.metrics import skill_score


def test_skill_is_0_at_the_floor_1_at_the_oracle_and_linear():
    assert st.metrics.skill(7000.0, 7000.0, 6000.0) == 0.0
    assert st.metrics.skill(6000.0, 7000.0, 6000.0) == 1.0
    assert st.metrics.skill(6250.0, 7000.0, 6000.0) == 0.75
    assert st.metrics.skill(8000.0, 7000.0, 6000.0) == -1.0
    assert st.metrics.skill(5500.0, 7000.0, 6000.0) == 1.5


def test_skill_of_scalars_is_a_float_and_of_arrays_an_array():
    assert type(st.metrics.skill(1, 2, 1)) is float
    assert type(st.metrics.skill(np.float32(1), np.float32(2), np.float32(1))) is float
    scores = st.metrics.skill(np.float32([1, 2]), 2, 1)
    assert (scores.dtype, scores.tolist()) == (np.float64, [1.0, 0.0])
    assert st.metrics.skill(np.zeros((3, 1)), np.ones(4), np.zeros(4)).shape == (3, 4)


@pytest.mark.parametrize("oracle", [7000.0, 7000.1, np.nan], ids=["no headroom", "negative headroom", "unknown"])
def test_skill_is_nan_without_positive_headroom(oracle):
    assert np.isnan(st.metrics.skill(6900.0, 7000.0, oracle))
    mixed = st.metrics.skill([6900.0, 6900.0], [7000.0, 7000.0], [oracle, 6900.0])
    assert np.isnan(mixed[0])
    assert mixed[1] == 1.0


def test_docstring_holds():
    results = doctest.testmod(skill_score)
    assert results.attempted > 0
    assert results.failed == 0


def published_scores():
    """Scores ``[4 models, 50 seeds]`` of the published costs."""
    seeds = st.published_seeds()
    costs = np.array([list(seed.model_costs.values()) for seed in seeds]).T
    return st.metrics.skill(costs, [seed.floor for seed in seeds], [seed.oracle_mean for seed in seeds])


def test_seed_11_alone_of_the_published_seeds_has_no_scale():
    scores = published_scores()
    assert scores.shape == (4, 50)
    unscored = np.isnan(scores).all(axis=0)
    assert (np.isnan(scores).any(axis=0) == unscored).all()
    assert [seed.seed for seed, out in zip(st.published_seeds(), unscored, strict=True) if out] == [11]


def test_33_of_the_196_published_model_scores_beat_the_oracle():
    scores = published_scores()
    scored = scores[~np.isnan(scores)]
    assert scored.size == 196
    assert (scored > 1).sum() == 33
