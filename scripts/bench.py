"""Measures how fast tapes are made and weeks are played here; docs/performance.md says what the rows mean.

Each section runs in a process of its own, so that its peak memory is its own.
"""

import dataclasses
import functools
import importlib.metadata
import importlib.util
import json
import math
import os
import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import track
from rich.table import Table

# JAX is imported within the sections: it must not start before its devices are chosen, and never in this process.

HORIZON = 26
CHUNK = 1024
# Recorded, not measured here: episodes a second of the paper's pure-Python reference on one core of such a machine.
PYTHON_PASSIVE, PYTHON_FLOOR = 470, 420
# As well: runs of its oracle a second, about 200 futures for each of 26 decisions.
PYTHON_ORACLE = 1 / 2.4
REPLICATIONS = 20
# Floors and aims: for two cores, and for a GPU.
TARGETS = {
    "cpu": {
        "tapes, every column consumed": "188,000; aim 376,000",
        "tapes, every column returned": "188,000; aim 376,000",
        "tapes classified": "aim 700,000",
        "floor": "4,400,000; aim 11,000,000",
        "random legal actions": "4,000,000",
        "fresh oracle runs": "100; aim 200",
        "published oracle runs": "42; aim 83",
    },
    "gpu": {
        "fresh oracle runs": "aim 3,300",
        "fresh oracle runs, 10,000 minted tapes": "aim 20,000",
    },
}
SHORTEST_RUN = 0.05
LONGEST_ROW = 20.0  # seconds, after which no other run of the row begins on a GPU: the oracle's rows end in minutes
EPILOG = """
\b
Examples:
  python scripts/bench.py
  python scripts/bench.py --sections tapes,weeks --json > speed.json
  python scripts/bench.py --sections stream --stream 10_000_000
  python scripts/bench.py --oracle --device gpu

\b
Exit codes: 0 measured, 1 failed, 2 bad use.
"""


class BadUse(Exception):
    """What was asked for cannot be measured here; the sentence says why."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """What to measure: the device, tapes a run, runs a row, episodes side by side, tapes streamed by chunk, and for the
    oracle published seeds, minted tapes and futures."""

    device: str
    tapes: int
    runs: int
    chunk: int | None
    batches: tuple[int, ...]
    stream: int
    stream_chunks: tuple[int, ...]
    seeds: int
    minted: int
    futures: int


@dataclasses.dataclass(frozen=True)
class Line:
    """One row of the table: a median with the best beside it, and how many times the recorded Python that is."""

    name: str
    median: float
    unit: str
    best: float | None = None
    compile_s: float | None = None
    python: float | None = None


def rate(name: str, unit: str, amount: int, seconds: list[float], compile_s: float | None, python: float = 0) -> Line:
    """A row in units a second, from the seconds that each run took for ``amount`` of them."""
    median = amount / statistics.median(seconds)
    return Line(name, median, unit, amount / min(seconds), compile_s, median / python if python else None)


def timed(run: Callable[[], Any], runs: int) -> list[float]:
    """Seconds that ``run`` takes, ``runs`` times, once it is warm; a short one is repeated and its mean taken."""

    def once(times: int) -> float:
        start = time.perf_counter()
        for _ in range(times):
            run()
        return (time.perf_counter() - start) / times

    times = math.ceil(SHORTEST_RUN / once(1))
    return [once(times) for _ in range(runs)]


def long_row(name: str, unit: str, amount: int, run: Callable[[], Any], settings: Settings, python: float) -> Line:
    """A row whose runs take seconds each: five at most, after a first one that compiles as well."""

    def once() -> float:
        start = time.perf_counter()
        run()
        return time.perf_counter() - start

    longest = math.inf if settings.device == "cpu" else LONGEST_ROW
    first, seconds = once(), [once()]
    while len(seconds) < min(settings.runs, 5) and sum(seconds) < longest:
        seconds.append(once())
    return rate(name, unit, amount, seconds, max(first - statistics.median(seconds), 0.0), python)


def compiled(function: Callable[..., Any], *args: Any) -> tuple[Callable[[], Any], float]:
    """``function(*args)`` as a compiled call that waits for its result, and the seconds that compiling took."""
    import jax

    start = time.perf_counter()
    call = jax.jit(function).lower(*args).compile()
    return lambda: jax.block_until_ready(call(*args)), time.perf_counter() - start


def mapped(function: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    """``function(x, params)`` over many x: split over all devices, and worked through in chunks on a CPU."""
    import jax
    from jax.sharding import AxisType
    from jax.sharding import PartitionSpec as P

    def split(xs: Any, params: Any) -> Any:
        def share(xs: Any, params: Any) -> Any:
            if settings.chunk is None:
                return jax.vmap(function, in_axes=(0, None))(xs, params)
            return jax.lax.map(lambda x: function(x, params), xs, batch_size=settings.chunk)

        count = len(jax.tree.leaves(xs)[0])
        # Every device gets the same number, so a batch of one stays on one device.
        number = max(n for n in range(1, jax.device_count() + 1) if count % n == 0)
        mesh = jax.make_mesh((number,), ("x",), axis_types=(AxisType.Auto,), devices=jax.devices()[:number])
        return jax.shard_map(share, mesh=mesh, in_specs=(P("x"), P()), out_specs=P("x"), check_vma=False)(xs, params)

    return split


def mint_tapes(count: int, settings: Settings) -> Any:
    """Tapes of the seeds from 0, on the devices."""
    import jax

    import stocktake_jax as st

    seeds = jax.numpy.arange(count, dtype=jax.numpy.uint32)
    return jax.block_until_ready(jax.jit(mapped(st.mint, settings))(seeds, st.WorldParams()))


def costs_under(policy: Any) -> Callable[..., Any]:
    """A function of tape and params: the costs ``[26, 13]`` and the total of a policy's episode."""
    import jax

    from stocktake_jax.sweep import play

    def costs(tape: Any, params: Any) -> Any:
        result = play(policy, tape, jax.random.key(0), params)
        return result.costs, result.total_cost

    return costs


