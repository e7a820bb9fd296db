"""The revealed arm: each report carries the true regimes. It shows what no report shows, and is marked so."""

from collections.abc import Mapping
from importlib import resources
from typing import Any

import stocktake_jax as st
from stocktake_agents.arms.arm import Lens
from stocktake_jax.factors import MODULES


def words() -> str:
    """What the system prompt says of it."""
    return resources.files(__package__).joinpath("revealed.md").read_text(encoding="utf-8")


class RevealedLens(Lens):
    """Adds the regime of every factor in the week just reported; ages stay hidden."""

    def __init__(self, tape: st.Tape) -> None:
        self._rows = tape.rows

    def report(self, report: Mapping[str, Any], desk: st.Episode) -> dict[str, Any]:
        """See ``Lens``."""
        week = desk.week
        states = {name: int(getattr(self._rows, name)[week]) for name in st.FACTORS}
        regimes = {name: MODULES[name].LAYOUT.regimes[state] for name, state in states.items()}
        return {**report, "revealed": regimes}
