"""The desk: what it refuses and how it says so, and that a refused call changes nothing (docs/rules.md 2)."""

import copy
import json
import math
import random
import threading
from decimal import Decimal
from types import MappingProxyType

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stocktake_jax as st
from tests import lanes

R = st.Refusal
OPEN = {w: "defunct" for w in range(27)}


@pytest.fixture
def desk():
    return st.Episode(lanes.quiet_tape())


def wait(desk, weeks=1):
    for _ in range(weeks):
        report = desk.place_order("Wait.", 0)
    return report


def refusal(call, *arguments, **named):
    with pytest.raises(st.Refused) as caught:
        call(*arguments, **named)
    return caught.value


def sign(supplier="backup", **terms):
    return {"action": "sign", "supplier": supplier, **terms}


# Refusals and their sentences.

NOT_WHOLE = [True, False, 3.5, 20.0, "20", None, math.nan, math.inf, np.float64(3), np.bool_(True), Decimal(3), [3]]


def shown(value):
    return "missing" if value is None else repr(value)


@pytest.mark.parametrize("weeks", [*NOT_WHOLE, 0, -1, -(10**12), 10**12], ids=repr)
def test_lock_takes_a_whole_number_of_weeks_from_1(desk, weeks):
    refused = refusal(desk.lock_freight, weeks)
    assert refused.code is R.LOCK_WEEKS
    assert f"weeks is {shown(weeks)};" in str(refused)
    assert "whole number of weeks" in str(refused)
    assert " 1" in str(refused)


@pytest.mark.parametrize("qty", [*NOT_WHOLE, 0, -1, -(10**12)], ids=repr)
def test_air_takes_a_whole_number_of_units_from_1(desk, qty):
    refused = refusal(desk.expedite_air, qty)
    assert refused.code is R.AIR
    assert f"qty is {shown(qty)};" in str(refused)
    assert "whole number of units, at least 1" in str(refused)
    assert "above 20 it is cut" in str(refused)


@pytest.mark.parametrize("qty", [*NOT_WHOLE, -1, 101, 10**12, -(10**30)], ids=repr)
def test_order_takes_a_whole_number_of_units_from_0_to_100(desk, qty):
    refused = refusal(desk.place_order, "Order.", qty, "suez", "spot")
    assert refused.code is R.QTY
    assert f"qty is {shown(qty)};" in str(refused)
    assert "whole number of units from 0 to 100" in str(refused)


@pytest.mark.parametrize("rationale", ["", " ", "\n\t ", None, 5, b"text", ["text"]], ids=repr)
def test_order_takes_a_rationale_in_words(desk, rationale):
    refused = refusal(desk.place_order, rationale, 0)
    assert refused.code is R.RATIONALE
    assert f"rationale is {shown(rationale)};" in str(refused)
    assert "in words" in str(refused)


@pytest.mark.parametrize("route", [None, "", "air", "Suez", "suez ", 0, True, ["suez"]], ids=repr)
def test_order_takes_a_known_route(desk, route):
    refused = refusal(desk.place_order, "Order.", 10, route, "spot")
    assert refused.code is R.ROUTE
    assert f"route is {shown(route)};" in str(refused)
    assert "suez or cape" in str(refused)


@pytest.mark.parametrize("supplier", [None, "", "Spot", "unit", 1, ("spot",)], ids=repr)
def test_order_takes_a_known_supplier(desk, supplier):
    refused = refusal(desk.place_order, "Order.", 10, "suez", supplier)
    assert refused.code is R.SUPPLIER
    assert f"supplier is {shown(supplier)};" in str(refused)
    assert "qualified, spot or backup" in str(refused)


@pytest.mark.parametrize("supplier", ["qualified", "backup"])
def test_order_takes_a_supplier_with_a_live_contract(desk, supplier):
    refused = refusal(desk.place_order, "Order.", 10, "suez", supplier)
    assert refused.code is R.NO_CONTRACT
    assert f"no live contract with '{supplier}'" in str(refused)
    assert "order from spot, or sign one" in str(refused)


def test_refusal_for_want_of_a_contract_names_every_live_supplier(desk):
    desk.place_order("Sign.", 0, contract=sign("qualified"))
    assert "order from qualified or spot" in str(refusal(desk.place_order, "Order.", 10, "suez", "backup"))


