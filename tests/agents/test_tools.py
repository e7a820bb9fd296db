"""Whatever a model writes is answered, once for every call, and nothing happens but what the rules allow."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as any_of

import stocktake_jax as st
from stocktake_agents import TOOLS, ToolCall
from stocktake_agents.schema import MAX_TEXT, ArgumentError, check_arguments
from stocktake_agents.tools import MAX_RATIONALE, Desk

SCHEMAS: dict[str, Any] = {tool["name"]: tool["parameters"] for tool in TOOLS}
ORDER = {"rationale": "Demand looks normal.", "qty": 0}


def call(name: str, arguments: Any, call_id: str = "a") -> ToolCall:
    return ToolCall(call_id, name, arguments if isinstance(arguments, str) else json.dumps(arguments))


def test_schemas_speak_of_this_world() -> None:
    order = SCHEMAS["place_order"]["properties"]
    assert (order["qty"]["minimum"], order["qty"]["maximum"]) == (0, 100)
    assert order["route"]["enum"] == [*st.ROUTES, None]
    assert order["supplier"]["enum"] == [*st.SUPPLIERS, None]
    assert order["contract"]["properties"]["action"]["enum"] == list(st.CONTRACT_ACTIONS)
    assert order["contract"]["properties"]["terms"]["enum"] == [*st.TERMS, None]
    assert list(SCHEMAS) == [
        "lock_freight",
        "expedite_air",
        "inspect_batch",
        "buy_briefing",
        "buy_audit",
        "place_order",
    ]
    json.dumps(TOOLS, allow_nan=False)


BAD_ARGUMENTS = [
    ("place_order", "", "must be one JSON object, and this is not JSON"),
    ("place_order", "qty=40", "must be one JSON object, and this is not JSON"),
    ("place_order", '{"rationale": "cut off', "must be one JSON object, and this is not JSON"),
    ("place_order", "[" * 100_000, f"have 100000 characters: at most {MAX_TEXT}"),
    ("place_order", "[" * 30_000, "this is not JSON"),
    ("place_order", "[]", "must be one JSON object, got []"),
    ("place_order", "null", "must be one JSON object, got null"),
    ("place_order", '"order 40"', 'must be one JSON object, got "order 40"'),
    ("place_order", {"qty": 0}, "rationale is missing: it must be a text of 1 to 8000 characters"),
    ("place_order", {"rationale": "x"}, "qty is missing: it must be a whole number from 0 to 100"),
    ("place_order", ORDER | {"quantity": 4}, "unknown field quantity: this call takes rationale, qty, route"),
    ("place_order", ORDER | {"qty": "20"}, 'qty must be a whole number from 0 to 100, got "20"'),
    ("place_order", ORDER | {"qty": True}, "qty must be a whole number from 0 to 100, got true"),
    ("place_order", ORDER | {"qty": 3.5}, "qty must be a whole number from 0 to 100, got 3.5"),
    ("place_order", ORDER | {"qty": 20.0}, "qty must be a whole number from 0 to 100, got 20.0"),
    ("place_order", ORDER | {"qty": None}, "qty must be a whole number from 0 to 100, got null"),
    ("place_order", ORDER | {"qty": -1}, "qty must be a whole number from 0 to 100, got -1"),
    ("place_order", ORDER | {"qty": 101}, "qty must be a whole number from 0 to 100, got 101"),
    ("place_order", '{"rationale": "x", "qty": NaN}', "NaN is no number in JSON"),
    ("place_order", '{"rationale": "x", "qty": -Infinity}', "-Infinity is no number in JSON"),
    ("place_order", '{"rationale": "x", "qty": 1, "qty": 2}', "qty is given 2 times"),
    ("place_order", '{"rationale": "x", "qty": %s}' % ("9" * 4000), "qty must be a whole number from 0 to 100"),
    ("place_order", '{"rationale": "x", "qty": %s}' % ("9" * 5000), "this is not JSON"),
    ("place_order", ORDER | {"rationale": " \n"}, "rationale must be a text of 1 to 8000 characters, not blank"),
    ("place_order", ORDER | {"rationale": "x" * (MAX_RATIONALE + 1)}, "rationale must be a text of 1 to 8000"),
    (
        "place_order",
        ORDER | {"rationale": ["x"]},
        'rationale must be a text of 1 to 8000 characters, not blank, got ["x"]',
    ),
    ("place_order", ORDER | {"route": "Suez"}, 'route must be "suez" or "cape" or null, got "Suez"'),
    ("place_order", ORDER | {"supplier": 1}, 'supplier must be "qualified" or "spot" or "backup" or null, got 1'),
    ("place_order", ORDER | {"contract": "sign"}, "contract must be an object with action, supplier, terms, or null"),
    ("place_order", ORDER | {"contract": {}}, "contract.action is missing"),
    ("place_order", ORDER | {"contract": {"action": "cancel"}}, 'contract.action must be "none" or "sign"'),
    ("place_order", ORDER | {"contract": {"action": "sign", "weeks": 3}}, "unknown field contract.weeks"),
    ("lock_freight", {}, "weeks is missing"),
    ("lock_freight", {"weeks": 0}, "weeks must be a whole number from 1 upwards, got 0"),
    ("lock_freight", {"weeks": 2**31}, "weeks is 2147483648"),
    ("expedite_air", {"qty": -(2**40)}, "qty must be a whole number from 1 upwards"),
    ("inspect_batch", {"now": True}, "unknown field now: this call takes no fields"),
    ("buy_briefing", "", "this is not JSON"),
    ("order", ORDER, "there is no tool 'order': the tools are lock_freight"),
]


@pytest.fixture(scope="module")
def untouched() -> st.Episode:
    return st.Episode(st.published_tape(25))


@pytest.mark.parametrize(("name", "arguments", "sentence"), BAD_ARGUMENTS, ids=[case[2][:50] for case in BAD_ARGUMENTS])
def test_bad_arguments_change_nothing_and_name_field_and_range(
    untouched: st.Episode, name: str, arguments: Any, sentence: str
) -> None:
    before = untouched.report()
    [result] = Desk(untouched).execute([call(name, arguments)])
    assert result.error
    assert sentence in result.content
    assert len(result.content) < 400
    assert untouched.week == 0
    assert untouched.report() == before


def test_the_world_has_the_last_word() -> None:
    episode = st.Episode(st.published_tape(25))
    [result] = Desk(episode).execute([call("place_order", ORDER | {"qty": 5, "route": "suez", "supplier": "backup"})])
    assert result.error
    assert "backup" in result.content
    assert episode.week == 0


@pytest.mark.parametrize("layers", [1, 2])
def test_an_object_encoded_twice_is_unwrapped_and_counted(layers: int) -> None:
    contract: Any = {"action": "sign", "supplier": "qualified"}
    arguments: Any = ORDER | {"contract": json.dumps(contract) if layers == 2 else contract}
    episode = st.Episode(st.published_tape(25))
    [result] = Desk(episode).execute([call("place_order", json.dumps(json.dumps(arguments)))])
    assert not result.error
    assert result.unwrapped
    assert "qualified" in [c["supplier"] for c in json.loads(result.content)["contracts"]]


def test_plain_arguments_are_not_reported_as_unwrapped() -> None:
    arguments, unwrapped = check_arguments('{"rationale": "{not json}", "qty": 1}', SCHEMAS["place_order"])
    assert arguments == {"rationale": "{not json}", "qty": 1}
    assert not unwrapped


def test_every_call_gets_one_result_in_order_and_only_one_order_commits() -> None:
    episode = st.Episode(st.published_tape(25))
    calls = [
        call("lock_freight", {"weeks": 2}, "1"),
        call("fly", {}, "2"),
        call("place_order", ORDER | {"qty": 500}, "3"),
        call("place_order", ORDER, "4"),
        call("place_order", ORDER, "5"),
        call("buy_audit", {}, "6"),
    ]
    results = Desk(episode).execute(calls)
    assert [result.id for result in results] == ["1", "2", "3", "4", "5", "6"]
    assert [result.error for result in results] == [False, True, True, False, True, True]
    assert all(result.content.startswith("Ignored: this answer has already") for result in results[4:])
    assert episode.week == 1
    assert json.loads(results[3].content) == episode.report()
    assert "audit" not in episode.history[0]["costs"]


def test_levers_are_answered_in_words() -> None:
    episode = st.Episode(st.published_tape(25))
    names = {"expedite_air": {"qty": 2**40}, "inspect_batch": {}, "buy_briefing": {}, "buy_audit": {}}
    results = Desk(episode).execute([call(name, arguments, name) for name, arguments in names.items()])
    assert not any(result.error for result in results)
    assert results[0].content == "20 units will arrive by air next week."
    assert results[2].content == "Canal: calm."
    assert results[3].content == "Spot supplier: ontime."
    assert episode.week == 0


def test_no_call_is_accepted_after_the_last_week() -> None:
    episode = st.Episode(st.published_tape(25))
    while not episode.done:
        Desk(episode).execute([call("place_order", ORDER)])
    total = episode.total_cost
    results = Desk(episode).execute([call("place_order", ORDER), call("buy_briefing", {}), call("buy_audit", {})])
    assert all(result.error for result in results)
    assert episode.total_cost == total


json_values = any_of.recursive(
    any_of.none() | any_of.booleans() | any_of.integers() | any_of.floats() | any_of.text(max_size=20),
    lambda inner: any_of.lists(inner, max_size=3) | any_of.dictionaries(any_of.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
fields = any_of.sampled_from(["rationale", "qty", "route", "supplier", "contract", "weeks", "action"])


@given(
    any_of.sampled_from(list(SCHEMAS)),
    any_of.dictionaries(fields, json_values, max_size=6) | json_values,
    any_of.booleans(),
)
def test_arguments_either_fit_or_are_refused(name: str, value: Any, twice: bool) -> None:
    text = json.dumps(value)
    try:
        arguments, _ = check_arguments(json.dumps(text) if twice else text, SCHEMAS[name])
    except ArgumentError:
        return
    assert set(SCHEMAS[name]["required"]) <= set(arguments) <= set(SCHEMAS[name]["properties"])
    assert all(type(arguments.get(field, 0)) is int for field in ("qty", "weeks"))
