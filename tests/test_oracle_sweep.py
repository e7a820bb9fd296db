"""scripts/oracle_sweep.py: one table whatever the shards, blocks, memory and stops; and sentences for bad use."""

import importlib.util
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from click.testing import CliRunner

import stocktake_jax as st
from stocktake_jax import tables

polars = pytest.importorskip("polars")

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "oracle_sweep.py"
SETTINGS = ["--replications", "2", "--futures", "8"]
BLOCK = ["--block", "2"]  # one shape to compile
SEEDS = "1,25,112,mint:7,25"


def load():
    spec = importlib.util.spec_from_file_location("oracle_sweep", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


oracle_sweep = load()


def call(*arguments, code=0):
    """Runs the command here, on the devices that the tests have; returns what it wrote."""
    result = CliRunner().invoke(oracle_sweep.main, [*map(str, arguments), "--devices", "2"])
    assert result.exit_code == code, (result.output, result.exception)
    return result


def make(out, *arguments, seeds=SEEDS, settings=SETTINGS, code=0):
    return call("--seeds", seeds, "--out", out, *settings, *arguments, code=code)


def assert_same_table(one, other):
    """Bit for bit, in the same order."""
    one, other = polars.read_parquet(one), polars.read_parquet(other)
    assert one.schema == other.schema
    for name in one.columns:
        np.testing.assert_array_equal(one[name].to_numpy(), other[name].to_numpy())


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The table of one whole run."""
    out = tmp_path_factory.mktemp("whole") / "oracle.parquet"
    make(out, *BLOCK)
    return out


@pytest.fixture(scope="module")
def shards(whole, tmp_path_factory):
    """The same sweep in two shards."""
    out = tmp_path_factory.mktemp("shards") / "oracle.parquet"
    for i in (1, 2):
        make(out, "--shard", f"{i}/2", *BLOCK)
    return sorted(out.parent.iterdir())


def test_table_holds_floor_reference_and_what_made_them(whole):
    frame = polars.read_parquet(whole)
    assert list(frame.select("source", "seed").iter_rows()) == [
        ("published", 1), ("published", 25), ("published", 112), ("minted", 7), ("minted", 25),
    ]  # fmt: skip
    published = {s.seed: s for s in st.published_seeds()}
    for row in frame.head(3).iter_rows(named=True):
        assert row["group"] == published[row["seed"]].group
        assert row["floor"] == pytest.approx(published[row["seed"]].floor, abs=0.0501)
        assert row["tape"] == st.tape_digest(st.published_tape(row["seed"]))
    tapes = st.stack([st.published_tape(s) for s in (1, 25, 112)])
    mean, error = st.oracle.reference(tapes, jax.random.key(0), 2, 8, chunk=2)
    np.testing.assert_array_equal(frame["oracle_mean"].head(3), mean)
    np.testing.assert_array_equal(frame["oracle_se"].head(3), error)
    for row in frame.iter_rows(named=True):
        assert row["headroom"] == row["floor"] - row["oracle_mean"]
        assert row["thin"] == (0 < row["headroom"] < 700)
        assert row["negative"] == (row["headroom"] <= 0)
        assert (row["replications"], row["futures"], row["kind"], row["key"]) == (2, 8, "paper", 0)
        assert (row["world"], row["package"]) == (st.world_hash(), st.__version__)
    assert not whole.with_name("oracle.parquet.parts").exists()


def test_shards_merge_into_the_table_of_the_whole(whole, shards, tmp_path):
    assert [path.name for path in shards] == ["oracle.1-of-2.parquet", "oracle.2-of-2.parquet"]
    merged = tmp_path / "merged.parquet"
    call("--merge", *reversed(shards), "--out", merged)
    assert_same_table(merged, whole)
    assert tables.read_settings(merged) == tables.read_settings(whole)
    before = merged.read_bytes()
    make(merged)  # the whole sweep has nothing left to do
    assert merged.read_bytes() == before


def test_finished_table_is_left_alone(whole):
    before = whole.stat()
    answer = json.loads(make(whole, "--json").stdout)
    assert whole.stat() == before
    assert answer["tapes"] == 5
    assert answer["groups"][-1]["group"] == "all"
    assert answer["groups"][-1]["floor"] == polars.read_parquet(whole)["floor"].mean()


def start(out):
    """The command in its own process, one tape at a time; returns once two tapes are on disk."""
    command = [sys.executable, SCRIPT, "--seeds", SEEDS, "--out", out, *SETTINGS, "--block", "1", "--quiet"]
    process = subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 300
    while len(list(out.parent.glob("oracle.parquet.parts/*.parquet"))) < 2:
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return process


def test_ctrl_c_keeps_what_is_done_and_says_how_to_go_on(whole, tmp_path):
    out = tmp_path / "oracle.parquet"
    process = start(out)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130, said
    assert "Resume with:" in said
    assert shlex.split(said.splitlines()[-1])[-len(SETTINGS) - 3 :] == [*SETTINGS, "--block", "1", "--quiet"]
    assert not out.exists()
    parts = {path: path.stat().st_mtime_ns for path in (tmp_path / "oracle.parquet.parts").glob("*.parquet")}
    assert 2 <= len(parts) < 5

    said = make(out, "--key", "1", code=2).stderr
    assert "was made with key 0, not 1: give the same settings, or another file (--out)." in said
    assert parts == {path: path.stat().st_mtime_ns for path in parts}

    make(out, *BLOCK)
    assert_same_table(out, whole)
    assert os.listdir(tmp_path) == ["oracle.parquet"]


@pytest.mark.slow
def test_killed_process_leaves_nothing_that_misleads(whole, tmp_path):
    out = tmp_path / "oracle.parquet"
    process = start(out)
    process.kill()
    process.communicate(timeout=120)
    (tmp_path / "oracle.parquet.parts" / "published-112.parquet.1.tmp").write_bytes(b"half a block")
    make(out, *BLOCK)
    assert_same_table(out, whole)
    assert os.listdir(tmp_path) == ["oracle.parquet"]


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["--block", "3"], ["--memory", "1MB"], ["--memory", "250KB", "--block", "4"]])
def test_blocks_and_memory_do_not_matter(whole, arguments, tmp_path):
    make(tmp_path / "oracle.parquet", *arguments)
    assert_same_table(tmp_path / "oracle.parquet", whole)


@pytest.mark.slow
def test_number_of_devices_does_not_matter(whole, tmp_path):
    out = tmp_path / "oracle.parquet"
    command = [sys.executable, SCRIPT, "--seeds", SEEDS, "--out", out, *SETTINGS, "--devices", "3", "--quiet"]
    subprocess.run(list(map(str, command)), check=True, timeout=300)
    assert_same_table(out, whole)


@pytest.mark.slow
def test_noisy_tapes_get_more_runs(whole, tmp_path):
    out = tmp_path / "oracle.parquet"
    make(out, "--wish", "200", "--most-replications", "6")
    before, after = polars.read_parquet(whole), polars.read_parquet(out)
    for old, new in zip(before.iter_rows(named=True), after.iter_rows(named=True), strict=True):
        assert new["replications"] in (2, 4, 6)
        assert new["oracle_se"] <= 200 or new["replications"] == 6
        assert (new["replications"] == 2) == (old["oracle_se"] <= 200)
    assert after["replications"].max() > 2
    for block in (1, 5):  # whether tapes get their runs one by one or side by side
        other = tmp_path / f"{block}.parquet"
        make(other, "--wish", "200", "--most-replications", "6", "--block", block)
        assert_same_table(other, out)


# Bad use: a sentence, exit code 2, and nothing is touched.


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--seeds", "isolatd"], "'isolatd', which is neither"),
        (["--seeds", "mint:0-1000000"], "one run plays at most 1000000"),
        (["--seeds", "1", "--memory", "1KB"], "200 futures on 2 devices need at least 1.2MB."),
        (["--seeds", "1", "--memory", "much"], "'much' is no amount of memory: write 500MB or 2GB."),
        (["--seeds", "1", "--shard", "3/2"], "'3/2' is no shard: write 1/4 for the first of four."),
        (["--seeds", "1", "--shard", "2/2"], "1 tapes do not make 2 shards"),
        (["--seeds", "1", "--kind", "best"], "kind is 'best'"),
        (["--seeds", "1", "--wish", "0"], "0.0 is not in the range x>0"),
        (["--seeds", "1", "a.parquet"], "a.parquet is left over"),
        ([], "name tapes with --seeds, or the shards to --merge"),
        (["--merge"], "there is nothing to merge"),
        (["--merge", "a.parquet"], "a.parquet is not there"),
    ],
)
def test_bad_use_gets_a_sentence(arguments, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = call(*arguments, "--out", "oracle.parquet", code=2).stderr
    assert sentence in " ".join(said.split())
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"settings": ["--replications", "3", "--futures", "8"]}, "replications 2, not 3"),
        ({"settings": ["--replications", "2", "--futures", "9"]}, "futures 8, not 9"),
        ({"seeds": "1,25,112,mint:7,26"}, "seeds "),
    ],
)
def test_finished_table_of_other_settings_is_not_overwritten(whole, arguments, field):
    before = whole.read_bytes()
    assert f"was made with {field}" in make(whole, **arguments, code=2).stderr
    assert whole.read_bytes() == before


def test_other_files_are_not_overwritten(tmp_path):
    for content in (b"my notes", b""):
        out = tmp_path / "oracle.parquet"
        out.write_bytes(content)
        assert "is no table of this kind" in make(out, code=2).stderr
        assert out.read_bytes() == content


def test_parts_that_do_not_belong_together_are_refused(whole, shards, tmp_path):
    out = tmp_path / "merged.parquet"
    first, second = shards
    other = tmp_path / "other.parquet"
    frame = polars.read_parquet(second)
    settings = tables.read_settings(second)
    frame.write_parquet(other, metadata={"stocktake_settings": json.dumps(settings | {"key": 1})})
    for parts, sentence in (
        ([first], "1 of 2 shards are here: add 2/2."),
        ([first, second, first], "is shard 1 of 2, and so is"),
        ([first, other], "was made with key 1, not 0"),
        ([first, whole], "is no shard but a whole table"),
    ):
        assert sentence in call("--merge", *parts, "--out", out, code=2).stderr
    assert not out.exists()
    assert "was made with shard" in call("--merge", *shards, "--out", first, code=2).stderr


def test_without_polars_a_sentence_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "polars", None)
    assert "pip install 'stocktake-jax[data]'" in make(tmp_path / "oracle.parquet", code=2).stderr
    assert os.listdir(tmp_path) == []


def test_memory_bounds_the_runs_side_by_side():
    plan = oracle_sweep.Plan("paper", 200, 0, 20, None, None)
    devices = jax.local_device_count()
    assert oracle_sweep.chunk_size(10**10, plan, 32) == 32
    assert oracle_sweep.chunk_size(10**10, plan, 1) == -(-20 // devices)
    assert oracle_sweep.chunk_size(7 * devices * oracle_sweep.bytes_per_run(200), plan, 32) == 7