@pytest.mark.parametrize(
    ("contract", "code", "said"),
    [
        ({}, R.CONTRACT_ACTION, "contract action is missing;"),
        ({"supplier": "backup"}, R.CONTRACT_ACTION, "contract action is missing;"),
        ({"action": "cancel", "supplier": "backup"}, R.CONTRACT_ACTION, "contract action is 'cancel';"),
        ({"action": "Sign", "supplier": "backup"}, R.CONTRACT_ACTION, "sign, switch, renew or lapse"),
        ({"action": 1, "supplier": "backup"}, R.CONTRACT_ACTION, "contract action is 1;"),
        ({"action": ["sign"], "supplier": "backup"}, R.CONTRACT_ACTION, "contract action is ['sign'];"),
        ({"action": "sign"}, R.CONTRACT_SUPPLIER, "contract supplier is missing;"),
        ({"action": "sign", "supplier": "acme"}, R.CONTRACT_SUPPLIER, "contract supplier is 'acme';"),
        ({"action": "lapse", "supplier": "acme"}, R.CONTRACT_SUPPLIER, "qualified, spot or backup"),
        ({"action": "lapse"}, R.CONTRACT_SUPPLIER, "contract supplier is missing;"),
        (sign(terms="weekly"), R.CONTRACT_TERMS, "contract terms are 'weekly';"),
        (sign(terms=""), R.CONTRACT_TERMS, "none, short, long, strict or lenient"),
        (sign(terms=0), R.CONTRACT_TERMS, "contract terms are 0;"),
        ({"action": "lapse", "supplier": "spot", "terms": "weekly"}, R.CONTRACT_TERMS, "contract terms are 'weekly';"),
        (sign(weeks=8), R.CONTRACT, "'weeks': 8"),
        (["sign", "backup"], R.CONTRACT, "contract is ['sign', 'backup'];"),
        ("sign backup", R.CONTRACT, "contract is 'sign backup';"),
        (3, R.CONTRACT, "action, supplier and, if any, terms"),
        (False, R.CONTRACT, "contract is False;"),
    ],
    ids=str,
)
def test_contract_takes_an_object_of_known_words(desk, contract, code, said):
    refused = refusal(desk.place_order, "Deal.", 0, contract=contract)
    assert refused.code is code
    assert said in str(refused)


def test_every_refusal_is_one_of_the_tests_above_or_the_end():
    assert {code.name for code in R} == {
        *("ACCEPTED", "OVER", "LOCK_WEEKS", "AIR", "CONTRACT_ACTION", "CONTRACT_SUPPLIER", "CONTRACT_TERMS"),
        *("QTY", "ROUTE", "SUPPLIER", "NO_CONTRACT", "RATIONALE", "CONTRACT"),
    }
    assert issubclass(st.Refused, ValueError)


def test_long_mistake_is_cut_short(desk):
    assert len(str(refusal(desk.place_order, "Order.", 10, "s" * 10_000, "spot"))) < 200


def test_braces_in_a_mistake_are_only_text(desk):
    assert "route is '{value} {0}';" in str(refusal(desk.place_order, "Order.", 10, "{value} {0}", "spot"))


# A refused call changes nothing.

REFUSED = [
    ("lock_freight", (0,), {}),
    ("lock_freight", (10**12,), {}),
    ("expedite_air", (-1,), {}),
    ("place_order", ("", 0), {}),
    ("place_order", ("Order.", 101, "suez", "spot"), {"contract": sign()}),
    ("place_order", ("Order.", 10, "air", "spot"), {"contract": sign()}),
    ("place_order", ("Order.", 10, "suez", "acme"), {"contract": sign("qualified")}),
    ("place_order", ("Order.", 10, "suez", "qualified"), {"contract": sign("backup")}),
    ("place_order", ("Order.", 10, "suez", "backup"), {"contract": {"action": "lapse", "supplier": "backup"}}),
    ("place_order", ("Order.", 10, "suez", "spot"), {"contract": {"action": "stop", "supplier": "spot"}}),
    ("place_order", ("Order.", 10, "suez", "spot"), {"contract": sign("acme")}),
    ("place_order", ("Order.", 10, "suez", "spot"), {"contract": sign(terms="weekly")}),
    ("place_order", ("Order.", 10, "suez", "spot"), {"contract": 5}),
]


