"""Grades the rationales of finished runs: which hidden processes each says are in trouble."""

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import stocktake_jax as st
from stocktake_agents.cli import exit_codes, model_options
from stocktake_agents.comparison import episodes_of
from stocktake_agents.errors import ProviderError, UsageError
from stocktake_agents.gateway import Gateway, Retries
from stocktake_agents.grading import KeywordGrader, ModelGrader
from stocktake_agents.grading.agreement import Agreement, agreement
from stocktake_agents.grading.book import GradeBook, open_book, rationales
from stocktake_agents.grading.grader import Grader
from stocktake_agents.grading.run import fill_book
from stocktake_agents.journal import Journal
from stocktake_agents.models import make_agent
from stocktake_agents.prices import load_prices
from stocktake_agents.provider import Deadlines

PRESETS: dict[str, tuple[str, dict[str, Any]]] = {
    "paper": ("openrouter/openai/gpt-5-mini", {"effort": "low", "temperature": 0.0}),
    "model": ("anthropic/claude-sonnet-5", {"effort": "low"}),
}
EPILOG = """
\b
Examples:
  python scripts/grade.py runs/planner-published
  python scripts/grade.py runs/anthropic-claude-sonnet-5-published --grader paper --second keyword

\b
Graders: keyword (offline, free, a baseline), paper (gpt-5-mini through OpenRouter, low effort, as the paper did), model
(a current one), or any model string of run_llm.py. The same command again grades what is missing.
Exit codes: 0 graded, 1 failed, 2 bad use, 3 some weeks could not be graded or the grader could not be asked.
"""


