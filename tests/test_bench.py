"""The benchmark runs, and the plain compiled loop beside it computes what the library does."""

import json
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import stocktake_jax as st

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"


def bench(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, SCRIPTS / "bench.py", *options], capture_output=True, text=True, timeout=900)


@pytest.mark.slow
def test_bench_measures_every_section(tmp_path: Path) -> None:
    run = bench("--quick", "--json", "--quiet")
    assert run.returncode == 0, run.stderr
    rows = json.loads(run.stdout)["rows"]
    sections = {row["section"] for row in rows}
    assert sections >= {"published", "tapes", "weeks", "batches", "desk", "stream", "oracle", "anatomy"}
    assert all(row["median"] > 0 and row["peak_mb"] > 0 for row in rows)
    names = {row["name"] for row in rows}
    assert len(names) == len(rows)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--sections", "tapes,seconds"), "There is no section 'seconds'; the sections are published, tapes"),
        (("--device", "abacus"), "'abacus' is not one of 'cpu', 'gpu'"),
        (("--stream", "0"), "0 is not in the range"),
        (("--oracle", "--sections", "tapes"), "--oracle is short for --sections oracle: give one of the two."),
    ],
)
def test_bad_use_is_a_sentence(options: tuple[str, ...], words: str) -> None:
    run = bench(*options)
    assert run.returncode == 2
    assert words in run.stderr
    assert "Traceback" not in run.stderr


@pytest.mark.slow
def test_plain_loop_equals_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    monkeypatch.syspath_prepend(SCRIPTS)
    import bench_numba

    # Both ends of the seeds' range, and no more than one chunk, which compiles once.
    seeds = np.concatenate([np.arange(900), 2**32 - 1 - np.arange(100)]).astype(np.uint32)
    tapes, *_ = bench_numba.room(len(seeds))
    bench_numba.mint(seeds, tapes)
    minted = jax.vmap(st.mint)(jax.numpy.asarray(seeds))
    for name, ours, theirs in zip(
        bench_numba.COLUMNS, np.moveaxis(tapes, 1, 0), jax.tree.leaves(minted.rows), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs, name)

    for dtype, tolerance in ((np.float32, 1e-3), (np.float64, 1e-9)):
        _, costs, totals = bench_numba.room(len(seeds), dtype)
        bench_numba.play_floor(tapes, costs, totals)
        played = st.evaluate(st.policies.floor(), minted, jax.random.key(0), float64=dtype is np.float64)
        np.testing.assert_allclose(totals, played.total_cost, rtol=0, atol=tolerance)
        np.testing.assert_allclose(costs, played.costs, rtol=0, atol=tolerance)