def in_the_middle():
    """A desk in week 5 with ships, an open and a live contract, and all five levers pulled."""
    desk = st.Episode(lanes.quiet_tape(fill={2: 60}))
    desk.place_order("Sign.", 20, "suez", "spot", sign("backup", terms="short"))
    desk.place_order("Order.", 20, "cape", "spot")
    desk.lock_freight(9)
    wait(desk, 3)
    desk.lock_freight(4)
    desk.expedite_air(7)
    desk.inspect_batch()
    desk.buy_briefing()
    desk.buy_audit()
    return desk


def everything(desk):
    """All that a desk holds, copied."""
    constants = ("_params", "_tape", "_rows", "_device_params", "_device_rows", "_unpack")
    held = {name: value for name, value in vars(desk).items() if name not in constants}
    return copy.deepcopy(jax.device_get(held)) | {"reads": desk.report(), "week": desk.week, "done": desk.done}


def assert_same(one, other):
    jax.tree.map(np.testing.assert_array_equal, one, other)


@pytest.mark.parametrize("call", REFUSED, ids=str)
def test_refused_call_changes_nothing(call):
    desk = in_the_middle()
    before = everything(desk)
    name, arguments, named = call
    refusal(getattr(desk, name), *arguments, **named)
    assert_same(everything(desk), before)


def test_season_with_refused_calls_is_the_season_without_them():
    clean, tried = in_the_middle(), in_the_middle()
    for desk in (clean, tried):
        while not desk.done:
            if desk is tried:
                for name, arguments, named in REFUSED:
                    refusal(getattr(desk, name), *arguments, **named)
            desk.place_order("Order.", 15, "suez", "spot")
    assert tried.report() == clean.report()
    assert tried.history == clean.history
    assert tried.total_cost == clean.total_cost


def test_levers_pulled_before_a_refused_order_stay_pulled():
    desk = in_the_middle()
    refusal(desk.place_order, "Order.", 10, "suez", "backup")
    report = wait(desk)
    lines = report["cost_breakdown"]
    assert [lines[name] for name in ("briefing", "audit", "air", "inspect")] == [30.0, 25.0, 105.0, 40.0]
    assert report["freight_lock"]["weeks_left"] == 3


# What is accepted.


@pytest.mark.parametrize("kind", [int, np.int64, np.int32, np.uint8], ids=lambda kind: kind.__name__)
def test_any_whole_number_type_is_accepted(desk, kind):
    assert desk.lock_freight(kind(2)) == 1.0
    assert desk.expedite_air(kind(3)) == 3
    report = desk.place_order("Order.", kind(10), "suez", "spot")
    assert report["on_order"] == 10
    json.dumps(desk.history)


def test_bounds_themselves_are_accepted(desk):
    assert desk.lock_freight(2**31 - 1) == 1.0
    assert desk.expedite_air(10**30) == 20
    assert desk.place_order("x", 100, "cape", "spot")["freight_lock"]["weeks_left"] == 2**31 - 2
    assert desk.place_order("x", 0)["on_order"] == 100


def test_route_and_supplier_are_ignored_when_nothing_is_ordered(desk):
    assert desk.place_order("Wait.", 0, "air", "acme")["week"] == 1


def test_supplier_signed_in_the_same_call_can_be_sourced_in_it(desk):
    report = desk.place_order("Sign and order.", 10, "suez", "backup", sign(terms="strict"))
    assert (report["on_order"], report["pipeline"][0]["supplier"]) == (10, "backup")
    assert report["contracts"][1] == {
        **{"supplier": "backup", "start_week": 0, "end_week": 8},
        **{"unit_price": 4.12, "otif_floor": 92, "break_fee": 10.0},
    }


@pytest.mark.parametrize("action", ["sign", "switch", "renew"])
def test_sign_switch_and_renew_are_one_act(action):
    contracts = []
    for name in ("sign", action):
        desk = st.Episode(lanes.quiet_tape())
        desk.place_order("Deal.", 0, contract={"action": name, "supplier": "backup", "terms": "long"})
        contracts.append(desk.report()["contracts"])
    assert contracts[0] == contracts[1]


