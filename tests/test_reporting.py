"""The weekly report: exactly the fields of docs/rules.md 2.2, ready for JSON, and no word of what is hidden."""

import functools
import json
import re

import jax
import numpy as np
import pytest

import stocktake_jax as st
from stocktake_jax.factors import MODULES
from tests import lanes

FIELDS = {
    *("week", "inventory", "on_order", "inventory_position", "arrived", "components", "served", "pipeline"),
    *("cost_breakdown", "contracts", "contract_open", "term_menu", "suez_count", "bab_count", "cape_count"),
    *("bulletin", "suppliers", "pos_units", "demand_forecast", "freight_index", "freight_outlook", "berth_wait"),
    *("wait_outlook", "aql_result"),
}
AT_TIMES = {"freight_lock", "realized_fill", "briefing", "audit"}
WHOLE = {
    *("week", "inventory", "on_order", "inventory_position", "arrived", "suez_count", "bab_count", "cape_count"),
    *("pos_units", "demand_forecast", "freight_index", "freight_outlook", "berth_wait", "wait_outlook"),
}
SHIP = {"qty", "route", "supplier", "component", "dispatched_week", "status", "eta"}
CONTRACT = {"supplier", "start_week", "end_week", "unit_price", "otif_floor", "break_fee"}
LINES = ["shipping", "surcharge", "holding", "in_transit", "stockout", "couple", "demurrage", "rework"]
FEES = ["briefing", "audit", "air", "inspect", "dual_source"]
QUALIFIED = {
    **{"id": "qualified", "otif": 99, "lead_days": 14, "band": "ontime", "onboard_lead": 0, "unit_delta": 1.0},
    "unit_premium": 1.0,
}
SPOT = {
    **{"id": "spot", "otif": 98, "lead_days": 14, "band": "ontime", "onboard_lead": 0, "unit_delta": -1.5},
    **{"unit_discount": 1.5, "realized_lead_slip": 0.0},
}
BACKUP = {"id": "backup", "otif": 95, "lead_days": 16, "band": "ontime", "onboard_lead": 1, "unit_delta": 0.3}


@functools.cache
def seasons(reveals):
    """The reports of random play: a list of weeks for each of some episodes."""
    levers = lanes.LEVERS if reveals else ("lock_weeks", "air", "inspect")
    actions = lanes.random_actions(np.random.default_rng(12), levers=levers)
    observations = lanes.play(lanes.mint(), actions)[2]
    return [[st.report(lanes.lane(week, i)) for week in observations] for i in range(0, lanes.LANES, 3)]


@functools.cache
def opening(**changes):
    tape = lanes.quiet_tape(**changes)
    return st.report(st.observe(st.reset(tape), tape))


def every_report(reveals=True):
    return [report for season in seasons(reveals) for report in season]


# Shape.


def test_opening_report_in_full():
    assert opening() == {
        **{"week": 0, "inventory": 80, "on_order": 0, "inventory_position": 80, "arrived": 0},
        "components": {"unit": {"on_hand": 80, "on_order": 0, "inventory_position": 80, "arrived": 0}},
        "served": {"unit": 0},
        "pipeline": [],
        "cost_breakdown": {},
        "contracts": [
            {
                **{"supplier": "spot", "start_week": 0, "end_week": None},
                **{"unit_price": 4.0, "otif_floor": 85, "break_fee": 10.0},
            }
        ],
        "contract_open": [],
        "term_menu": ["short", "long", "strict", "lenient"],
        **{"suez_count": 70, "bab_count": 70, "cape_count": 60},
        "bulletin": opening()["bulletin"],
        "suppliers": [QUALIFIED, SPOT, BACKUP],
        **{"pos_units": 20, "demand_forecast": 20, "freight_index": 100, "freight_outlook": 100},
        **{"berth_wait": 1, "wait_outlook": 1, "aql_result": "accept"},
    }
    assert isinstance(opening()["bulletin"], str)


def test_every_report_has_the_fields_of_the_rules_and_no_others():
    seen = set()
    for report in every_report():
        assert set(report) >= FIELDS
        assert set(report) <= FIELDS | AT_TIMES
        seen |= set(report)
        assert all(set(ship) == SHIP for ship in report["pipeline"])
        assert all(set(contract) == CONTRACT for contract in report["contracts"])
        assert [set(row) for row in report["suppliers"]] == [set(QUALIFIED), set(SPOT), set(BACKUP)]
        assert set(report["components"]) == set(report["served"]) == {"unit"}
        assert set(report["components"]["unit"]) == {"on_hand", "on_order", "inventory_position", "arrived"}
    assert seen == FIELDS | AT_TIMES


def test_values_are_plain_and_of_one_type_each():
    for report in every_report():
        assert json.loads(json.dumps(report, allow_nan=False)) == report
        assert all(type(report[name]) is int for name in WHOLE)
        assert all(type(cost) is float for cost in report["cost_breakdown"].values())
        assert all(type(ship[name]) is int for ship in report["pipeline"] for name in ("qty", "eta", "dispatched_week"))


