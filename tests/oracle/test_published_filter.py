"""The published filter equals the reference implementation's, week by week and state by state."""

import jax
import numpy as np
import pytest

import stocktake_jax as st
from stocktake_jax.chain import Chain
from stocktake_jax.oracle.filters import filter_step, filter_tape


@pytest.mark.parametrize(("float64", "tolerance"), [(True, 1e-9), (False, 1e-5)])
def test_passive_posteriors_equal_the_reference(load_golden, float64, tolerance):
    golden = load_golden("filters.json.gz")["passive"]
    assert len(golden) == 9
    with jax.enable_x64(float64):
        for seed, recorded in golden.items():
            beliefs = filter_tape(st.published_tape(int(seed)), "published")
            for factor in st.FACTORS:
                np.testing.assert_allclose(beliefs[factor], recorded[factor], rtol=0, atol=tolerance)


def test_impossible_evidence_leaves_the_prediction_and_raises_the_flag():
    chain = Chain.from_rows({"up": {"up": 0.9, "down": 0.1}, "down": {"down": 1.0}}).replace(
        probabilities=np.array([[0.9, 0.1], [1.0, 0.0]], np.float32)
    )
    belief = np.array([0.0, 1.0], np.float32)
    posterior, impossible = filter_step(chain, belief, np.array([0.0, -np.inf], np.float32))
    assert impossible
    np.testing.assert_array_equal(posterior, [0.0, 1.0])
    posterior, impossible = filter_step(chain, belief, np.array([0.0, -300.0], np.float32))
    assert not impossible
    np.testing.assert_array_equal(posterior, [0.0, 1.0])


def test_unknown_kind_is_refused_with_a_sentence():
    with pytest.raises(ValueError, match="kind is 'sharp'"):
        filter_tape(st.published_tape(1), "sharp")
