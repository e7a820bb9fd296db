"""Measures floor and fresh oracle references on any set of tapes, and writes them to a Parquet table."""

import dataclasses
import hashlib
import json
import math
import os
import re
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import jax
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table as Printed

import stocktake_jax as st
from stocktake_agents.cli import resume_command
from stocktake_agents.errors import UsageError
from stocktake_agents.scoreboard import THIN_HEADROOM
from stocktake_agents.seeds import EpisodeName, parse_seeds
from stocktake_jax.oracle.references import RUNS_ON_CPU, bytes_per_run, reference_runs
from stocktake_jax.params import RULES_VERSION
from stocktake_jax.tables import Table, TableError, merge

MOST_TAPES = 1_000_000
UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
EPILOG = """
\b
Examples:
  python scripts/oracle_sweep.py --seeds published --out oracle.parquet
  python scripts/oracle_sweep.py --seeds mint:0-99999 --out pool.parquet --wish 60 --shard 1/4
  python scripts/oracle_sweep.py --merge pool.*-of-4.parquet --out pool.parquet

\b
The same command again goes on where it was stopped, and does nothing to a table that is finished.
Exit codes: 0 the table is there, 1 failed, 2 bad use, 130 Ctrl-C. Columns and units: docs/oracle.md.
"""


@dataclasses.dataclass(frozen=True)
class Plan:
    """All that the references depend on besides the tapes.

    Attributes:
        kind: which oracle.
        futures: joint futures for each of its decisions.
        key: seed of its randomness.
        replications: runs of each tape.
        wish: standard error ($) below which a tape needs no more runs; None for a fixed number of runs.
        most_replications: runs after which a tape gets no more for ``wish``; None without one.
    """

    kind: str
    futures: int
    key: int
    replications: int
    wish: float | None
    most_replications: int | None

    def settings(self, names: Sequence[EpisodeName], shard: str | None) -> dict[str, Any]:
        """What a table says of itself: these, the set of tapes, the world and what computed it."""
        seeds = hashlib.sha256("\n".join(map(str, names)).encode()).hexdigest()[:12]
        made_by = {"package": st.__version__, "rules": RULES_VERSION, "world": st.world_hash()}
        number = {"float": "float32", "backend": jax.default_backend()}
        return made_by | number | dataclasses.asdict(self) | {"seeds": seeds, "tapes": len(names), "shard": shard}

    def references(
        self, tapes: Sequence[st.Tape], chunk: int, progress: Callable[[int], None]
    ) -> Iterator[tuple[float, float, int]]:
        """Mean, standard error and number of runs, for every tape."""
        uncounted = len(tapes) * self.replications

        def count(runs: int) -> None:
            nonlocal uncounted
            counted = min(runs, uncounted)
            uncounted -= counted
            progress(counted)  # the runs that a wish adds were not foreseen: the bar counts on no more

        figures = reference_runs(
            st.stack(tapes), jax.random.key(self.key), self.replications, self.futures, self.kind,
            wish=self.wish, most_replications=self.most_replications or self.replications, chunk=chunk, progress=count,
        )  # fmt: skip
        yield from zip(*(figure.tolist() for figure in figures), strict=True)


def rows(
    names: Sequence[EpisodeName], plan: Plan, chunk: int, block: int, progress: Callable[[int], None]
) -> list[dict]:
    """The table's rows of some tapes, at most ``block``."""
    tapes = [name.tape() for name in names]
    filled = st.stack(tapes + tapes[-1:] * (block - len(tapes)))  # always as many: there is one shape to compile
    floors = st.evaluate(st.policies.floor(), filled, jax.random.key(0), float64=True).total_cost
    profiles = np.asarray(st.profile(st.tape_features(filled)))
    published = {EpisodeName("published", s.seed): s.group for s in st.published_seeds()}
    references = list(plan.references(tapes, chunk, progress))
    made = []
    for i, (name, tape, (mean, error, runs)) in enumerate(zip(names, tapes, references, strict=True)):
        floor = float(floors[i])
        headroom = floor - mean
        made.append(
            {
                "source": name.source, "seed": name.seed, "tape": st.tape_digest(tape),
                "group": published.get(name, st.PROFILES[profiles[i]]),
                "floor": floor, "oracle_mean": mean, "oracle_se": error, "replications": runs,
                "headroom": headroom, "thin": 0 < headroom < THIN_HEADROOM, "negative": headroom <= 0,
                "futures": plan.futures, "kind": plan.kind, "key": plan.key,
                "world": st.world_hash(), "package": st.__version__,
            }
        )  # fmt: skip
    return made


