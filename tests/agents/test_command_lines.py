"""The command lines, as a user meets them: in a process of their own, in a folder of their own."""

import json
import os
import re
import runpy
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.agents.loopback import Loopback

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
SEEDS = "0-7"
Streams = Callable[[str], dict[str, list[bytes]]]


def command(script: str, *arguments: str) -> list[str]:
    return [sys.executable, str(SCRIPTS / script), *arguments]


def finish(arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(arguments, cwd=folder, capture_output=True, text=True, timeout=300, encoding="utf-8")


def interrupted(folder: Path, how: signal.Signals) -> subprocess.CompletedProcess[str]:
    """A run of many episodes, one at a time, that gets a signal while it is busy with the third."""
    arguments = command("run_llm.py", "--model", "random", "--seeds", SEEDS, "--out", "out", "--concurrency", "1")
    process = subprocess.Popen(arguments, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    third = folder / "out" / "published-2.jsonl"
    while not (third.exists() and third.read_bytes().count(b"\n") > 5):
        assert process.poll() is None, process.communicate()
        time.sleep(0.002)
    process.send_signal(how)
    out, err = process.communicate(timeout=60)
    assert not (folder / "out" / "published-7.jsonl").exists()
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run, never interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    done = finish(command("run_llm.py", "--model", "random", "--seeds", SEEDS, "--out", "out", "--json"), folder)
    assert done.returncode == 0, done.stderr
    (folder / "stdout.json").write_text(done.stdout, encoding="utf-8")
    return folder


def bodies(folder: Path) -> dict[str, bytes]:
    """The logs without their headers, which hold the time."""
    return {path.name: path.read_bytes().partition(b"\n")[2] for path in sorted((folder / "out").glob("*.jsonl"))}


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGKILL")
def test_a_killed_run_resumes_to_the_same_bytes(tmp_path: Path, whole: Path) -> None:
    killed = interrupted(tmp_path, signal.SIGKILL)
    assert killed.returncode == -signal.SIGKILL
    before = bodies(tmp_path)
    resumed = finish(killed.args, tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    after = bodies(tmp_path)
    assert after == bodies(whole)
    assert all(after[name] == body for name, body in before.items() if b'"event":"end"' in body)


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Windows cannot send Ctrl-C to one process")
def test_ctrl_c_drains_and_prints_the_command_that_resumes(tmp_path: Path, whole: Path) -> None:
    stopped = interrupted(tmp_path, signal.SIGINT)
    assert stopped.returncode == 130
    resume = re.search(r"Resume with:\n  (.*)\n", stopped.stderr)
    assert resume is not None
    resumed = finish(shlex.split(resume[1]), tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    assert bodies(tmp_path) == bodies(whole)


def test_json_is_all_there_is_on_stdout(whole: Path) -> None:
    result = json.loads((whole / "stdout.json").read_text(encoding="utf-8"))
    assert result["complete"] is True
    assert result["planned"] == len(result["rows"]) == 8
    assert result["statuses"] == {"ok": 8}
    assert result["groups"][-1]["group"] == "all"


@pytest.mark.slow
def test_the_same_command_again_does_nothing_and_prints_the_same(whole: Path) -> None:
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in (whole / "out").iterdir()}
    again = finish(command("run_llm.py", "--model", "random", "--seeds", SEEDS, "--out", "out", "--json"), whole)
    assert again.returncode == 0
    assert again.stdout == (whole / "stdout.json").read_text(encoding="utf-8")
    assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in (whole / "out").iterdir()} == before


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--model", "floor", "--seeds", "9-1"], "the range 9-1 runs backwards: write 1-9."),
        (["--model", "floor", "--seeds", "1", "--out", "taken"], "choose another with --out"),
        (["--model", "best", "--seeds", "1"], "there is no model 'best': use one of idle, random"),
        (["--model", "mine.py:act", "--seeds", "1"], "the agent mine.py:act cannot be loaded"),
        (["--model", "recorded/nothing", "--seeds", "1"], "has no logs"),
        (["--model", "openai/gpt", "--seeds", "1"], "OPENAI_API_KEY"),
        (["--model", "local/m", "--seeds", "1"], "give --base-url"),
        (["--model", "floor", "--seeds", "1", "--effort", "low"], "--effort is for models behind an API"),
        (["--model", "floor", "--seeds", "1", "--arm", "anon"], "knows the report by its own keys"),
        (["--model", "floor", "--seeds", "1", "--arm", "blind"], "'blind' is not one of"),
        (["--model", "floor", "--seeds", "1", "--prompt", "none.md"], "the prompt none.md cannot be read"),
        (["--model", "floor", "--seeds", "1", "--bulletins", "none.json"], "the bulletins none.json cannot be read"),
        (["--model", "floor", "--seeds", "1", "--prices", "none.json"], "the price file none.json cannot be read"),
        (["--model", "floor", "--seeds", "1", "--attempt-timeout", "0"], "it must be more than 0 seconds"),
        (["--model", "floor", "--seeds", "0-999", "--repeats", "100"], "at most 10000"),
        (["--model", "floor", "--seeds", "1", "--max-usd", "0"], "0.0 is not in the range x>0"),
        (["--model", "floor"], "Missing option '--seeds'"),
        (["--model", "floor", "--seeds", "1", "--concurrency", "0"], "0 is not in the range"),
    ],
)
def test_bad_use_is_a_sentence_and_exit_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], sentence: str
) -> None:
    (tmp_path / "taken").write_text("a file", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    done = CliRunner().invoke(runpy.run_path(str(SCRIPTS / "run_llm.py"))["main"], arguments)
    assert done.exit_code == 2
    assert sentence in " ".join(done.stderr.split())
    assert done.stdout == ""
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


@pytest.mark.slow
def test_a_damaged_log_is_exit_code_1(tmp_path: Path) -> None:
    arguments = command("run_llm.py", "--model", "idle", "--seeds", "1", "--quiet")
    assert finish(arguments, tmp_path).returncode == 0
    log = tmp_path / "runs" / "idle-1" / "published-1.jsonl"
    log.write_bytes(log.read_bytes().replace(b'"event":"week"', b'"event":week', 1))
    done = finish(arguments, tmp_path)
    assert done.returncode == 1
    assert "published-1.jsonl, line 4" in done.stderr


@pytest.mark.parametrize("script", ["run_llm.py", "quickstart.py", "doctor.py"])
def test_help_has_an_example(tmp_path: Path, script: str) -> None:
    done = finish(command(script, "--help"), tmp_path)
    assert done.returncode == 0
    assert f"python scripts/{script} --" in done.stdout


@pytest.mark.slow
def test_quickstart_plays_four_agents_once(tmp_path: Path) -> None:
    first = finish(command("quickstart.py"), tmp_path)
    assert first.returncode == 0, first.stderr
    rows = [line for line in first.stdout.splitlines() if line.startswith("│")]
    assert [row.split("│")[1].strip() for row in rows] == ["idle", "random", "floor", "planner"]
    floor = next(row for row in rows if "floor" in row)
    assert "0.00 (0.00)" in floor
    assert "0/5" in floor
    runs = tmp_path / "runs" / "quickstart"
    before = {path: path.stat().st_mtime_ns for path in runs.rglob("*") if path.is_file()}
    assert len(before) == 4 * 6
    second = finish(command("quickstart.py"), tmp_path)
    assert second.stdout == first.stdout
    scores = json.loads(finish(command("quickstart.py", "--json"), tmp_path).stdout)
    assert list(scores) == ["idle", "random", "floor", "planner"]
    assert {path: path.stat().st_mtime_ns for path in runs.rglob("*") if path.is_file()} == before


def test_a_dry_run_asks_nobody_and_writes_nothing(tmp_path: Path) -> None:
    arguments = command(
        "run_llm.py", "--model", "planner", "--seeds", "published", "--repeats", "2", "--dry-run", "--json"
    )
    done = finish(arguments, tmp_path)
    assert done.returncode == 0, done.stderr
    expected = json.loads(done.stdout)
    assert expected["episodes"] == 100
    assert expected["calls"][0] == 2600
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_finished_runs_are_verified_and_scored(tmp_path: Path, whole: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "async def act(report, tools):\n    await tools.place_order(rationale='r', qty=0)\n", encoding="utf-8"
    )
    played = finish(command("run_llm.py", "--model", "mine.py:act", "--seeds", "0-7", "--out", "mine"), tmp_path)
    assert played.returncode == 0, played.stderr
    verified = finish(command("verify.py", "mine", str(whole / "out"), "--json"), tmp_path)
    assert verified.returncode == 0, verified.stderr
    assert {f["status"] for findings in json.loads(verified.stdout).values() for f in findings} == {"same"}
    scored = finish(command("score.py", "mine", str(whole / "out"), "--json"), tmp_path)
    assert [(cell["model"], cell["finished"]) for cell in json.loads(scored.stdout)["arms"]] == [
        ("mine.py:act", 8),
        ("random", 8),
    ]
    assert json.loads(scored.stdout)["beliefs"] == {}
    graded = finish(command("grade.py", "mine", "--json", "--quiet"), tmp_path)
    assert graded.returncode == 0, graded.stderr
    assert json.loads(graded.stdout)[0]["weeks"] == 8 * 26
    seen = finish(command("score.py", "mine", "--json", "--definition", "sound"), tmp_path)
    assert set(json.loads(seen.stdout)["beliefs"]["mine"]) == {"graded by keyword", "floor, exact posterior"}
    log = tmp_path / "mine" / "published-3.jsonl"
    log.write_bytes(log.read_bytes().replace(b'"qty\\": 0', b'"qty\\": 1', 1))
    broken = finish(command("verify.py", "mine"), tmp_path)
    assert broken.returncode == 1
    assert "published-3.jsonl" in broken.stderr
    for script in ("verify.py", "score.py"):
        nothing = finish(command(script, "nothing"), tmp_path)
        assert (nothing.returncode, nothing.stdout) == (2, "")
        assert "no manifest of a run" in nothing.stderr


@pytest.mark.slow
def test_the_doctor_has_exit_codes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Loopback() as server:
        well = finish(
            command("doctor.py", "--model", "local/fake", "--base-url", server.url("local"), "--json"), tmp_path
        )
        assert well.returncode == 0, well.stderr
        assert json.loads(well.stdout)["healthy"]
    ill = finish(command("doctor.py", "--model", "local/fake", "--base-url", server.url("local")), tmp_path)
    assert ill.returncode == 1
    assert "check --base-url" in " ".join(ill.stdout.split())
    wrong = finish(command("doctor.py", "--model", "planner"), tmp_path)
    assert (wrong.returncode, wrong.stdout) == (2, "")


@pytest.mark.slow
def test_the_benchmark_of_the_harness_measures_every_row(tmp_path: Path) -> None:
    done = finish(command("bench_agents.py", "--quick", "--json"), tmp_path)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert len(rows) == 7
    assert all(row["value"] > 0 for row in rows)
    assert list(tmp_path.iterdir()) == []
