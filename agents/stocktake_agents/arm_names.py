"""Every arm that a command line can name. The one place where the fair arms and the privileged one meet."""

import functools
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import stocktake_jax as st
from stocktake_agents.arms.arm import Arm, Lens
from stocktake_agents.arms.prompts import fill, read_template, shipped
from stocktake_agents.arms.renaming import BulletinLens
from stocktake_agents.arms.shipped import Recipe, fair_recipes
from stocktake_agents.errors import UsageError
from stocktake_agents.privileged import revealed
from stocktake_jax.factors import canal

ARM_NAMES = ("faithful", "coached", "anon", "beliefs", "posterior", "advice", "revealed")


@functools.cache
def _recipes() -> dict[str, Recipe]:
    hidden = Recipe(shipped("faithful.md") + revealed.words(), revealed.RevealedLens, privileged=True)
    return fair_recipes() | {"revealed": hidden}


def make_arm(name: str, prompt: Path | None = None, bulletins: Path | None = None) -> Arm:
    """An arm by name, in its own words or in a user's.

    Args:
        name: one of ``ARM_NAMES``.
        prompt: a template to take the place of the system prompt.
        bulletins: a JSON file with a text for each of the canal's visible bands.

    Raises:
        UsageError: there is no such arm, or a file is no template or no set of bulletins.
    """
    if name not in ARM_NAMES:
        raise UsageError(f"there is no arm {name!r}: the arms are {', '.join(ARM_NAMES)}.")
    texts = None if bulletins is None else _read_bulletins(bulletins)
    recipe = _recipes()[name]
    template = recipe.template if prompt is None else read_template(prompt)
    system = fill(template, source="the prompt" if prompt is None else f"the prompt {prompt}")
    # A user's own prompt is taken as it is written, in the words that the arm's reports use.
    return _assemble(name, system if prompt is not None else recipe.rewrite(system), texts, standard=prompt is None)


def arm_of_run(settings: Mapping[str, Any], texts: Mapping[str, Any]) -> Arm:
    """The arm of a finished run, in the words that the run used.

    Args:
        settings: of its manifest.
        texts: of its manifest: the system prompt and the tools.

    Raises:
        UsageError: this version has no arm of that name.
    """
    if settings["arm"] not in ARM_NAMES:
        raise UsageError(f"the run played the arm {settings['arm']!r}, which this version does not have.")
    details = settings["arm_details"]
    arm = _assemble(settings["arm"], texts["system"], details.get("bulletins"), standard=details["standard"])
    return replace(arm, tools=tuple(texts["tools"]))


def _assemble(name: str, system: str, bulletins: Mapping[str, str] | None, standard: bool) -> Arm:
    recipe = _recipes()[name]
    details = dict(recipe.details)

    def open_lens(tape: st.Tape) -> Lens:
        lens = recipe.open(tape)
        return lens if bulletins is None else BulletinLens(lens, bulletins)

    if bulletins is not None:
        details["bulletins"] = dict(bulletins)
        standard = False
    return Arm(
        name, system, recipe.tools, open_lens, details, plain=recipe.plain, privileged=recipe.privileged,
        standard=standard,
    )  # fmt: skip


def _read_bulletins(path: Path) -> dict[str, str]:
    try:
        texts = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        raise UsageError(f"the bulletins {path} cannot be read ({error}): give a JSON file in UTF-8.") from error
    right = isinstance(texts, dict) and set(texts) == set(canal.BANDS)
    if not right or not all(isinstance(text, str) and text.strip() for text in texts.values()):
        raise UsageError(f"the bulletins {path} must map each of {', '.join(canal.BANDS)} to a text, and nothing else.")
    return dict(texts)