def chunk_size(memory: int, plan: Plan, tapes: int) -> int:
    """Runs in lockstep on each device, for ``memory`` bytes over all of them and ``tapes`` at a time."""
    devices = jax.local_device_count()
    affordable = memory // (devices * bytes_per_run(plan.futures))
    if not affordable:
        raise UsageError(
            f"--memory is too small: {plan.futures} futures on {devices} device{'s' * (devices > 1)} need at least "
            f"{math.ceil(devices * bytes_per_run(plan.futures) / 10**5) / 10}MB."
        )
    together = plan.replications * tapes
    most = RUNS_ON_CPU if jax.default_backend() == "cpu" else together
    return min(affordable, most, -(-together // devices))


def parse_memory(_: click.Context, __: click.Parameter, text: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]B)", text.strip().upper())
    if match is None:
        raise click.BadParameter(f"{text!r} is no amount of memory: write 500MB or 2GB.")
    return int(float(match[1]) * UNITS[match[2]])


def parse_shard(_: click.Context, __: click.Parameter, text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise click.BadParameter(f"{text!r} is no shard: write 1/4 for the first of four.")
    return int(match[1]), int(match[2])


@contextmanager
def exit_codes() -> Iterator[None]:
    """Turns what ends a sweep early into a sentence on stderr and an exit code."""
    try:
        yield
    except (UsageError, TableError) as error:
        message, code = f"Error: {error}", 2
    except OSError as error:
        message, code = f"Error: {error}. Finished blocks are kept; go on with:\n  {resume_command()}", 1
    except KeyboardInterrupt:
        message, code = f"Stopped; every finished block is kept. Resume with:\n  {resume_command()}", 130
    else:
        return
    click.echo(message, err=True)
    raise SystemExit(code)


def sweep(table: Table, names: Sequence[EpisodeName], plan: Plan, memory: int, block: int, console: Console) -> None:
    """Makes all rows that are not there yet."""
    done = table.done
    waiting = [name for name in names if (name.source, name.seed) not in done]
    block = min(block, len(names))
    chunk = chunk_size(memory, plan, block)
    columns = (
        TextColumn("oracle runs"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )  # fmt: skip
    live, started = console.is_terminal and not console.quiet, time.monotonic()
    with Progress(*columns, console=console, transient=True, disable=not live, speed_estimate_period=120) as bar:
        total, before = len(names) * plan.replications, (len(names) - len(waiting)) * plan.replications
        task = bar.add_task("", total=total, completed=before, rate="")

        def progress(runs: int) -> None:
            speed = bar.tasks[0].speed
            bar.update(task, advance=runs, rate=f"{speed:.1f}/s" if speed else "")

        for start in range(0, len(waiting), block):
            some = waiting[start : start + block]
            table.keep(rows(some, plan, chunk, block, progress))
            if not live:
                ended = start + len(some)
                minutes = (time.monotonic() - started) / 60
                left = minutes * (len(waiting) / ended - 1)
                line = f"{len(names) - len(waiting) + ended} of {len(names)} tapes, {ended / minutes:.0f} a minute"
                console.print(f"{line}, {left:.0f} min left", highlight=False, soft_wrap=True)
    table.finish()


def summary(frame: Any) -> list[dict[str, Any]]:
    """Figures of each group of tapes and of all."""
    lines = []
    for group in (*st.PROFILES, "all"):
        some = frame if group == "all" else frame.filter(frame["group"] == group)
        if len(some):
            lines.append(
                {
                    "group": group, "tapes": len(some), "floor": some["floor"].mean(),
                    "oracle": some["oracle_mean"].mean(), "headroom": some["headroom"].mean(),
                    "max_se": None if some["oracle_se"].is_nan().any() else some["oracle_se"].max(),
                    "thin": int(some["thin"].sum()), "negative": int(some["negative"].sum()),
                }
            )  # fmt: skip
    return lines


def show(lines: Sequence[dict[str, Any]]) -> Printed:
    """The summary as a printed table."""
    printed = Printed(title="Mean costs in $")
    printed.add_column("group", no_wrap=True)
    for heading in list(lines[0])[1:]:
        printed.add_column(heading.replace("_", " "), justify="right")
    for line in lines:
        cells = ["n/a" if v is None else f"{v:.1f}" if isinstance(v, float) else str(v) for v in line.values()]
        printed.add_row(*cells)
    return printed


@click.command(
    help=__doc__, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"], "show_default": True}
)
@click.argument("parts", nargs=-1, type=click.Path(path_type=Path))
@click.option("--seeds", help='Tapes: "1,25", "0-19", published, isolated, persistent, compound, "mint:7", or a file.')
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), required=True, help="The table, in Parquet.")
@click.option("--replications", type=click.IntRange(1), default=20, help="Oracle runs of each tape.")
@click.option("--futures", type=click.IntRange(1), default=200, help="Joint futures for each decision.")
@click.option("--kind", default="paper", help="Which oracle.")
@click.option("--key", type=click.IntRange(0, 2**31 - 1), default=0, help="Seed of the oracle's own randomness.")
@click.option(
    "--wish",
    type=click.FloatRange(0, min_open=True),
    help="Standard error in $: noisier tapes get as many runs again, until they are not.",
)
@click.option("--most-replications", type=click.IntRange(1), default=400, help="With --wish: when to give up.")
@click.option("--shard", callback=parse_shard, metavar="I/N", help="Do one of N shares of the tapes, for --merge.")
@click.option("--merge", "merging", is_flag=True, help="Make one table of PARTS, the files of all shards.")
@click.option("--memory", callback=parse_memory, default="2GB", help="For runs side by side, all devices together.")
@click.option("--devices", type=click.IntRange(1), show_default="one per core", help="CPU devices.")
@click.option("--block", type=click.IntRange(1), default=32, help="Tapes that are finished and kept at a time.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON and nothing else on stdout.")
@click.option("--quiet", is_flag=True, help="No progress on stderr.")
def main(
    parts: tuple[Path, ...], seeds: str | None, out: Path, shard: tuple[int, int] | None, merging: bool, memory: int,
    devices: int | None, block: int, as_json: bool, quiet: bool, wish: float | None, most_replications: int,
    **numbers: Any,
) -> None:  # fmt: skip
    with exit_codes():
        if merging:
            table = merge(parts, out)
        else:
            if parts:
                raise UsageError(f"{shlex.join(map(str, parts))} is left over: files are named with --merge only.")
            if seeds is None:
                raise UsageError("there is nothing to do: name tapes with --seeds, or the shards to --merge.")
            plan = Plan(**numbers, wish=wish, most_replications=None if wish is None else most_replications)
            try:
                st.oracle.policy(plan.kind, plan.futures)
            except ValueError as error:
                raise UsageError(str(error)) from error
            names = parse_seeds(seeds, most=MOST_TAPES)
            devices = devices or os.cpu_count() or 1
            if jax.config.values["jax_num_cpu_devices"] != devices:
                jax.config.update("jax_num_cpu_devices", devices)
            settings = plan.settings(names, f"{shard[0]}/{shard[1]}" if shard else None)
            if shard:
                out = out.with_name(f"{out.stem}.{shard[0]}-of-{shard[1]}{out.suffix}")
                if not names[shard[0] - 1 :: shard[1]]:
                    raise UsageError(f"{len(names)} tapes do not make {shard[1]} shards: ask for {len(names)} at most.")
                names = names[shard[0] - 1 :: shard[1]]
            table = Table(out, settings)
            if table.finished:
                table.finish()  # removes what a stop at the last moment may have left
            else:
                sweep(table, names, plan, memory, block, Console(stderr=True, quiet=quiet))
        frame = table.frame
        lines = summary(frame)
        if as_json:
            click.echo(json.dumps({"out": str(out), "tapes": len(frame), "groups": lines}, indent=2))
        else:
            console = Console()
            console.print(show(lines))
            console.print(f"Table: {out}", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
