"""Recorded random play of the paper's reference implementation, replayed call by call at the desk."""

import pytest

import stocktake_jax as st
from stocktake_jax.reporting import breakdown

LEVERS = {
    "lock": lambda desk, call: desk.lock_freight(call["weeks"]),
    "air": lambda desk, call: desk.expedite_air(call["qty"]),
    "inspect": lambda desk, call: desk.inspect_batch(),
    "brief": lambda desk, call: desk.buy_briefing(),
    "audit": lambda desk, call: desk.buy_audit(),
}
# What a lever's recorded outcome is called.
OUTCOMES = {"lock": "rate", "air": "flown", "brief": "label", "audit": "label"}


def make_call(desk, call):
    """Makes one recorded call and returns what the desk answered."""
    if call["op"] == "step":
        return desk.place_order(
            "Recorded play.", call["qty"], call.get("route"), call.get("supplier"), call.get("contract")
        )
    return LEVERS[call["op"]](desk, call)


def books(desk):
    """Everything that a refusal must leave as it was."""
    return desk.report(), desk.week, desk.total_cost, desk.history.copy(), desk._levers.copy(), desk._calls.copy()


def replay(desk, calls):
    """Replays calls: refused ones must be refused and change nothing, accepted ones be accepted."""
    report = None
    for call in calls:
        if not call["ok"]:
            before = books(desk)
            with pytest.raises(st.Refused):
                make_call(desk, call)
            assert books(desk) == before
            continue
        outcome = make_call(desk, call)
        if call["op"] in OUTCOMES:
            assert outcome == call[OUTCOMES[call["op"]]]
        report = outcome if call["op"] == "step" else report
    return report


def compare_week(recorded, report, desk, codes):
    """Every number of a recorded week against the report and the books after it."""
    costs = recorded["cb"]
    assert report["week"] == recorded["week"]
    expected = {name: cost for name, cost in zip(codes["components"], costs, strict=True) if cost is not None}
    assert set(report["cost_breakdown"]) == set(expected)
    assert report["cost_breakdown"] == pytest.approx(expected, rel=1e-9, abs=1e-9)
    assert desk.history[-1]["cost"] == pytest.approx(recorded["cost"], rel=1e-9)
    assert desk.total_cost == pytest.approx(recorded["total"], rel=1e-9)
    assert report["inventory"] == recorded["inv"]
    assert report["arrived"] == recorded["arrived"]
    assert report["on_order"] == recorded["on_order"]
    assert report["pos_units"] == recorded["demand"]
    assert [
        [
            ship["qty"],
            codes["route_codes"].index(ship["route"]),
            codes["supplier_codes"].index(ship["supplier"]),
            ship["dispatched_week"],
            codes["status_codes"].index(ship["status"]),
            ship["eta"],
        ]
        for ship in report["pipeline"]
    ] == recorded["pipe"]
    assert [
        [
            codes["supplier_codes"].index(contract["supplier"]),
            *(contract[key] for key in ("start_week", "end_week", "unit_price", "otif_floor", "break_fee")),
        ]
        for contract in report["contracts"]
    ] == recorded["con"]
    assert [codes["supplier_codes"].index(name) for name in report["contract_open"]] == recorded["open"]
    lock = report.get("freight_lock")
    assert (lock and [lock["rate"], lock["weeks_left"]]) == recorded["lock"]
    assert report.get("realized_fill") == recorded["fill"]


def test_recorded_episodes_replay(load_golden):
    golden = load_golden("episodes.json.gz")
    assert len(golden["episodes"]) == 60
    for recorded in golden["episodes"]:
        desk = st.Episode(st.published_tape(recorded["seed"]))
        served = 0
        for week in recorded["weeks"]:
            report = replay(desk, week["calls"])
            compare_week(week["out"], report, desk, golden)
            served += report["served"]["unit"]
        assert desk.done
        replay(desk, recorded["post"])
        assert served == recorded["served"]
        assert desk.total_cost == pytest.approx(recorded["total"], rel=1e-9)


def test_breakdown_leaves_out_fees_that_were_not_paid():
    lines = breakdown([0.0] * len(st.COSTS))
    assert list(lines) == [
        "shipping",
        "surcharge",
        "holding",
        "in_transit",
        "stockout",
        "couple",
        "demurrage",
        "rework",
    ]