@click.command(
    help=__doc__, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"], "show_default": True}
)
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--grader", default="keyword", help="Who grades; see below.")
@click.option("--second", help="Another grader, to see how far the two agree.")
@click.option("--concurrency", type=click.IntRange(1, 256), default=8, help="Texts at a time.")
@model_options
@click.option("--max-usd", type=click.FloatRange(0, min_open=True), help="The most that grading a run may cost.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON and nothing else on stdout.")
@click.option("--quiet", is_flag=True, help="No progress on stderr.")
def main(
    runs: tuple[Path, ...],
    grader: str,
    second: str | None,
    concurrency: int,
    prices: Path | None,
    max_usd: float | None,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> None:
    results: list[dict[str, Any]] = []
    failures: list[str] = []
    with exit_codes():
        graders = [grader, *([second] if second else [])]
        for folder in runs:
            names = [name for name in episodes_of(folder) if (folder / f"{name.stem}.jsonl").exists()]
            texts = [rationales(folder / f"{name.stem}.jsonl") for name in names]
            if not any(texts):
                raise UsageError(f"{folder} has no committed week to grade: name the results folder of a run.")
            books = []
            for who in graders:
                try:
                    book = asyncio.run(_graded(folder, who, options, prices, max_usd, texts, concurrency, quiet))
                except ProviderError as error:
                    failures.append(f"{folder}, {who}: {error}")
                    continue
                books.append(book)
                results.append(_facts(folder, book, texts))
                if results[-1]["ungraded"]:
                    failures.append(f"{folder}, {who}: {results[-1]['ungraded']} weeks could not be graded.")
            if len(books) == 2:
                masks = [np.asarray(st.stress_mask(name.tape())) for name in names]
                marks = [[book.marks(by_week) for by_week in texts] for book in books]
                results[-1]["agreement"] = agreement(marks[0], marks[1], masks)
    if as_json:
        click.echo(json.dumps([_plain(result) for result in results], indent=2))
    else:
        _print(results)
    for failure in failures:
        click.echo(f"Error: {failure}", err=True)
    raise SystemExit(3 if failures else 0)


async def _graded(
    folder: Path,
    who: str,
    options: dict[str, Any],
    prices: Path | None,
    max_usd: float | None,
    texts: list[dict[int, str]],
    concurrency: int,
    quiet: bool,
) -> GradeBook:
    async with AsyncExitStack() as stack:
        grader: Grader = KeywordGrader()
        if who != "keyword":
            model, preset = PRESETS.get(who, (who, {}))
            asked = {name: value for name, value in options.items() if value is not None}
            every = dict.fromkeys(options) | preset | asked
            agent = make_agent(model, load_prices(prices) if prices else {}, **every)
            service = agent.service
            if service is None:
                raise UsageError(f"{model} cannot grade: name keyword, {', '.join(PRESETS)} or a model behind an API.")
            if max_usd is not None and service.price is None and not service.free:
                raise UsageError(f"--max-usd needs the price of {model}, which is unknown: give it with --prices FILE.")
            cabinet = folder / "grading"
            cabinet.mkdir(exist_ok=True)
            journal = stack.enter_context(Journal(cabinet, service))
            deadlines = Deadlines()
            wire = service.connect(deadlines, concurrency)
            stack.push_async_callback(wire.close)
            gateway = Gateway(
                wire, service, journal, deadlines=deadlines, retries=Retries(), concurrency=concurrency,
                max_usd=max_usd, stopping=lambda: False, warn=lambda kind, sentence: None,
            )  # fmt: skip
            grader = ModelGrader(agent, gateway)
        book = open_book(folder, grader)
        wanted = [text for by_week in texts for text in by_week.values()]
        with Progress(console=Console(stderr=True), transient=True, disable=quiet) as bar:
            task = bar.add_task(f"{folder.name}, {grader.name}", total=len(book.missing(wanted)))
            await fill_book(book, grader, wanted, concurrency, lambda: bar.advance(task))
        return book


def _facts(folder: Path, book: GradeBook, texts: list[dict[int, str]]) -> dict[str, Any]:
    marks = [book.marks(by_week) for by_week in texts]
    weeks = sum(len(by_week) for by_week in texts)
    graded = int(sum(known.sum() for _, known in marks))
    counts = np.sum([named.sum(axis=0) for named, _ in marks], axis=0)
    named = {factor: int(count) for factor, count in zip(st.FACTORS, counts, strict=True)}
    return {
        "run": str(folder), "grader": book.grader, "identity": book.identity, "weeks": weeks, "graded": graded,
        "ungraded": weeks - graded, "named": named,
    }  # fmt: skip


def _plain(result: dict[str, Any]) -> dict[str, Any]:
    found: Agreement | None = result.get("agreement")
    if found is None:
        return result
    arrays = {name: getattr(found, name) for name in ("both", "first", "second", "neither", "kappa", "pabak")}
    by_factor = {
        factor: {name: None if np.isnan(array[i]) else array[i].item() for name, array in arrays.items()}
        for i, factor in enumerate(st.FACTORS)
    }
    shares = {"weeks": found.weeks, "exact": found.exact, "stressed": found.stressed}
    return result | {"agreement": shares | {"factors": by_factor}}


def _print(results: list[dict[str, Any]]) -> None:
    console = Console()
    table = Table("run", "grader", "weeks", "ungraded", *st.FACTORS, title="Weeks in which a process is named")
    for result in results:
        counts = [str(result["named"][factor]) for factor in st.FACTORS]
        table.add_row(result["run"], result["grader"], str(result["weeks"]), str(result["ungraded"]), *counts)
    console.print(table)
    for result in results:
        found: Agreement | None = result.get("agreement")
        if found is None:
            continue
        table = Table(
            "process", "both", "first", "second", "neither", "kappa", "PABAK", title=f"{result['run']}: agreement"
        )
        for i, factor in enumerate(st.FACTORS):
            counts = [str(column[i]) for column in (found.both, found.first, found.second, found.neither)]
            table.add_row(factor, *counts, f"{found.kappa[i]:.2f}", f"{found.pabak[i]:.2f}")
        console.print(table)
        console.print(
            f"The same names in {found.exact:.0%} of {found.weeks} weeks; the same among the stressed in "
            f"{found.stressed:.0%}."
        )


if __name__ == "__main__":
    main()