def test_components_repeat_the_totals():
    for report in every_report():
        unit = report["components"]["unit"]
        assert unit["on_hand"] == report["inventory"]
        assert all(unit[name] == report[name] for name in ("on_order", "inventory_position", "arrived"))
        assert report["inventory_position"] == report["inventory"] + report["on_order"]
        assert report["on_order"] == sum(ship["qty"] for ship in report["pipeline"])


def test_breakdown_lists_eight_lines_every_week_and_fees_when_paid():
    paid = set()
    for season in seasons(True):
        assert season[0]["cost_breakdown"] == {}
        for report in season[1:]:
            lines = list(report["cost_breakdown"])
            assert lines[:8] == LINES
            assert lines[8:] == [fee for fee in FEES if fee in lines]
            assert all(report["cost_breakdown"][fee] > 0 for fee in lines[8:])
            paid |= set(lines[8:])
    assert paid == set(FEES)
    assert list(st.COSTS) == LINES + FEES


def test_nothing_to_pay_is_listed_as_zero():
    tape = lanes.quiet_tape()
    state, _ = st.step(st.reset(tape), st.Action(), tape)
    assert st.report(st.observe(state, tape))["cost_breakdown"] == dict.fromkeys(LINES, 0.0) | {"holding": 60.0}


# Ships and contracts.


def test_ships_are_listed_by_week_of_dispatch_until_they_land():
    for season in seasons(True):
        for report in season:
            weeks = [ship["dispatched_week"] for ship in report["pipeline"]]
            assert weeks == sorted(set(weeks))
            assert all(0 < week <= report["week"] for week in weeks)
            assert all(ship["component"] == "unit" and ship["qty"] > 0 for ship in report["pipeline"])
            assert all(ship["eta"] > report["week"] for ship in report["pipeline"])


def test_contracts_are_listed_as_signed_and_open_ones_by_supplier_in_that_order():
    twice = beside_a_live_one = 0
    for report in every_report():
        starts = [contract["start_week"] for contract in report["contracts"]]
        assert starts == sorted(starts)
        dead = report["suppliers"][1]["band"] == "defunct"
        is_open = [
            (c["end_week"] is not None and c["end_week"] <= report["week"]) or (dead and c["supplier"] == "spot")
            for c in report["contracts"]
        ]
        names = [c["supplier"] for c, open_ in zip(report["contracts"], is_open, strict=True) if open_]
        live = [c["supplier"] for c, open_ in zip(report["contracts"], is_open, strict=True) if not open_]
        assert report["contract_open"] == names
        twice += len(set(names)) < len(names)
        beside_a_live_one += bool(set(names) & set(live))
    assert min(twice, beside_a_live_one) > 10


# Suppliers.


@pytest.mark.parametrize(
    ("state", "band", "otif", "lead"),
    [
        *(("reliable", "ontime", 98, 14), ("wobbling", "ontime", 96, 15), ("degraded:0", "ontime", 96, 15)),
        *(("degraded:1", "slipping", 86, 19), ("degraded:2", "slipping", 86, 19), ("degraded:3", "slipping", 86, 19)),
        ("defunct", "defunct", None, None),
    ],
)
def test_spot_is_shown_by_its_flattering_scorecard(state, band, otif, lead):
    tape = lanes.quiet_tape(supplier={0: state}, lead_slip={0: 37})
    rows = st.report(st.observe(st.reset(tape), tape))["suppliers"]
    assert rows == [
        QUALIFIED,
        SPOT | {"band": band, "otif": otif, "lead_days": lead, "realized_lead_slip": 3.7},
        BACKUP,
    ]


# Symptoms.


@pytest.mark.parametrize(
    ("states", "counts"),
    [
        (("calm",), (70, 70, 60)),
        (("watch",), (63, 63, 60)),
        (("false_alarm", "short:0", "long:0"), (28, 25, 66)),
        (("short:1",), (0, 0, 72)),
        (("long:persist",), (14, 10, 96)),
        (("recovery:0", "recovery:1", "recovery:2"), (56, 56, 69)),
    ],
)
def test_counts_and_bulletin_are_those_of_the_band(states, counts):
    bulletins = set()
    for state in states:
        for coin in (0, 1):
            tape = lanes.quiet_tape(canal={0: state}, cape_congestion={0: coin})
            report = st.report(st.observe(st.reset(tape), tape))
            shown = (report["suez_count"], report["bab_count"], report["cape_count"])
            assert shown == (*counts[:2], counts[2] + 21 * coin)
            bulletins.add(report["bulletin"])
    assert len(bulletins) == 1


def test_bulletins_differ_by_band_and_name_no_duration_or_chance():
    bulletins = {report["bulletin"] for report in every_report()}
    assert len(bulletins) == 6
    for text in bulletins:
        assert not re.search(r"\d|%|\b(week|day|month|likely|chance|probab|short|long|temporary)", text), text


