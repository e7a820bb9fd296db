"""Sampled futures walk the very chains that tapes are minted from."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stocktake_jax as st
from stocktake_jax.oracle.futures import DRAW_ORDER, _step, sample_states

WEEKS = 8


@pytest.mark.parametrize("float64", [False, True])
@pytest.mark.parametrize("name", st.FACTORS)
def test_a_step_of_many_futures_is_the_chains_own(name, float64):
    """From every state, with uniforms that sit on the very probabilities among them."""
    with jax.enable_x64(float64):
        chain, rng = getattr(st.WorldParams().arrays(), name).chain, np.random.default_rng(0)
        edges = np.ravel(chain.cumulative(chain.probabilities.dtype))
        u = np.concatenate([rng.random(200).astype(edges.dtype), edges[edges < 1], np.nextafter(edges, 0)])
        states = np.arange(len(chain.layout.labels), dtype=np.int32).repeat(len(u))
        u = np.tile(u, len(chain.layout.labels))
        after = jax.jit(lambda chain, states, u: _step(chain, states, u))(chain, states, u)
        np.testing.assert_array_equal(after, jax.jit(jax.vmap(chain.step))(states, u))
        assert set(np.asarray(after)) == {to for row in chain.layout.successors for to in row}


def test_weeks_past_the_horizon_are_left_alone():
    params = st.WorldParams().arrays()
    beliefs = st.oracle.prior(params)
    uniforms = jnp.full((len(DRAW_ORDER), 1 + WEEKS, 2), 0.99, jnp.float32)
    some, all_weeks = (sample_states(params, beliefs, uniforms, np.int32(weeks)) for weeks in (3, WEEKS))
    for name in DRAW_ORDER:
        np.testing.assert_array_equal(some[name][:3], all_weeks[name][:3])
        assert not np.asarray(some[name][3:]).any()
