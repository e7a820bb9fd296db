"""Plays four simple agents on a handful of published seeds and prints one table of scores, in less than a minute."""

import json
import os
import sys
from pathlib import Path

import click
from rich.console import Console

from stocktake_agents.arm_names import make_arm
from stocktake_agents.cli import exit_codes, leave_unless_complete
from stocktake_agents.progress import Heartbeat
from stocktake_agents.runner import Plan, run
from stocktake_agents.scoreboard import load_rows, score_table, summarise
from stocktake_agents.seeds import parse_seeds
from stocktake_agents.simple import AGENTS

SEEDS = "1,25,112,143,157"
EPILOG = """
\b
Example:
  python scripts/quickstart.py --out runs/quickstart
"""


@click.command(
    help=__doc__, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"], "show_default": True}
)
@click.option("--out", type=click.Path(path_type=Path), default=Path("runs/quickstart"), help="Results folder.")
@click.option("--json", "as_json", is_flag=True, help="Print the scores as JSON and nothing else on stdout.")
@click.option("--quiet", is_flag=True, help="No progress on stderr.")
def main(out: Path, as_json: bool, quiet: bool) -> None:
    with exit_codes():
        lines = []
        for model in ("idle", "random", "floor", "planner"):
            plan = Plan(AGENTS[model], make_arm("faithful"), parse_seeds(SEEDS), out / model)
            leave_unless_complete(run(plan, Heartbeat(model, quiet)))
            lines.append((model, summarise(load_rows(plan.out, plan.episodes), "all")))
        if as_json:
            click.echo(json.dumps({model: vars(summary) for model, summary in lines}, indent=2))
            return
        console, python = Console(), os.path.relpath(sys.executable)
        console.print(score_table(f"Published seeds {SEEDS}", "agent", lines))
        console.print(
            "Skill is 0 for a base-stock rule that reads no symptom and 1 for the published oracle.\n"
            f"Every episode is a log you can read: {out / 'planner' / 'published-25.jsonl'}\n"
            f"Next: {python} scripts/run_llm.py --model planner --seeds published\n"
            f"      {python} scripts/run_llm.py --model floor --seeds mint:0-9\n"
            "Your own agent: a function of the report, like those in agents/stocktake_agents/simple.py.",
            highlight=False,
            soft_wrap=True,
        )


if __name__ == "__main__":
    main()
