"""Logs: what they survive, and what they refuse to go on from."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from stocktake_agents import LogError, UsageError
from stocktake_agents.log import EpisodeLog, encode, read_events

IDENTITY = {"schema": 1, "package": "1.0", "model": "idle", "tape": {"seed": 25}}
TURN = {"event": "turn", "week": 0, "request": "r", "turn": {"text": "caf\u00e9 \ud800\n", "calls": []}}
END = {"event": "end", "status": "ok"}


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def write(*lines: bytes) -> Path:
        path = tmp_path / "log.jsonl"
        path.write_bytes(encode({"event": "header", **IDENTITY, "created_utc": "then"}) + b"".join(lines))
        return path

    return write


def test_events_are_appended_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    log = EpisodeLog(path, IDENTITY, "now")
    assert log.next_turn() is None
    log.record(TURN, durable=True)
    log.record(END)
    log.close()
    events, size = read_events(path)
    assert events == [{"event": "header", **IDENTITY, "created_utc": "now"}, TURN, END]
    assert size == path.stat().st_size
    assert path.read_bytes().isascii()


def test_an_event_is_on_disk_when_record_returns(tmp_path: Path) -> None:
    log = EpisodeLog(tmp_path / "log.jsonl", IDENTITY, "now")
    log.record(TURN, durable=True)
    assert read_events(tmp_path / "log.jsonl")[0][-1] == TURN
    log.close()


def test_a_log_replays_what_it_holds_and_then_grows(write: Callable[..., Path]) -> None:
    path = write(encode(TURN))
    log = EpisodeLog(path, IDENTITY, "now")
    assert log.next_turn() == TURN["turn"]
    log.record(TURN)
    assert log.next_turn() is None
    log.record(END)
    log.close()
    assert [event["event"] for event in read_events(path)[0]] == ["header", "turn", "end"]


@pytest.mark.parametrize("cut", [1, 5, 30])
def test_a_torn_last_line_is_dropped_and_redone(write: Callable[..., Path], cut: int) -> None:
    whole = write(encode(TURN), encode(END)).read_bytes()
    path = write(encode(TURN), encode(END)[:-cut])
    log = EpisodeLog(path, IDENTITY, "now")
    log.record(TURN)
    log.record(END)
    log.close()
    assert path.read_bytes() == whole


def test_a_torn_header_starts_the_log_again(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"event":"header","sch')
    EpisodeLog(path, IDENTITY, "now").close()
    assert read_events(path)[0] == [{"event": "header", **IDENTITY, "created_utc": "now"}]


@pytest.mark.parametrize("garbled", [b'{"event":"tu\n', b"\0\0\0\n", b"[1]\n", b"\xff\n", b"\n", b'{"week":3}\n'])
@pytest.mark.parametrize("after", [encode(END), b'{"event":"en'])
def test_a_torn_middle_line_is_fatal_with_file_and_line(
    write: Callable[..., Path], garbled: bytes, after: bytes
) -> None:
    path = write(encode(TURN), garbled, after)
    before = path.read_bytes()
    with pytest.raises(LogError, match=r"log\.jsonl, line 3"):
        EpisodeLog(path, IDENTITY, "now")
    assert path.read_bytes() == before


def test_a_file_without_a_header_is_no_log(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(encode(TURN) + encode(END))
    with pytest.raises(LogError, match="line 1: a log starts with its header"):
        EpisodeLog(path, IDENTITY, "now")


@pytest.mark.parametrize(
    ("field", "value"), [("schema", 2), ("package", "1.1"), ("model", "floor"), ("tape", {"seed": 26})]
)
def test_a_log_of_another_version_or_setting_is_refused_and_kept(
    write: Callable[..., Path], field: str, value: object
) -> None:
    path = write(encode(TURN))
    before = path.read_bytes()
    with pytest.raises(UsageError, match=f"was made with {field} .* use the same settings and version"):
        EpisodeLog(path, IDENTITY | {field: value}, "now")
    assert path.read_bytes() == before


@pytest.mark.parametrize("change", [{"request": "s"}, {"week": 1}, {"event": "result"}])
def test_a_replay_that_differs_is_refused_with_line_and_field(
    write: Callable[..., Path], change: dict[str, object]
) -> None:
    log = EpisodeLog(write(encode(TURN)), IDENTITY, "now")
    [field] = change
    with pytest.raises(UsageError, match=rf"log\.jsonl, line 2: .* another {field} than the log"):
        log.record(TURN | change)
    log.close()


def test_two_runs_cannot_write_one_log(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    first, second = EpisodeLog(path, IDENTITY, "now"), EpisodeLog(path, IDENTITY, "now")
    first.record(TURN)
    with pytest.raises(UsageError, match="is being written by another run"):
        second.record(TURN)
    first.record(END)
    first.close()
    second.close()
    assert [event["event"] for event in read_events(path)[0]] == ["header", "turn", "end"]


def test_numbers_that_json_lacks_never_reach_a_log(tmp_path: Path) -> None:
    log = EpisodeLog(tmp_path / "log.jsonl", IDENTITY, "now")
    with pytest.raises(ValueError, match="JSON compliant"):
        log.record({"event": "week", "total": float("nan")})
    log.close()
    assert len((tmp_path / "log.jsonl").read_bytes().splitlines()) == 1


def test_floats_come_back_exactly() -> None:
    total = 0.1 + 0.2
    assert json.loads(encode({"event": "end", "total": total}))["total"] == total
