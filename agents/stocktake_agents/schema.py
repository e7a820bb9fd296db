"""Checks a call's arguments against the very schema the model was given, so that the two cannot drift apart.

Nothing is repaired in silence: text, a bool or 20.0 is no whole number, an unknown key is an error. The one liberty is
an object which was encoded twice, a habit of several models: it is unwrapped and reported as such.
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

MAX_TEXT = 40_000  # characters of raw arguments; a model that runs away is answered, not parsed


class ArgumentError(Exception):
    """Names the field, what it was and what it may be."""


def check_arguments(text: str, schema: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """Parses and checks the raw arguments of one call.

    Args:
        text: what the model wrote.
        schema: a JSON schema of type object, using the keywords of the tools in this package.

    Returns:
        The arguments, and whether an object had to be unwrapped from a string.

    Raises:
        ArgumentError: the text is no JSON object, or a field is unknown, missing, of another type or out of range.
    """
    if len(text) > MAX_TEXT:
        raise ArgumentError(f"the arguments have {len(text)} characters: at most {MAX_TEXT} are read.")
    value, unwrapped = _unwrap(_parse(text))
    if not isinstance(value, dict):
        raise ArgumentError(f"the arguments must be one JSON object, got {_show(value)}.")
    for key, rule in schema["properties"].items():
        if key in value and "object" in _types(rule):
            value[key], inner = _unwrap(value[key])
            unwrapped |= inner
    _check_object(value, schema, "")
    return value, unwrapped


def _parse(text: str) -> Any:
    def refuse_constant(name: str) -> NoReturn:
        raise ArgumentError(f"{name} is no number in JSON: give a finite number.")

    def unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in pairs]
        if repeated := [key for key in keys if keys.count(key) > 1]:
            raise ArgumentError(f"{repeated[0]} is given {keys.count(repeated[0])} times: give it once.")
        return dict(pairs)

    try:
        return json.loads(text, parse_constant=refuse_constant, object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise ArgumentError(f"the arguments must be one JSON object, and this is not JSON ({error}).") from error


def _unwrap(value: Any) -> tuple[Any, bool]:
    """An object out of a string that holds one as JSON; anything else as it is."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            return _parse(value), True
        except ArgumentError:
            pass  # ordinary text after all; the type check answers it
    return value, False


def _check_object(value: Mapping[str, Any], schema: Mapping[str, Any], path: str) -> None:
    fields = schema["properties"]
    takes = f"takes {', '.join(fields)}" if fields else "takes no fields"
    for key in value:
        if key not in fields:
            raise ArgumentError(f"unknown field {path}{key[:80]}: {path.rstrip('.') or 'this call'} {takes}.")
    # All at once: a long list, told one by one, would cost a model one answer each.
    if missing := [key for key in schema["required"] if key not in value]:
        raise ArgumentError(_missing({path + key: describe(fields[key]) for key in missing}))
    for key, rule in fields.items():
        if key in value:
            _check_field(value[key], rule, path + key)


def _missing(wanted: Mapping[str, str]) -> str:
    """What to say of fields that are missing, given a description of each."""
    if len(wanted) == 1:
        [(key, words)] = wanted.items()
        return f"{key} is missing: it must be {words}."
    if len(set(wanted.values())) == 1:
        return f"{', '.join(wanted)} are missing: each must be {next(iter(wanted.values()))}."
    return f"{', '.join(wanted)} are missing: {'; '.join(f'{key} must be {words}' for key, words in wanted.items())}."


def _check_field(value: Any, rule: Mapping[str, Any], path: str) -> None:
    if not _fits(value, rule):
        raise ArgumentError(f"{path} must be {describe(rule)}, got {_show(value)}.")
    if isinstance(value, dict):
        _check_object(value, rule, path + ".")


def _fits(value: Any, rule: Mapping[str, Any]) -> bool:
    kinds = _types(rule)
    whole_number = type(value) is int and "number" in kinds  # 1 is a number, though 1.0 is no whole number
    if not (_KINDS[type(value)] in kinds or whole_number) or value not in rule.get("enum", [value]):
        return False
    if isinstance(value, float) and not math.isfinite(value):
        return False  # JSON has no infinity, but 1e999 reads as one
    if isinstance(value, int | float):
        return bool(rule.get("minimum", value) <= value <= rule.get("maximum", value))
    if isinstance(value, str):
        return len(value.strip()) >= rule.get("minLength", 0) and len(value) <= rule.get("maxLength", len(value))
    return True


# By exact type: to Python a bool is an int, to JSON it is not.
_KINDS = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
    type(None): "null",
}


def _types(rule: Mapping[str, Any]) -> Sequence[str]:
    kinds: str | list[str] = rule["type"]
    return [kinds] if isinstance(kinds, str) else kinds


def describe(rule: Mapping[str, Any]) -> str:
    """Says in words what a field may hold."""
    kinds = _types(rule)
    if "enum" in rule:
        words = " or ".join(json.dumps(choice) for choice in rule["enum"])
    elif "number" in kinds:
        words = f"a number from {rule['minimum']} to {rule['maximum']}" if "maximum" in rule else "a finite number"
    elif "integer" in kinds:
        most = f"to {rule['maximum']}" if "maximum" in rule else "upwards"
        words = f"a whole number from {rule['minimum']} {most}"
    elif "string" in kinds:
        words = f"a text of {rule['minLength']} to {rule['maxLength']} characters, not blank"
    else:
        words = f"an object with {', '.join(rule['properties'])}"
    return words if "enum" in rule or "null" not in kinds else f"{words}, or null"


def _show(value: Any) -> str:
    shown = json.dumps(value)
    return shown if len(shown) <= 80 else shown[:77] + "..."
