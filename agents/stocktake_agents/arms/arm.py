"""An arm of the experiment: the rules an agent reads, the tools it has, and the glass between it and the desk."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import stocktake_jax as st
from stocktake_agents.provider import ToolCall


class Lens:
    """What stands between one desk and its agent; this one lets everything through as it is.

    An arm that shows more, or in other words, overrides what it changes. A lens may remember, but what it shows must
    be a function of the tape and of the calls made so far, so that an episode replays to the same conversation.
    """

    def report(self, report: Mapping[str, Any], desk: st.Episode) -> dict[str, Any]:
        """What the agent reads of this week's report; asked for once a week, in order, week 0 first."""
        return dict(report)

    def call(self, call: ToolCall) -> ToolCall:
        """A call in the desk's own words."""
        return call

    def words(self, text: str) -> str:
        """A sentence of the desk in the agent's words."""
        return text

    def understood(self, text: str) -> str:
        """A sentence of the agent in the desk's words."""
        return text


@dataclass(frozen=True)
class Arm:
    """One arm.

    Attributes:
        name: its name in tables.
        system: the system prompt, filled in.
        tools: schemas of the tools, as the agent sees them.
        open: puts a lens between an agent and its desk, for one episode on a tape.
        details: what else goes into the arm's hash, JSON.
        plain: whether reports keep their keys, so that scripts and policies can play it.
        privileged: whether it shows what no report shows.
        standard: whether its words are those that this package ships.
    """

    name: str
    system: str
    tools: tuple[Mapping[str, Any], ...]
    open: Callable[[st.Tape], Lens]
    details: Mapping[str, Any]
    plain: bool = True
    privileged: bool = False
    standard: bool = True
