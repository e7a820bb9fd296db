"""The surrogate equals the reference implementation's, candidate by candidate and future by future."""

import jax
import numpy as np
import pytest

import stocktake_jax as st
from stocktake_jax.oracle.futures import describe
from stocktake_jax.oracle.menu import SLOTS, Candidates
from stocktake_jax.oracle.surrogate import Books, Z, pipeline, rollout_costs

HORIZON, SHIPS = 26, 32
PARAMS = st.WorldParams()


@jax.jit
def costs_of(params, known, candidates, states):
    params = params.arrays()
    futures = describe(params, states, known.weeks_left, Z)
    return rollout_costs(params, known, pipeline(params, known, futures), candidates, futures)


def known_books(point):
    ships = np.zeros((2, SHIPS), np.int32)
    for slot, (qty, eta) in enumerate(point["pipeline"]):
        ships[:, slot] = qty, eta - point["week"] - 1
    return Books(
        weeks_left=np.int32(HORIZON - point["week"]),
        stock=np.int32(point["inventory"]),
        on_order=ships[0].sum(dtype=np.int32),
        ship_qty=ships[0],
        ship_due=ships[1],
        contracted=np.isin(np.arange(3), point["contracted"]),
    )


def candidates_of(rows):
    table = np.zeros((SLOTS, 7), np.int32)
    table[: len(rows)] = [[0 if value is None else value for value in row] for row in rows]
    qty, route, supplier, sign, lock, air, inspect = table.T
    return Candidates(
        qty=qty, route=route, supplier=supplier, sign=sign == 1, lock_weeks=4 * lock, air=air, inspect=inspect == 1,
        live=np.arange(SLOTS) < len(rows),
    )  # fmt: skip


def states_of(trajectories):
    """Whole-horizon states ``[weeks, k]`` by factor; weeks past the horizon hold garbage on purpose."""
    states = {}
    for factor in st.FACTORS:
        paths = np.full((HORIZON, len(trajectories)), 3, np.int32)
        for k, trajectory in enumerate(trajectories):
            paths[: len(trajectory[factor]), k] = trajectory[factor]
        states[factor] = paths
    return states


@pytest.mark.parametrize(("float64", "tolerance"), [(True, 1e-6), (False, 5e-2)])
def test_every_candidate_costs_what_it_did(load_golden, float64, tolerance):
    golden = load_golden("surrogate.json.gz")
    columns = ["qty", "route", "supplier", "sign_qualified", "lock_freight", "air_qty", "inspect"]
    assert golden["candidate_columns"] == columns
    assert len(golden["points"]) == 30
    with jax.enable_x64(float64):
        for point in golden["points"]:
            candidates = candidates_of(point["candidates"])
            costs = costs_of(PARAMS, known_books(point), candidates, states_of(point["trajectories"]))
            listed = np.asarray(costs)[: len(point["candidates"])]
            np.testing.assert_allclose(listed, point["costs"], rtol=0, atol=tolerance)
