"""What a results folder says of itself: the settings that every run into it must share, and who ran when, with what."""

import json
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

import stocktake_jax as st
from stocktake_agents.arms.arm import Arm
from stocktake_agents.clock import utc_now
from stocktake_agents.conversation import digest
from stocktake_agents.errors import UsageError
from stocktake_agents.log import SCHEMA, check_same
from stocktake_agents.loop import Limits
from stocktake_agents.provider import Agent

FILE_NAME = "manifest.json"


def texts_of(arm: Arm) -> dict[str, Any]:
    """What an arm tells an agent, in full, so that a folder can be checked without the files it was made from."""
    return {"system": arm.system, "tools": [dict(tool) for tool in arm.tools]}


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a results folder.

    Raises:
        UsageError: there is none, or it cannot be read.
    """
    path = folder / FILE_NAME
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(data["settings"], dict):
            raise TypeError("its settings are no object")
        return {**data, "invocations": list(data["invocations"]), "texts": dict(data["texts"])}
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UsageError(f"{path} is no manifest of a run: name the results folder of one.") from error


def settings_of(agent: Agent, arm: Arm, limits: Limits) -> dict[str, Any]:
    """All that a log depends on except its tape, the coarsest differences first; ``agent`` is a hash of the rest."""
    settings = {
        "model": agent.model,
        "settings": dict(agent.settings),
        "arm": arm.name,
        "arm_details": dict(arm.details) | {"standard": arm.standard, "privileged": arm.privileged},
        "prompt": digest(arm.system),
        "tools": digest(arm.tools),
        "limits": asdict(limits),
    }
    versions = {"schema": SCHEMA, "package": st.__version__, "world": st.world_hash()}
    return {**versions, **settings, "agent": digest(settings)}


class Manifest:
    """``manifest.json`` of a results folder."""

    def __init__(self, folder: Path, settings: Mapping[str, Any], texts: Mapping[str, Any]) -> None:
        """Reads the manifest and checks it; nothing is written yet.

        Args:
            folder: the results folder.
            settings: what all runs into this folder have to share.
            texts: see ``texts_of``.

        Raises:
            UsageError: the folder was made with other settings or by another version, or its manifest is unreadable.
        """
        self._path = folder / FILE_NAME
        self._data: dict[str, Any] = {"settings": dict(settings), "texts": dict(texts), "invocations": []}
        if self._path.exists():
            self._data = read_manifest(folder)
            check_same(self._path, self._data["settings"], settings)

    @property
    def last(self) -> Mapping[str, Any]:
        """What the latest run noted; empty before the first."""
        invocations = self._data["invocations"]
        return dict(invocations[-1]) if invocations else {}

    def begin(self, means: Mapping[str, Any]) -> None:
        """Notes that a run starts, on what machine and software, and by what means."""
        environment = {
            "python": platform.python_version(),
            "jax": metadata.version("jax"),
            "openai": _version("openai"),
            "anthropic": _version("anthropic"),
            "platform": platform.platform(),
            "git_commit": _git_commit(),
        }
        self._data["invocations"].append({"started_utc": utc_now(), **environment, **means})
        self._write()

    def finish(self, statuses: Mapping[str, int], turns: int, facts: Mapping[str, Any]) -> None:
        """Notes how the run ended.

        Args:
            statuses: how many episodes stand how.
            turns: answers asked for in this run.
            facts: what came out about the provider.
        """
        ended = {"ended_utc": utc_now(), "statuses": dict(statuses), "turns": turns, **facts}
        self._data["invocations"][-1] |= ended
        self._write()

    def _write(self) -> None:
        temporary = self._path.with_suffix(".tmp")
        temporary.write_text(json.dumps(self._data, indent=2) + "\n", encoding="utf-8", newline="\n")
        temporary.replace(self._path)


def _version(package: str) -> str | None:
    """The version of an optional package, or None where it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _git_commit() -> str | None:
    """The commit of the checkout this package runs from, marked when it was changed; None outside of one."""
    here = Path(__file__)

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(["git", "-C", here.parent, *arguments], capture_output=True, text=True, timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    # An installed package may lie inside some other project's checkout: only a tracked file speaks for its commit.
    if git("ls-files", "--error-unmatch", here.name) is None:
        return None
    return git("describe", "--always", "--abbrev=40", "--dirty")
