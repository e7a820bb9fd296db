"""System prompts as templates: every number in them is a slot, filled from the world's parameters.

A slot names a parameter by its path, ``{desk.most_order}`` or ``{costs.base_rate[0]}``, and may give a format,
``{costs.surcharge:.2f}``. What drives the hidden processes (chances, means, spreads) has no slot: an agent has to live
without it.
"""

import string
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

import stocktake_jax as st
from stocktake_agents.errors import UsageError
from stocktake_jax.logistics import CHOKEPOINT

OPEN_SLOTS = ("costs", "desk", "voyage", "horizon")
"""Groups of parameters that an agent may be told."""
FORBIDDEN_SLOTS = tuple(st.FACTORS)
"""Groups that it may not: all the numbers of the hidden processes."""


def shipped(name: str) -> str:
    """A template of this package."""
    return resources.files(__package__).joinpath("words", name).read_text(encoding="utf-8")


def read_template(path: Path) -> str:
    """A user's own template.

    Raises:
        UsageError: the file cannot be read or is empty.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the prompt {path} cannot be read ({error}): give a text file in UTF-8.") from error
    if not text.strip():
        raise UsageError(f"the prompt {path} is empty: write what the agent is to know.")
    return text


def fill(template: str, params: st.WorldParams | None = None, source: str = "the prompt") -> str:
    """A template with the world's numbers in its slots.

    Args:
        template: the text; braces that are meant as such are doubled.
        params: the world; the paper's if None.
        source: names the template in errors.

    Raises:
        UsageError: a slot is unknown or forbidden, or the braces do not match.
    """
    params = st.WorldParams() if params is None else params
    groups = {name: getattr(params, name) for name in OPEN_SLOTS}
    groups |= {"last_week": params.horizon - 1, "chokepoint": CHOKEPOINT}
    try:
        return _Filler(source).vformat(template, (), groups)
    except (ValueError, TypeError) as error:
        raise UsageError(f"{source} cannot be filled ({error}): write braces that are no slot twice.") from error


class _Filler(string.Formatter):
    """Fills slots by path; whole numbers come without decimals unless a format asks for them."""

    def __init__(self, source: str) -> None:
        self._source = source

    def get_field(self, field_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, str]:
        group = field_name.partition(".")[0]
        if group in FORBIDDEN_SLOTS:
            raise UsageError(
                f"{self._source} has the slot {{{field_name}}}, a number that drives a hidden process: an agent may "
                "not be told it."
            )
        try:
            value, _ = super().get_field(field_name, args, kwargs)
            number = np.asarray(value, np.float64)
        except (AttributeError, KeyError, IndexError, TypeError, ValueError):
            number = np.zeros(2)
        if number.ndim:
            raise UsageError(
                f"{self._source} has the slot {{{field_name}}}, which names no single number: slots are horizon, "
                f"last_week, chokepoint and the fields of {', '.join(OPEN_SLOTS[:3])}, such as {{costs.base_rate[0]}}."
            )
        return float(number), group

    def format_field(self, value: Any, format_spec: str) -> str:
        return format(value, format_spec or "g")


def template_slots(template: str) -> list[str]:
    """The paths of a template's slots."""
    return [path for _, path, _, _ in string.Formatter().parse(template) if path is not None]