def published(settings: Settings) -> Iterator[Line]:
    """Tapes of the published stream, drawn in Python."""
    import stocktake_jax as st

    count = min(200, settings.tapes)
    seconds = timed(lambda: [st.published_tape(seed) for seed in range(count)], settings.runs)
    yield rate("published tapes, on the host", "tapes/s", count, seconds, None, PYTHON_PASSIVE)


def tapes(settings: Settings) -> Iterator[Line]:
    """Minted tapes."""
    import jax
    import jax.numpy as jnp

    import stocktake_jax as st

    def checksum(seed: Any, params: Any) -> Any:
        return sum(column.sum(dtype=jnp.int32) for column in jax.tree.leaves(st.mint(seed, params).rows))

    def classify(seed: Any, params: Any) -> Any:
        return st.profile(st.state_features(st.mint_states(seed, params)))

    rows = {
        "tapes, every column consumed": checksum,
        "tapes, every column returned": st.mint,
        "tapes classified": classify,
    }
    seeds = jnp.arange(settings.tapes, dtype=jnp.uint32)
    for name, function in rows.items():
        run, compile_s = compiled(mapped(function, settings), seeds, st.WorldParams())
        yield rate(name, "tapes/s", settings.tapes, timed(run, settings.runs), compile_s, PYTHON_PASSIVE)