@pytest.mark.parametrize(
    "contract",
    [sign(), sign(terms=None), sign(terms="none"), MappingProxyType(sign())],
    ids=["left out", "None", "none", "any mapping"],
)
def test_terms_may_be_left_out(desk, contract):
    report = desk.place_order("Sign.", 0, contract=contract)
    assert report["contracts"][1]["end_week"] == 8
    assert report["contracts"][1]["unit_price"] == 4.0


@pytest.mark.parametrize(
    ("terms", "weeks", "price", "floor", "fee"),
    [
        *((None, 8, 4.00, 85, 10.0), ("short", 4, 3.88, 80, 5.0), ("long", 12, 4.24, 85, 20.0)),
        *(("strict", 8, 4.12, 92, 10.0), ("lenient", 8, 3.80, 70, 10.0)),
    ],
)
def test_contract_serves_as_many_decisions_as_its_terms_say(desk, terms, weeks, price, floor, fee):
    wait(desk, 2)
    contract = desk.place_order("Sign.", 1, "suez", "backup", sign(terms=terms))["contracts"][1]
    assert contract == {
        **{"supplier": "backup", "start_week": 2, "end_week": 2 + weeks},
        **{"unit_price": price, "otif_floor": floor, "break_fee": fee},
    }
    for _ in range(weeks - 1):
        desk.place_order("Order.", 1, "suez", "backup")
    assert desk.week == 2 + weeks
    assert refusal(desk.place_order, "Order.", 1, "suez", "backup").code is R.NO_CONTRACT
    assert desk.report()["contract_open"] == ["backup"]


@pytest.mark.parametrize("terms", st.TERMS)
def test_qualified_is_evergreen_whatever_the_terms(desk, terms):
    report = desk.place_order("Sign.", 0, contract=sign("qualified", terms=terms))
    assert report["contracts"][1]["end_week"] is None


def test_signing_a_live_supplier_leaves_two_contracts_and_an_open_one_is_replaced(desk):
    desk.place_order("Sign.", 0, contract=sign(terms="short"))
    desk.place_order("Sign again.", 0, contract=sign(terms="long"))
    assert [c["end_week"] for c in desk.report()["contracts"]] == [None, 4, 13]
    wait(desk, 2)
    assert desk.report()["contract_open"] == ["backup"]
    desk.place_order("Renew.", 0, contract={"action": "renew", "supplier": "backup", "terms": "short"})
    assert [c["end_week"] for c in desk.report()["contracts"]] == [None, 13, 8]
    assert desk.report()["contract_open"] == []


def test_lapse_takes_open_contracts_away_and_leaves_live_ones(desk):
    lapse = {"action": "lapse", "supplier": "backup"}
    desk.place_order("Sign.", 0, contract=sign(terms="short"))
    assert len(desk.place_order("Lapse a live one.", 0, contract=lapse)["contracts"]) == 2
    wait(desk, 2)
    assert desk.report()["contract_open"] == ["backup"]
    report = desk.place_order("Lapse an open one.", 0, contract=lapse)
    assert [c["supplier"] for c in report["contracts"]] == ["spot"]
    assert len(desk.place_order("Lapse nothing.", 0, contract=lapse)["contracts"]) == 1


def test_dead_spot_can_be_signed_but_not_ordered_from():
    desk = st.Episode(lanes.quiet_tape(supplier=OPEN))
    assert desk.report()["contract_open"] == ["spot"]
    refused = refusal(desk.place_order, "Order.", 10, "suez", "spot", sign("spot"))
    assert refused.code is R.NO_CONTRACT
    report = desk.place_order("Sign.", 0, contract=sign("spot", terms="short"))
    assert report["contract_open"] == ["spot"]
    assert report["contracts"] == [
        {
            **{"supplier": "spot", "start_week": 0, "end_week": 4},
            **{"unit_price": 3.88, "otif_floor": 80, "break_fee": 5.0},
        }
    ]


