"""Verification: what was recorded comes out again, and what was changed does not."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from stocktake_agents import TOOLS, Outcome, UsageError
from stocktake_agents.arms import Arm, Lens
from stocktake_agents.manifest import read_manifest
from stocktake_agents.verify import verify_run

PLAIN = Arm("plain", "These are the rules.", TOOLS, lambda tape: Lens(), {})
PlayPlan = Callable[..., Outcome]


def statuses(folder: Path) -> dict[str, str]:
    return {finding.log: finding.status for finding in verify_run(folder, read_manifest(folder), PLAIN)}


def test_a_run_comes_out_the_same(play_plan: PlayPlan, tmp_path: Path) -> None:
    play_plan("random", "25,mint:7", repeats=2)
    found = statuses(tmp_path / "out")
    assert set(found.values()) == {"same"}
    assert len(found) == 4


def test_an_unfinished_log_is_the_same_as_far_as_it_goes(play_plan: PlayPlan, tmp_path: Path) -> None:
    play_plan("planner", "1,25")
    log = tmp_path / "out" / "published-25.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    before = lines[:30]
    log.write_bytes(b"".join(before))
    assert statuses(tmp_path / "out") == {"published-1.jsonl": "same", "published-25.jsonl": "unfinished"}
    assert log.read_bytes() == b"".join(before)


CHANGES: dict[str, tuple[str, Callable[[dict], object]]] = {
    "a cost": ("week", lambda event: event["costs"].update(holding=event["costs"]["holding"] - 0.01)),
    "the total": ("end", lambda event: event.update(total=event["total"] - 0.01)),
    "an order": ("turn", lambda event: event["turn"]["calls"][-1].update(arguments='{"rationale":"r","qty":0}')),
    "a report": ("result", lambda event: event["results"][-1].update(content="{}")),
    "a request": ("turn", lambda event: event.update(request="0" * 64)),
    "the status": ("end", lambda event: event.update(status="refusal")),
    "the seed": ("header", lambda event: event.update(seed=26)),
    "the model": ("header", lambda event: event.update(model="another")),
    "tokens": ("end", lambda event: event["usage"].update(input=7)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_was_changed_is_found(change: str, play_plan: PlayPlan, tmp_path: Path) -> None:
    play_plan("planner", "25")
    log = tmp_path / "out" / "published-25.jsonl"
    events = [json.loads(line) for line in log.read_bytes().splitlines()]
    kind, edit = CHANGES[change]
    [first, *_] = [event for event in events if event["event"] == kind]
    edit(first)
    log.write_text("".join(json.dumps(event, separators=(",", ":")) + "\n" for event in events), encoding="utf-8")
    [finding] = verify_run(tmp_path / "out", read_manifest(tmp_path / "out"), PLAIN)
    assert finding.status == "differs"
    assert "published-25.jsonl" in finding.detail or finding.detail


def test_a_dropped_or_added_line_is_found(play_plan: PlayPlan, tmp_path: Path) -> None:
    play_plan("planner", "25")
    log = tmp_path / "out" / "published-25.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    for changed in (lines[:20] + lines[21:], [*lines[:20], lines[19], *lines[20:]], [*lines, lines[-1]]):
        log.write_bytes(b"".join(changed))
        assert list(statuses(tmp_path / "out").values()) == ["differs"]


def test_a_folder_that_is_no_run_is_refused(play_plan: PlayPlan, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no manifest of a run"):
        read_manifest(tmp_path)
    play_plan("planner", "25")
    manifest = read_manifest(tmp_path / "out")
    (tmp_path / "out" / "published-25.jsonl").unlink()
    with pytest.raises(UsageError, match="has no logs"):
        verify_run(tmp_path / "out", manifest, PLAIN)
    other = Arm("plain", "Other rules.", TOOLS, lambda tape: Lens(), {})
    with pytest.raises(UsageError, match="prompt kept in the manifest"):
        verify_run(tmp_path / "out", manifest, other)
