"""Plays the logs of a run again and holds every request, report and cost against the record."""

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import stocktake_jax as st
from stocktake_agents.arms.arm import Arm
from stocktake_agents.conversation import Message, digest
from stocktake_agents.errors import LogError, UsageError
from stocktake_agents.log import Record, RecordEnds, check_same, read_events
from stocktake_agents.loop import Limits, Seat, play
from stocktake_agents.provider import Turn
from stocktake_agents.seeds import EpisodeName


@dataclass(frozen=True)
class Finding:
    """What became of one log.

    Attributes:
        log: its file name.
        status: "same", "unfinished" (as far as it goes, the same) or "differs".
        detail: what differs.
    """

    log: str
    status: str
    detail: str = ""


class _Nobody:
    """The line to nobody: all answers are on record."""

    async def ask(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], episode: str, week: int, deadline: float
    ) -> Turn:
        raise RecordEnds


def verify_run(folder: Path, manifest: Mapping[str, Any], arm: Arm) -> list[Finding]:
    """Replays every log of a results folder.

    Args:
        folder: the results folder.
        manifest: its manifest.
        arm: the arm of that name, as this version has it, with the texts of the manifest.

    Returns:
        One finding for each log, in order of names.

    Raises:
        UsageError: there is no log.
    """
    settings = {name: value for name, value in manifest["settings"].items() if name != "seeds"}
    for name, text in (("prompt", arm.system), ("tools", [dict(tool) for tool in arm.tools])):
        if digest(text) != settings[name]:
            raise UsageError(f"{folder}: the {name} kept in the manifest is not the one whose hash is in it.")
    paths = sorted(folder.glob("published-*.jsonl")) + sorted(folder.glob("minted-*.jsonl"))
    if not paths:
        raise UsageError(f"{folder} has no logs: name the results folder of a run.")
    return [_replayed(path, settings, arm) for path in paths]


def _replayed(path: Path, settings: Mapping[str, Any], arm: Arm) -> Finding:
    try:
        events, _ = read_events(path)
        if not events:
            return Finding(path.name, "unfinished", "empty")
        header = events[0]
        name = EpisodeName(header["source"], header["seed"], header["repeat"])
        tape = name.tape()
        check_same(path, header, {**settings, "tape": st.tape_digest(tape), "source": name.source})
        record = Record(path, events)
        status = asyncio.run(_play(name, tape, record, arm, Limits(**settings["limits"])))
    except RecordEnds:
        return Finding(path.name, "unfinished")
    except (UsageError, LogError, KeyError, TypeError) as error:
        return Finding(path.name, "differs", str(error))
    if record.left:
        return Finding(path.name, "differs", f"{record.left} events follow the end of the episode")
    if events[-1].get("status") != status:
        return Finding(path.name, "differs", f"it ends {events[-1].get('status')!r}, and replayed {status!r}")
    return Finding(path.name, "same")


async def _play(name: EpisodeName, tape: st.Tape, record: Record, arm: Arm, limits: Limits) -> str:
    desk, lens = st.Episode(tape), arm.open(tape)
    return await play(_Nobody(), arm, lens, desk, record, limits, math.inf, lambda: False, Seat(), name.stem, _here)


async def _here(work: Any, *arguments: Any) -> Any:
    return work(*arguments)