def test_last_lock_and_last_air_stand_and_every_fee_is_charged_once(desk):
    for weeks in (9, 3):
        assert desk.lock_freight(weeks) == 1.0
    for qty in (30, 4):
        desk.expedite_air(qty)
    for _ in range(3):
        assert desk.inspect_batch() is None
        assert desk.buy_briefing() == "calm"
        assert desk.buy_audit() == "ontime"
    report = wait(desk)
    fees = {name: cost for name, cost in report["cost_breakdown"].items() if name in lanes.LEVERS}
    assert fees == {"inspect": 40.0, "briefing": 30.0, "audit": 25.0, "air": 60.0}
    assert report["freight_lock"]["weeks_left"] == 2
    assert not set(wait(desk)["cost_breakdown"]) & set(lanes.LEVERS)


def test_reveals_tell_the_present_state_at_once():
    tape = lanes.quiet_tape(canal={1: "short:1", 2: "false_alarm", 3: "recovery:2"}, supplier={1: "degraded:0"})
    desk, told = st.Episode(tape), []
    for _ in range(4):
        told.append((desk.buy_briefing(), desk.buy_audit()))
        wait(desk)
    assert told == [("calm", "ontime"), ("short", "slipping"), ("false_alarm", "ontime"), ("recovery", "ontime")]


def test_lever_leaves_the_report_of_its_week_as_it_was(desk):
    before = desk.report()
    for lever in (desk.inspect_batch, desk.buy_briefing, desk.buy_audit):
        lever()
    desk.lock_freight(3)
    desk.expedite_air(3)
    assert desk.report() == before


# The end.


def test_after_the_end_every_call_is_refused(desk):
    wait(desk, 26)
    assert (desk.week, desk.done) == (26, True)
    before = everything(desk)
    calls = [
        *((desk.lock_freight, 3), (desk.lock_freight, 0), (desk.expedite_air, 3), (desk.inspect_batch,)),
        *((desk.buy_briefing,), (desk.buy_audit,), (desk.place_order, "Wait.", 0), (desk.place_order, "", -1)),
    ]
    for call, *arguments in calls:
        refused = refusal(call, *arguments)
        assert refused.code is R.OVER
        assert "after week 26" in str(refused)
    assert_same(everything(desk), before)


def test_episode_is_done_after_26_decisions_and_not_before(desk):
    wait(desk, 25)
    assert not desk.done
    wait(desk)
    assert desk.done


# Reports, history, costs.


def spoil(value):
    """Changes everything that can be changed in nested lists and dicts."""
    if isinstance(value, dict):
        for entry in value.values():
            spoil(entry)
        value["spoilt"] = True
    elif isinstance(value, list):
        for entry in value:
            spoil(entry)
        value.append("spoilt")


def test_reports_are_copies():
    desk = in_the_middle()
    spoil(desk.report())
    spoil(desk.place_order("Order.", 10, "suez", "spot", sign()))
    again = in_the_middle()
    report = again.place_order("Order.", 10, "suez", "spot", sign())
    assert desk.report() == report
    assert desk.history == again.history
    assert wait(desk) == wait(again)


def test_history_keeps_a_contract_as_it_was_asked_for(desk):
    contract = sign(terms="short")
    desk.place_order("Sign.", 0, contract=contract)
    contract["supplier"] = "acme"
    assert desk.history[0]["calls"][0]["arguments"]["contract"] == sign(terms="short")


def test_history_is_ready_for_json_whatever_mapping_a_contract_came_in(desk):
    desk.place_order("Sign.", 0, contract=MappingProxyType(sign()))
    assert json.loads(json.dumps(desk.history)) == desk.history


def test_history_tells_each_week_and_its_accepted_calls():
    desk = st.Episode(lanes.quiet_tape())
    first = desk.report()
    desk.buy_briefing()
    refusal(desk.lock_freight, 0)
    desk.lock_freight(3)
    refusal(desk.place_order, "Order.", 10, "suez", "backup")
    desk.expedite_air(25)
    second = desk.place_order("Because.", 10, "suez", "spot", sign(terms="short"))
    wait(desk)
    assert [week["week"] for week in desk.history] == [0, 1]
    assert [week["report"] for week in desk.history] == [first, second]
    order = {"rationale": "Because.", "qty": 10, "route": "suez", "supplier": "spot", "contract": sign(terms="short")}
    assert desk.history[0]["calls"] == [
        {"name": "buy_briefing", "arguments": {}, "result": "calm"},
        {"name": "lock_freight", "arguments": {"weeks": 3}, "result": 1.0},
        {"name": "expedite_air", "arguments": {"qty": 25}, "result": 20},
        {"name": "place_order", "arguments": order, "result": None},
    ]
    assert [set(week) for week in desk.history] == [{"week", "report", "calls", "costs", "cost"}] * 2
    assert desk.history[0]["costs"] == second["cost_breakdown"]
    assert json.loads(json.dumps(desk.history)) == desk.history


