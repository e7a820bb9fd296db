"""Plays an agent on a set of tapes, logs every episode and prints the scores."""

import json
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from stocktake_agents.arm_names import ARM_NAMES, make_arm
from stocktake_agents.cli import FILE, exit_codes, leave_unless_complete, model_options
from stocktake_agents.errors import UsageError
from stocktake_agents.estimate import estimate
from stocktake_agents.exports import export
from stocktake_agents.gateway import Retries
from stocktake_agents.manifest import settings_of
from stocktake_agents.models import make_agent
from stocktake_agents.prices import load_prices
from stocktake_agents.progress import Heartbeat, dollars
from stocktake_agents.provider import Deadlines
from stocktake_agents.runner import Plan, run
from stocktake_agents.scoreboard import as_json, estimate_table, label, load_rows, score_table, seed_table, summaries
from stocktake_agents.seeds import MAX_EPISODES, parse_seeds, repeated, slug

EPILOG = """
\b
Examples:
  python scripts/run_llm.py --model planner --seeds 1,25,143
  python scripts/run_llm.py --model anthropic/claude-sonnet-5 --seeds published --dry-run
  python scripts/run_llm.py --model local/qwen3 --base-url http://127.0.0.1:8000/v1 --seeds 25 --arm beliefs
  python scripts/run_llm.py --model my_agent.py:act --seeds published --repeats 3 --json > mine.json

\b
Models: idle, random, floor, planner, oracle; anthropic/NAME, openai/NAME, openrouter/VENDOR/NAME, local/NAME (an
OpenAI-compatible server); FILE.py:NAME (an async function of report and tools); recorded/FOLDER (an earlier run).
Keys come from ANTHROPIC_API_KEY, OPENAI_API_KEY, OPENROUTER_API_KEY and, if a local server wants one, LOCAL_API_KEY.

\b
The same command again resumes a run that was stopped, and does nothing to one that is complete.
Exit codes: 0 all planned episodes ended, 1 failed, 2 bad use, 3 incomplete but resumable, 130 Ctrl-C.
"""


@click.command(
    help=__doc__, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"], "show_default": True}
)
@click.option("--model", required=True, help="Which agent plays; see below.")
@click.option(
    "--seeds",
    required=True,
    help='Tapes: "1,25,143", "0-19", published, isolated, persistent, compound, "mint:7,8", or a file of those.',
)
@click.option("--arm", type=click.Choice(ARM_NAMES), default="faithful", help="What it is told and shown.")
@click.option("--prompt", type=FILE, help="A system prompt of your own (a template).")
@click.option("--bulletins", type=FILE, help="Trade bulletins of your own (JSON, by band).")
@click.option("--repeats", type=click.IntRange(1, 1000), default=1, help="How often each tape is played.")
@click.option("--out", type=FILE, show_default="runs/MODEL-ARM-SEEDS", help="Results folder.")
@click.option("--concurrency", type=click.IntRange(1, 256), default=8, help="Episodes and requests at a time.")
@model_options
@click.option("--max-usd", type=click.FloatRange(0, min_open=True), help="The most that the results may cost.")
@click.option("--attempts", type=click.IntRange(1, 100), default=Retries.attempts, help="Of one request.")
@click.option("--connect-timeout", type=float, default=Deadlines.connect, help="Seconds for a connection.")
@click.option("--idle-timeout", type=float, default=Deadlines.idle, help="Seconds for the next byte of an answer.")
@click.option("--attempt-timeout", type=float, default=Deadlines.attempt, help="Seconds for an answer.")
@click.option("--episode-timeout", type=float, default=Deadlines.episode, help="Seconds for an episode in one run.")
@click.option("--dry-run", is_flag=True, help="Say what the run would take, and ask nobody.")
@click.option("--json", "as_json_", is_flag=True, help="Print the result as JSON and nothing else on stdout.")
@click.option("--quiet", is_flag=True, help="No progress on stderr.")
def main(
    model: str,
    seeds: str,
    arm: str,
    prompt: Path | None,
    bulletins: Path | None,
    repeats: int,
    out: Path | None,
    concurrency: int,
    prices: Path | None,
    max_usd: float | None,
    attempts: int,
    dry_run: bool,
    as_json_: bool,
    quiet: bool,
    **options: Any,
) -> None:
    timeouts = {name: options.pop(f"{name}_timeout") for name in ("connect", "idle", "attempt", "episode")}
    console = Console()
    with exit_codes():
        for name, seconds in timeouts.items():
            if not seconds > 0:
                raise UsageError(f"--{name}-timeout is {seconds:g}: it must be more than 0 seconds.")
        names = parse_seeds(seeds)
        if len(names) * repeats > MAX_EPISODES:
            raise UsageError(f"{len(names)} tapes times {repeats} repeats are too many: at most {MAX_EPISODES}.")
        agent = make_agent(model, load_prices(prices) if prices else {}, **options)
        words = make_arm(arm, prompt, bulletins)
        folder = "-".join([slug(agent.model), *([arm] if arm != "faithful" else []), slug(seeds)])
        plan = Plan(
            agent, words, repeated(names, repeats), out or Path("runs") / folder, concurrency,
            deadlines=Deadlines(**timeouts), retries=Retries(attempts), max_usd=max_usd,
        )  # fmt: skip
        title = label(agent.model, words)
        if dry_run:
            plan.check()
            expected = estimate(words, names[0].tape(), len(plan.episodes), concurrency, agent.service)
            if as_json_:
                click.echo(json.dumps({"model": model, "arm": arm} | vars(expected), indent=2))
            else:
                console.print(estimate_table(title, expected))
            return
        outcome = run(plan, Heartbeat(title, quiet))
        rows = load_rows(plan.out, plan.episodes, agent.service)
        export(plan.out, rows, settings_of(agent, words, plan.limits))
        if as_json_:
            facts = {
                "model": agent.model, "arm": arm, "standard": words.standard, "privileged": words.privileged,
                "out": str(plan.out), "complete": outcome.complete, "planned": len(plan.episodes),
                "statuses": outcome.status_counts, "spent_usd": outcome.spent, "unpriced_answers": outcome.unpriced,
            }  # fmt: skip
            click.echo(json.dumps(facts | as_json(rows), indent=2))
        else:
            if rows:
                console.print(seed_table(rows))
                console.print(score_table(f"{title} by group", "group", [(s.group, s) for s in summaries(rows)]))
            statuses = ", ".join(f"{count} {status}" for status, count in outcome.status_counts.items())
            console.print(f"Episodes: {statuses}. All files: {plan.out}", highlight=False, soft_wrap=True)
            if spent := dollars(outcome.spent, outcome.unpriced):
                console.print(f"Spent so far: {spent}.", highlight=False, soft_wrap=True)
        leave_unless_complete(outcome)


if __name__ == "__main__":
    main()
