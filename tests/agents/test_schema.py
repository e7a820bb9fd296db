"""Arguments of any shape that a schema can ask for: numbers, nested objects, long lists of fields."""

import json
from typing import Any

import pytest

from stocktake_agents.schema import ArgumentError, check_arguments, describe


def an_object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


SHARE = {"type": "number", "minimum": 0, "maximum": 1}
NAMES = [f"factor_{letter}" for letter in "abcdefghijkl"]
SCHEMA = an_object(
    qty={"type": "integer", "minimum": 0, "maximum": 100},
    any={"type": "number"},
    shares=an_object(**dict.fromkeys(NAMES, SHARE)),
)
RIGHT = {"qty": 3, "any": -2.5, "shares": dict.fromkeys(NAMES, 0.5)}


def refusal(arguments: Any) -> str:
    with pytest.raises(ArgumentError) as caught:
        check_arguments(arguments if isinstance(arguments, str) else json.dumps(arguments), SCHEMA)
    return str(caught.value)


def test_what_fits_comes_back_as_it_was() -> None:
    for value in (0, 1, 0.0, 1.0, 0.25, 1e-300):
        arguments = RIGHT | {"shares": {**RIGHT["shares"], "factor_c": value}}
        checked, unwrapped = check_arguments(json.dumps(arguments), SCHEMA)
        assert checked == arguments
        assert type(checked["shares"]["factor_c"]) is type(value)
        assert not unwrapped


def test_a_nested_object_encoded_twice_is_unwrapped() -> None:
    checked, unwrapped = check_arguments(json.dumps(RIGHT | {"shares": json.dumps(RIGHT["shares"])}), SCHEMA)
    assert checked == RIGHT
    assert unwrapped


@pytest.mark.parametrize("value", [True, "0.5", None, [0.5], {}, -0.001, 1.001, 2, -1, 10**400])
def test_what_is_no_share_is_refused_by_name_and_range(value: Any) -> None:
    message = refusal(RIGHT | {"shares": {**RIGHT["shares"], "factor_c": value}})
    assert message.startswith("shares.factor_c must be a number from 0 to 1, got ")


@pytest.mark.parametrize("text", ["1e999", "-1e999", "NaN", "Infinity", "-Infinity"])
def test_a_number_is_finite_even_without_bounds(text: str) -> None:
    message = refusal(json.dumps(RIGHT).replace("-2.5", text))
    assert "finite number" in message


def test_a_number_is_no_whole_number() -> None:
    assert refusal(RIGHT | {"qty": 3.0}) == "qty must be a whole number from 0 to 100, got 3.0."
    assert describe({"type": ["number", "null"], "minimum": 0, "maximum": 1}) == "a number from 0 to 1, or null"


def test_missing_fields_are_named_all_at_once() -> None:
    few = {name: 0.5 for name in NAMES[:9]}
    assert refusal(RIGHT | {"shares": few}) == (
        "shares.factor_j, shares.factor_k, shares.factor_l are missing: each must be a number from 0 to 1."
    )
    assert refusal({"shares": RIGHT["shares"]}) == (
        "qty, any are missing: qty must be a whole number from 0 to 100; any must be a finite number."
    )
    assert refusal(RIGHT | {"shares": dict.fromkeys(NAMES[1:], 0.5)}) == (
        "shares.factor_a is missing: it must be a number from 0 to 1."
    )


def test_an_unknown_field_is_laid_to_the_object_it_stands_in() -> None:
    message = refusal(RIGHT | {"shares": {**RIGHT["shares"], "weather": 0.5}})
    assert message == f"unknown field shares.weather: shares takes {', '.join(NAMES)}."
    assert refusal(RIGHT | {"weather": 1}) == "unknown field weather: this call takes qty, any, shares."