def test_costs_are_plain_sums():
    desk, total = st.Episode(st.published_tape(170)), 0.0
    while not desk.done:
        desk.expedite_air(3)
        desk.place_order("Order.", 17, "suez", "qualified", None if desk.week else sign("qualified"))
        week, cost = desk.history[-1], 0.0
        for line in week["costs"].values():
            cost += line
        assert week["cost"] == cost
        total += cost
        assert desk.total_cost == total


# Set-up and surroundings.


def test_opening_books(desk):
    report = desk.report()
    assert (desk.week, desk.done, desk.total_cost, desk.history) == (0, False, 0.0, [])
    assert (report["inventory"], report["on_order"], report["pipeline"]) == (80, 0, [])
    assert [(c["supplier"], c["end_week"]) for c in report["contracts"]] == [("spot", None)]


@pytest.mark.parametrize("tape", [lanes.repeat(lanes.quiet_tape()), lanes.quiet_tape(25)], ids=["stacked", "short"])
def test_desk_takes_one_tape_of_its_world(tape):
    with pytest.raises(ValueError, match=r"a single tape with 27 weeks"):
        st.Episode(tape)


def test_desk_takes_only_a_world_that_can_be():
    params = st.WorldParams()
    with pytest.raises(ValueError, match=r"WorldParams\.costs\.holding"):
        st.Episode(lanes.quiet_tape(), params.replace(costs=params.costs.replace(holding=-1.0)))


def test_desk_is_in_float64_and_leaves_the_process_in_float32():
    desk = st.Episode(lanes.quiet_tape(freight_multiplier={1: 12_345}))
    desk.place_order("Order.", 7, "suez", "spot")
    assert desk.history[0]["costs"]["shipping"] == pytest.approx(7 * (4 * 1.2345 - 1.5), rel=1e-15)
    assert desk.observation.costs.dtype == np.float64
    assert jax.config.jax_enable_x64 is False
    assert jnp.ones(3).dtype == np.float32
    assert jnp.asarray(desk.observation.costs).dtype == np.float32


def test_desk_is_in_float64_whatever_holds_the_numbers_of_its_world():
    params = jax.tree.map(jnp.asarray, st.WorldParams())
    desk = st.Episode(lanes.quiet_tape(freight_multiplier={1: 12_345}), params)
    desk.place_order("Order.", 7, "suez", "spot")
    assert desk.history[0]["costs"]["shipping"] == pytest.approx(7 * (4 * 1.2345 - 1.5), rel=1e-15)


def season(seed):
    """A whole season of random calls, some of them refused; everything that the desk said."""
    rng, desk, said = random.Random(seed), st.Episode(st.published_tape(seed)), []
    while not desk.done:
        try:
            if rng.random() < 0.3:
                said.append(desk.lock_freight(rng.randint(0, 4)))
            if rng.random() < 0.3:
                said.append(desk.expedite_air(rng.randint(0, 25)))
            if rng.random() < 0.3:
                said.append(desk.buy_audit())
            contract = sign(rng.choice(st.SUPPLIERS)) if rng.random() < 0.3 else None
            supplier = rng.choice(st.SUPPLIERS)
            said.append(desk.place_order("Order.", rng.randint(0, 100), rng.choice(st.ROUTES), supplier, contract))
        except st.Refused as refused:
            said.append(str(refused))
    return said, desk.history, desk.total_cost


def test_desks_in_threads_do_not_disturb_each_other():
    seeds = range(8)
    alone = [season(seed) for seed in seeds]
    together = [None] * len(seeds)
    start = threading.Barrier(len(seeds))

    def play(i):
        start.wait()
        together[i] = season(i)

    threads = [threading.Thread(target=play, args=(i,)) for i in seeds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == alone
