"""The floor against the figures published for it and against recorded weeks (docs/rules.md 3, Floor)."""

import doctest
import functools

import jax
import numpy as np
import pytest

import stocktake_jax as st
from stocktake_jax.policies import base_stock


@functools.cache
def played(float64=True):
    """The floor on the fifty published tapes, in one order of seeds for all tests."""
    tapes = st.stack([st.published_tape(seed.seed) for seed in st.published_seeds()])
    result = st.evaluate(st.policies.floor(), tapes, jax.random.key(0), float64=float64)
    return jax.device_get(result)


def test_order_up_to_level_is_93():
    assert st.policies.floor().order_up_to == 93
    examples = doctest.testmod(base_stock)
    assert examples.attempted > 0
    assert examples.failed == 0


def test_floor_costs_what_was_published_to_the_printed_digit():
    published = [seed.floor for seed in st.published_seeds()]
    assert len(published) == 50
    assert [round(float(cost), 1) for cost in played().total_cost] == published


def test_floor_costs_what_was_recorded(load_golden):
    recorded = load_golden("floors.json")["total"]
    expected = [recorded[str(seed.seed)] for seed in st.published_seeds()]
    np.testing.assert_allclose(played().total_cost, expected, rtol=1e-9)


@pytest.mark.slow
def test_floor_costs_what_was_recorded_on_every_recorded_seed(load_golden):
    recorded = load_golden("floors.json")["total"]
    assert len(recorded) > 200
    tapes = st.stack([st.published_tape(int(seed)) for seed in recorded])
    result = st.evaluate(st.policies.floor(), tapes, jax.random.key(0), float64=True)
    np.testing.assert_allclose(result.total_cost, list(recorded.values()), rtol=1e-9)


def test_floor_in_float32_is_within_five_cents():
    single = played(float64=False)
    assert single.total_cost.dtype == np.float32
    np.testing.assert_allclose(single.total_cost, played().total_cost, rtol=0, atol=0.05)


def test_floor_is_never_refused_and_pulls_no_lever():
    result = played()
    assert not result.refusals.any()
    for lever in ("lock_weeks", "air", "inspect", "briefing", "audit"):
        assert not getattr(result.actions, lever).any()


def test_floor_signs_qualified_once_and_orders_from_it_by_suez():
    actions = played().actions
    signed = actions.contract_action == st.CONTRACT_ACTIONS.index("sign")
    assert signed[:, 0].all()
    assert not signed[:, 1:].any()
    assert (actions.contract_supplier == st.SUPPLIERS.index("qualified")).all()
    assert (actions.supplier == st.SUPPLIERS.index("qualified")).all()
    assert (actions.route == st.ROUTES.index("suez")).all()
    assert not actions.contract_terms.any()


def desk_floor(seed):
    """The floor at the desk, by the report alone: orders and reports, week by week."""
    desk, report, orders = st.Episode(st.published_tape(seed)), None, []
    while not desk.done:
        report = desk.report()
        qty = min(max(93 - report["inventory_position"], 0), 100)
        live = {contract["supplier"] for contract in report["contracts"]}
        contract = None if "qualified" in live else {"action": "sign", "supplier": "qualified"}
        orders.append(qty)
        desk.place_order("Order up to 93.", qty, "suez", "qualified", contract)
    return orders, [*(week["report"] for week in desk.history[1:]), desk.report()], desk


def test_weeks_of_the_floor_are_the_recorded_ones(load_golden):
    recorded = load_golden("floors.json")
    assert recorded["order_up_to"] == 93
    assert len(recorded["weekly"]) == 9
    for seed, weekly in recorded["weekly"].items():
        orders, reports, desk = desk_floor(int(seed))
        assert orders == weekly["qty"]
        for key in ("inventory", "on_order", "arrived"):
            assert [report[key] for report in reports] == weekly[key], (seed, key)
        for line in recorded["components"]:
            shown = [report["cost_breakdown"].get(line) for report in reports]
            assert [cost is None for cost in shown] == [cost is None for cost in weekly[line]], (seed, line)
            assert [cost or 0.0 for cost in shown] == pytest.approx([cost or 0.0 for cost in weekly[line]], abs=1e-9)
        assert all(set(report["cost_breakdown"]) <= set(recorded["components"]) for report in reports)
        assert [week["cost"] for week in desk.history] == pytest.approx(weekly["cost"], abs=1e-9)
        assert desk.total_cost == pytest.approx(recorded["total"][seed], rel=1e-9)
        served = sum(report["served"]["unit"] for report in reports)
        assert served / sum(report["pos_units"] for report in reports) == pytest.approx(weekly["fill_rate"], rel=1e-9)


def test_desk_and_sweep_play_the_floor_alike():
    seeds = [seed.seed for seed in st.published_seeds()]
    for seed in (11, 170):
        orders, _, desk = desk_floor(seed)
        row = seeds.index(seed)
        assert played().actions.qty[row].tolist() == orders
        assert played().costs[row].sum(axis=-1) == pytest.approx([week["cost"] for week in desk.history], rel=1e-12)
        assert played().total_cost[row] == pytest.approx(desk.total_cost, rel=1e-12)