def weeks(settings: Settings) -> Iterator[Line]:
    """Weeks of the environment over tapes in memory."""
    import jax
    import jax.numpy as jnp

    import stocktake_jax as st

    params, floor = st.WorldParams(), st.policies.floor()
    minted, count, python = mint_tapes(settings.tapes, settings), settings.tapes * HORIZON, PYTHON_FLOOR * HORIZON
    for name, policy in (("floor", floor), ("random legal actions", st.policies.random_legal())):
        run, compile_s = compiled(mapped(costs_under(policy), settings), minted, params)
        yield rate(name, "weeks/s", count, timed(run, settings.runs), compile_s, python)

    run, compile_s = compiled(mapped(lambda *args: costs_under(floor)(*args)[1], settings), minted, params)
    yield rate("floor, totals only", "weeks/s", count, timed(run, settings.runs), compile_s, python)

    seeds = jnp.arange(settings.tapes, dtype=jnp.uint32)
    run, compile_s = compiled(
        mapped(lambda seed, params: costs_under(floor)(st.mint(seed, params), params), settings), seeds, params
    )
    yield rate(
        "floor, minting included", "weeks/s", count, timed(run, settings.runs), compile_s, PYTHON_FLOOR * HORIZON
    )

    chunk = settings.chunk or settings.tapes
    start = time.perf_counter()

    def evaluate() -> Any:
        return jax.block_until_ready(st.evaluate(floor, minted, jax.random.key(0), chunk=chunk))

    evaluate()
    compile_s, seconds = time.perf_counter() - start, timed(evaluate, settings.runs)
    yield rate("floor by evaluate, all it returns", "weeks/s", count, seconds, compile_s, python)


def batches(settings: Settings) -> Iterator[Line]:
    """The floor's weeks at several batch sizes."""
    import stocktake_jax as st

    for batch in settings.batches:
        minted = mint_tapes(batch, settings)
        run, compile_s = compiled(mapped(costs_under(st.policies.floor()), settings), minted, st.WorldParams())
        seconds = timed(run, settings.runs)
        yield rate(f"floor, batch of {batch:,}", "weeks/s", batch * HORIZON, seconds, compile_s)


def desk(settings: Settings) -> Iterator[Line]:
    """One episode on the host, week by week through ``place_order``, as an agent plays it."""
    import stocktake_jax as st

    start = time.perf_counter()
    st.Episode(st.published_tape(0))
    compile_s = time.perf_counter() - start
    seconds = []
    for seed in range(settings.runs + 1):
        episode = st.Episode(st.published_tape(seed))
        start = time.perf_counter()
        for week in range(HORIZON):
            qty = min(max(93 - episode.report()["inventory_position"], 0), 100)
            contract = None if week else {"action": "sign", "supplier": "qualified"}
            episode.place_order("Restore the base stock.", qty, "suez", "qualified", contract)
        seconds.append(time.perf_counter() - start)
    yield rate("desk, one episode", "weeks/s", HORIZON, seconds[1:], compile_s, PYTHON_FLOOR * HORIZON)


def stream(settings: Settings, chunk: int) -> Iterator[Line]:
    """Many tapes, a chunk at a time: minted whole, then played under the floor with all costs; totals are kept."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    import stocktake_jax as st

    params = st.WorldParams()
    mint = jax.jit(mapped(st.mint, settings))
    play = jax.jit(mapped(costs_under(st.policies.floor()), settings))

    def totals(first: int) -> np.ndarray:
        seeds = jnp.arange(first, first + chunk, dtype=jnp.uint32)
        return np.asarray(jax.block_until_ready(play(mint(seeds, params), params))[1])

    start = time.perf_counter()
    totals(0)
    compile_s, chunks = time.perf_counter() - start, max(1, settings.stream // chunk)
    start = time.perf_counter()
    kept = np.concatenate([totals(i * chunk) for i in range(chunks)])
    seconds = time.perf_counter() - start
    name = f"{len(kept):,} tapes, {chunk:,} at a time"
    yield rate(name, "weeks/s", len(kept) * HORIZON, [seconds], compile_s, PYTHON_FLOOR * HORIZON)


def oracle(settings: Settings) -> Iterator[Line]:
    """Filters over minted tapes, and the oracle's runs, fresh ones in float32 and the published ones in float64."""
    import jax

    import stocktake_jax as st

    count = settings.tapes // 8
    minted = mint_tapes(count, settings)
    for kind in ("published", "exact"):
        run, compile_s = compiled(
            mapped(lambda tape, p, k=kind: st.oracle.filter_tape(tape, k, p), settings), minted, st.WorldParams()
        )
        yield rate(
            f"{kind} filter, all factors", "weeks/s", count * (HORIZON + 1), timed(run, settings.runs), compile_s
        )

    seeds = [seed.seed for seed in st.published_seeds()][: settings.seeds]
    fifty = st.stack([st.published_tape(seed) for seed in seeds])
    some = jax.tree.map(lambda column: column[: settings.minted], minted)

    def fresh(tapes: Any) -> Callable[[], Any]:
        return lambda: st.oracle.reference(tapes, jax.random.key(0), REPLICATIONS, settings.futures)

    for name, number, play in (
        ("fresh oracle runs", len(seeds), fresh(fifty)),
        (f"fresh oracle runs, {settings.minted:,} minted tapes", settings.minted, fresh(some)),
        ("published oracle runs", len(seeds), lambda: st.oracle.published_reference(seeds)),
    ):
        yield long_row(name, "runs/s", number * REPLICATIONS, play, settings, PYTHON_ORACLE)


