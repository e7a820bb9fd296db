"""The fair arms that come with this package."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import stocktake_jax as st
from stocktake_agents.arms.advice import STREAM, AdviceLens
from stocktake_agents.arms.arm import Lens
from stocktake_agents.arms.belief_track import with_beliefs
from stocktake_agents.arms.posterior import DECIMALS, PosteriorLens
from stocktake_agents.arms.prompts import shipped
from stocktake_agents.arms.renaming import Renaming, RenamingLens
from stocktake_agents.tools import TOOLS

Tools = tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class Recipe:
    """What an arm is made of, before numbers are filled in.

    Attributes:
        template: of its system prompt.
        open: puts its lens before a desk on a tape.
        tools: schemas as the agent sees them.
        details: what else goes into its hash.
        rewrite: what is done to the filled prompt.
        plain: whether reports keep their keys.
        privileged: whether it shows what no report shows.
    """

    template: str
    open: Callable[[st.Tape], Lens]
    tools: Tools = TOOLS
    details: tuple[tuple[str, Any], ...] = ()
    rewrite: Callable[[str], str] = str
    plain: bool = True
    privileged: bool = False


def fair_recipes() -> dict[str, Recipe]:
    """The arms that show nothing but reports and what can be worked out from them."""
    rules = shipped("faithful.md")
    anon = json.loads(shipped("anon.json"))
    renaming = Renaming(anon["words"], anon["texts"])
    renamed: Tools = tuple(renaming.json_to_agent(TOOLS))
    advice = (("futures", st.oracle.policy().futures), ("stream", STREAM))
    return {
        "faithful": Recipe(rules, lambda tape: Lens()),
        "coached": Recipe(rules + shipped("coached.md"), lambda tape: Lens()),
        "anon": Recipe(
            rules, lambda tape: RenamingLens(renaming, anon["bulletins"]), renamed, (("map", anon),),
            renaming.to_agent, plain=False,
        ),
        "beliefs": Recipe(rules + shipped("beliefs.md"), lambda tape: Lens(), with_beliefs()),
        "posterior": Recipe(
            rules + shipped("posterior.md"), lambda tape: PosteriorLens(), details=(("decimals", DECIMALS),)
        ),
        "advice": Recipe(rules + shipped("advice.md"), lambda tape: AdviceLens(int(tape.id)), details=advice),
    }  # fmt: skip
