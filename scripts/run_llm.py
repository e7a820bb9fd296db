"""Plays an agent on a set of tapes, logs every episode and prints the scores."""

import json
from pathlib import Path

import click
from rich.console import Console

from stocktake_agents.cli import exit_codes, leave_unless_complete
from stocktake_agents.models import MODELS
from stocktake_agents.progress import Heartbeat
from stocktake_agents.runner import Plan, run
from stocktake_agents.scoreboard import as_json, load_rows, score_table, seed_table, summaries
from stocktake_agents.seeds import parse_seeds, slug

EPILOG = """
\b
Examples:
  python scripts/run_llm.py --model planner --seeds 1,25,143
  python scripts/run_llm.py --model floor --seeds published --json > floor.json

\b
The same command again resumes a run that was stopped, and does nothing to one that is complete.
Exit codes: 0 all planned episodes ended, 1 failed, 2 bad use, 3 incomplete but resumable, 130 Ctrl-C.
"""


@click.command(
    help=__doc__, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"], "show_default": True}
)
@click.option("--model", type=click.Choice(list(MODELS)), required=True, help="Which agent plays.")
@click.option(
    "--seeds",
    required=True,
    help='Tapes: "1,25,143", "0-19", published, isolated, persistent, compound, "mint:7,8", or a file of those.',
)
@click.option("--out", type=click.Path(path_type=Path), show_default="runs/MODEL-SEEDS", help="Results folder.")
@click.option("--concurrency", type=click.IntRange(1, 256), default=8, help="Episodes at a time.")
@click.option("--json", "as_json_", is_flag=True, help="Print the result as JSON and nothing else on stdout.")
@click.option("--quiet", is_flag=True, help="No progress on stderr.")
def main(model: str, seeds: str, out: Path | None, concurrency: int, as_json_: bool, quiet: bool) -> None:
    with exit_codes():
        tapes = parse_seeds(seeds)
        plan = Plan(MODELS[model], tapes, out or Path("runs") / f"{model}-{slug(seeds)}", concurrency)
        outcome = run(plan, Heartbeat(model, quiet))
        rows = load_rows(plan.out, tapes)
        if as_json_:
            facts = {"model": model, "out": str(plan.out), "complete": outcome.complete, "planned": len(tapes)}
            click.echo(json.dumps(facts | {"statuses": outcome.status_counts} | as_json(rows), indent=2))
        else:
            console = Console()
            console.print(seed_table(rows))
            console.print(score_table(f"{model} by group", "group", [(s.group, s) for s in summaries(rows)]))
            statuses = ", ".join(f"{count} {status}" for status, count in outcome.status_counts.items())
            console.print(f"Episodes: {statuses}. Logs and manifest: {plan.out}", highlight=False, soft_wrap=True)
        leave_unless_complete(outcome)


if __name__ == "__main__":
    main()