@pytest.mark.parametrize(
    ("steps", "index"), [(10_000, 100), (12_345, 123), (12_350, 124), (12_450, 125), (1_000, 10), (40_055, 401)]
)
def test_freight_index_is_the_rounded_multiplier(steps, index):
    tape = lanes.quiet_tape(freight_multiplier={0: steps}, freight_outlook={0: steps})
    with jax.enable_x64(True):
        report = st.report(st.observe(st.reset(tape), tape))
    assert (report["freight_index"], report["freight_outlook"]) == (index, index)
    # The double 1.245 is a little above, so 100 times it is no tie; 1.235 comes out at one.
    assert index == round(100 * (steps / 10_000))


def test_readings_are_the_tapes_own():
    readings = {"pos_units": 31, "demand_forecast": 9, "berth_wait": 17, "wait_outlook": 4}
    report = opening_with(**readings)
    assert {name: report[name] for name in readings} == readings
    assert [opening_with(aql_result=i)["aql_result"] for i in range(3)] == ["accept", "marginal", "reject"]


def opening_with(**readings):
    tape = lanes.quiet_tape(**{name: {0: value} for name, value in readings.items()})
    return st.report(st.observe(st.reset(tape), tape))


def test_demand_is_shown_in_full_and_served_as_far_as_stock_went():
    tape = lanes.quiet_tape(pos_units={1: 95})
    state, _ = st.step(st.reset(tape), st.Action(), tape)
    report = st.report(st.observe(state, tape))
    assert (report["pos_units"], report["served"], report["inventory"]) == (95, {"unit": 80}, 0)
    assert report["cost_breakdown"]["stockout"] == 20.0 * 15


# Fields that come and go.


def test_freight_lock_is_shown_while_it_is_live():
    tape = lanes.quiet_tape(freight_multiplier={0: 17_321})
    state, shown = st.reset(tape), []
    for week in range(4):
        state, _ = st.step(state, st.Action(lock_weeks=3 if week == 0 else 0), tape)
        shown.append(st.report(st.observe(state, tape)).get("freight_lock"))
    assert shown == [{"rate": 1.7321, "weeks_left": 2}, {"rate": 1.7321, "weeks_left": 1}, None, None]


def test_realized_fill_is_the_drawn_fill_after_any_order_from_spot():
    tape = lanes.quiet_tape(fill={1: 0, 2: 4, 3: 57})
    state, shown = st.reset(tape), []
    sign = {"contract_action": 1, "contract_supplier": 2}
    for order in ({"qty": 50, "supplier": 1}, {"qty": 3, "supplier": 1}, {"qty": 0, "supplier": 1}, {"qty": 5}):
        state, result = st.step(state, st.Action(**order | sign | {"supplier": order.get("supplier", 2)}), tape)
        report = st.report(st.observe(state, tape))
        shown.append((report.get("realized_fill"), int(result.shipped)))
    # Not shipped / ordered: round(3 * 0.04) is 0.
    assert shown == [(0.0, 0), (0.04, 0), (None, 0), (None, 5)]


# What is hidden.

# A report may say of the supplier that it is defunct, and offers short and long terms.
OPENLY_SAID = {"defunct", "short", "long"}


@functools.cache
def secrets():
    """Finds any word of the hidden world that stands by itself."""
    words = {label for module in MODULES.values() for label in module.LAYOUT.labels}
    words |= {regime for module in MODULES.values() for regime in module.LAYOUT.regimes}
    words |= {"regime", "state", "states", "age", "seed", "true_band", "stress", "cape_congestion", "jump"}
    longest_first = sorted(words - OPENLY_SAID, key=len, reverse=True)
    return re.compile(r"(?<![\w:])(" + "|".join(map(re.escape, longest_first)) + r")(?![\w:])")


def told(text):
    return set(secrets().findall(text))


def test_search_finds_what_it_should():
    assert told('{"canal": "false_alarm"}') == {"false_alarm"}
    assert told('["in_control", "spike:3", "degraded"]') == {"in_control", "spike:3", "degraded"}
    assert told('{"age": 3, "seed": 5}') == {"age", "seed"}
    assert told("It is unclear whether ships queue normally; watchful calmness.") == set()


def test_no_report_names_a_hidden_state():
    reports = every_report(reveals=False)
    assert len(reports) > 1000
    for report in reports:
        assert told(json.dumps(report)) == set()
        assert not {"briefing", "audit"} & set(report)


def test_only_bought_reveals_name_hidden_states():
    reveals = set()
    for report in every_report():
        bought = {name: report[name] for name in ("briefing", "audit") if name in report}
        rest = {name: value for name, value in report.items() if name not in bought}
        assert told(json.dumps(rest)) == set()
        assert set(bought) == {"briefing", "audit"} & set(report["cost_breakdown"])
        reveals |= set(bought.values())
    assert reveals >= {"watch", "false_alarm", "short", "long", "recovery", "slipping", "failing"}