def draws(settings: Settings) -> Iterator[Line]:
    """Random words and normal deviates, each in the way this library makes them and in the usual ones."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from stocktake_jax.randomness import standard_normal, uniform, words

    pairs = 64

    def over_pairs(deviate: Callable[[Any, Any], Any]) -> Callable[..., Any]:
        def total(seed: Any, _: Any) -> Any:
            return jax.vmap(lambda week: deviate(*words(seed, 0, week, 2)))(jnp.arange(pairs, dtype=jnp.uint32)).sum()

        return total

    def library(seed: Any, _: Any) -> Any:
        return jax.random.bits(jax.random.fold_in(jax.random.key(0), seed), (2 * pairs,)).sum()

    def inverse(word: Any) -> Any:
        return jax.lax.erf_inv(2 * uniform(word) - 1)

    def box_muller(a: Any, b: Any) -> Any:
        radius, angle = jnp.sqrt(-2 * jnp.log1p(-uniform(a))), np.float32(2 * np.pi) * uniform(b)
        return radius * (jnp.cos(angle) + jnp.sin(angle))

    rows = {
        "words, the library's": over_pairs(lambda a, b: a ^ b),
        "words, jax.random.bits": library,
        "normals, quantile table": over_pairs(lambda a, b: standard_normal(a) + standard_normal(b)),
        "normals, erf_inv": over_pairs(lambda a, b: inverse(a) + inverse(b)),
        "normals, Box-Muller": over_pairs(box_muller),
    }
    seeds = jnp.arange(settings.tapes, dtype=jnp.uint32)
    for name, function in rows.items():
        run, compile_s = compiled(mapped(function, settings), seeds, None)
        yield rate(name, "draws/s", settings.tapes * 2 * pairs, timed(run, settings.runs), compile_s)


def anatomy(settings: Settings) -> Iterator[Line]:
    """What XLA makes of the floor's week for one chunk of episodes, and how fast this machine copies memory."""
    import jax
    import numpy as np

    import stocktake_jax as st
    from stocktake_jax.env import observe_row
    from stocktake_jax.logistics import transition

    policy, params, chunk = st.policies.floor(), st.WorldParams(), settings.chunk or 1024

    def one(state: Any, now: Any, row: Any) -> Any:
        action, _ = policy.act(params, (), observe_row(params, state, now), jax.random.key(0))
        return transition(params, state, action, now, row)

    def rows(number: int) -> Any:
        return jax.tree.map(lambda column: column[:, number], minted.rows)

    minted = jax.vmap(st.mint)(jax.numpy.arange(chunk, dtype=jax.numpy.uint32))
    state = jax.vmap(st.reset)(minted)
    call = jax.jit(jax.vmap(one)).lower(state, rows(0), rows(1)).compile()
    cost, entry = call.cost_analysis(), call.as_text().split("ENTRY")[1]
    yield Line("floor's week: bytes moved", cost["bytes accessed"] / chunk, "bytes/week")
    yield Line("floor's week: arithmetic", cost["flops"] / chunk, "ops/week")
    yield Line("floor's week: loops for a chunk", entry.count(" fusion(") + entry.count(" copy("), "loops")

    cores = os.cpu_count() or 1
    with ThreadPoolExecutor(cores) as pool:
        for place, size in (("memory", 2**27), ("cache", 2**19)):
            pairs = [(np.ones(size, np.uint8), np.empty(size, np.uint8)) for _ in range(cores)]
            times = max(1, 2**27 // size)

            def copy(pair: tuple[np.ndarray, np.ndarray], times: int = times) -> None:
                for _ in range(times):
                    np.copyto(pair[1], pair[0])

            seconds = timed(lambda pairs=pairs, copy=copy: list(pool.map(copy, pairs)), settings.runs)
            yield rate(f"copy in {place}, read and written", "GB/s", 2 * size * times * cores / 1e9, seconds, None)


def loop(settings: Settings) -> Iterator[Line]:
    """The plain compiled loop, on one core and on all; its arrays are allocated beforehand."""
    import bench_numba
    import numba
    import numpy as np

    seeds = np.arange(settings.tapes, dtype=np.uint32)
    tapes, costs, totals = bench_numba.room(settings.tapes)
    rows = (
        ("tapes", "tapes/s", 1, PYTHON_PASSIVE, lambda: bench_numba.mint(seeds, tapes)),
        ("floor", "weeks/s", HORIZON, PYTHON_FLOOR * HORIZON, lambda: bench_numba.play_floor(tapes, costs, totals)),
    )
    for name, unit, amount, python, run in rows:
        start = time.perf_counter()
        run()
        compile_s = time.perf_counter() - start
        for threads in sorted({1, numba.config.NUMBA_NUM_THREADS}):
            numba.set_num_threads(threads)
            seconds = timed(run, settings.runs)
            label = f"numba loop: {name}, {threads} thread{'s' if threads > 1 else ''}"
            yield rate(label, unit, settings.tapes * amount, seconds, compile_s, python)


SECTIONS: dict[str, Callable[..., Iterator[Line]]] = {
    section.__name__: section
    for section in (published, tapes, weeks, batches, desk, stream, oracle, draws, anatomy, loop)
}


def measure(section: Callable[[Settings], Iterator[Line]], settings: Settings) -> tuple[list[Line], float, str]:
    """Runs in a fresh process: a section's rows, the process's peak memory in MB, and the kind of device."""
    import jax

    jax.config.update("jax_platforms", settings.device)
    if settings.device == "cpu":
        jax.config.update("jax_num_cpu_devices", os.cpu_count())
    try:
        kind = jax.devices()[0].device_kind
    except RuntimeError:
        raise BadUse(f"jax finds no {settings.device.upper()} here.") from None
    lines = list(section(settings))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return lines, peak / (2**20 if sys.platform == "darwin" else 2**10), kind


def machine() -> dict[str, Any]:
    """What the figures hang on."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return {
        "cores": os.cpu_count(),
        "cpu": models[0] if models else platform.processor(),
        "python": platform.python_version(),
        "jax": importlib.metadata.version("jax"),
    }


def tasks(names: list[str], settings: Settings) -> Iterator[tuple[str, Callable[[Settings], Iterator[Line]]]]:
    """What runs in a process of its own: every section once, the stream once for each chunk."""
    for name in names:
        if name == "stream":
            for chunk in settings.stream_chunks:
                yield name, functools.partial(stream, chunk=chunk)
        else:
            yield name, SECTIONS[name]


def run(names: list[str], settings: Settings, console: Console, quiet: bool) -> tuple[list[dict], str]:
    """All rows as dicts, and the kind of device."""
    rows: list[dict] = []
    kind = ""
    # A spawned process starts without anything of this one, JAX's devices least of all.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        planned = list(tasks(names, settings))
        for name, section in track(planned, "Measuring", console=console, transient=True, disable=quiet):
            lines, peak, kind = pool.submit(measure, section, settings).result()
            rows += [{"section": name, "peak_mb": peak} | dataclasses.asdict(line) for line in lines]
    return rows, kind


def figure(value: float) -> str:
    """A number with three digits or more, millions as such."""
    if value >= 1e6:
        return f"{value / 1e6:,.2f} M"
    return f"{value:,.{0 if value >= 100 else 1}f}"


def as_table(rows: list[dict], facts: dict[str, Any], device: str) -> Table:
    """The rows for reading."""
    title = f"{facts['cpu']}, {facts['cores']} cores; {facts['device']}; jax {facts['jax']}, Python {facts['python']}"
    table = Table(title=title, caption="x Python: times the paper's pure-Python reference, as recorded on one core.")
    table.add_column("row", no_wrap=True)
    where = "2 cores" if device == "cpu" else "a GPU"
    for heading in ("median", "best", "compile s", "x Python", f"target on {where}", "peak MB"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row, after in zip(rows, [*rows[1:], None], strict=True):
        table.add_row(
            row["name"],
            f"{figure(row['median'])} {row['unit']}",
            "" if row["best"] is None else figure(row["best"]),
            "" if row["compile_s"] is None else f"{row['compile_s']:.1f}",
            "" if row["python"] is None else figure(row["python"]),
            TARGETS[device].get(row["name"], ""),
            figure(row["peak_mb"]),
            end_section=after is None or after["section"] != row["section"],
        )
    return table


def chosen(sections: str) -> list[str]:
    """The sections named, in their order."""
    names = [name.strip() for name in sections.split(",")]
    for name in names:
        if name not in SECTIONS:
            raise click.UsageError(f"There is no section {name!r}; the sections are {', '.join(SECTIONS)}.")
    return names


@click.command(
    help=__doc__, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"], "show_default": True}
)
@click.option("--device", type=click.Choice(["cpu", "gpu"]), default="cpu", help="Where JAX runs.")
@click.option("--sections", help=f"Which, separated by commas.  [default: {','.join(SECTIONS)}]")
@click.option("--oracle", "only_oracle", is_flag=True, help="Only the oracle's rows: short for --sections oracle.")
@click.option("--chunk", type=click.IntRange(1), help="Episodes side by side.  [default: 1024; on a GPU all]")
@click.option("--stream", "streamed", type=click.IntRange(1), default=1_000_000, help="Tapes of the streaming test.")
@click.option("--quick", is_flag=True, help="Small and rough: to see that it runs.")
@click.option("--json", "as_json", is_flag=True, help="Print the rows as JSON and nothing else on stdout.")
@click.option("--quiet", is_flag=True, help="No progress on stderr.")
def main(
    device: str, sections: str | None, only_oracle: bool, chunk: int | None, streamed: int, quick: bool,
    as_json: bool, quiet: bool,
) -> None:  # fmt: skip
    if only_oracle and sections:
        raise click.UsageError("--oracle is short for --sections oracle: give one of the two.")
    names, console = chosen("oracle" if only_oracle else sections or ",".join(SECTIONS)), Console(stderr=True)
    cores = os.cpu_count() or 1
    settings = Settings(
        device=device,
        tapes=1024 * cores if quick else 32_768 * cores,
        runs=1 if quick else 7,
        chunk=chunk or (CHUNK if device == "cpu" else None),
        batches=(1, 64) if quick else (1, 64, 1024, 8192, 65_536),
        stream=min(streamed, 4096 * cores) if quick else streamed,
        stream_chunks=tuple(size * cores for size in ((512, 1024) if quick else (8192, 32_768, 131_072))),
        seeds=2 if quick else 50,
        minted=2 if quick else 50 if device == "cpu" else 10_000,
        futures=8 if quick else 200,
    )
    if "loop" in names and importlib.util.find_spec("numba") is None:
        names.remove("loop")
        console.print("The section loop is left out: numba is not installed; `make lint` installs it.")
    try:
        rows, kind = run(names, settings, console, quiet)
    except BadUse as error:
        raise click.UsageError(f"{error} Take --device cpu, or install jax for it: make setup CUDA=12 or 13.") from None
    facts = machine() | {"device": kind}
    if as_json:
        click.echo(json.dumps({"machine": facts, "rows": rows}, indent=2))
    else:
        wide = Console()
        wide.width = max(wide.width, 140)
        wide.print(as_table(rows, facts, device))


if __name__ == "__main__":
    main()
