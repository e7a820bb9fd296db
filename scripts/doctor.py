"""Asks a model for two answers and says whether it can play: key, model, tool calls, context, price."""

import asyncio
import json
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from stocktake_agents.arm_names import ARM_NAMES, make_arm
from stocktake_agents.cli import exit_codes, model_options
from stocktake_agents.doctor import Check, as_json, examine, healthy
from stocktake_agents.errors import UsageError
from stocktake_agents.models import make_agent
from stocktake_agents.prices import load_prices
from stocktake_agents.provider import Deadlines

EPILOG = """
\b
Examples:
  python scripts/doctor.py --model anthropic/claude-sonnet-5
  python scripts/doctor.py --model local/qwen3 --base-url http://127.0.0.1:8000/v1

Exit codes: 0 it can play, 1 it cannot, 2 bad use.
"""


@click.command(
    help=__doc__, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"], "show_default": True}
)
@click.option("--model", required=True, help="A model behind an API, as for run_llm.py.")
@click.option("--arm", type=click.Choice(ARM_NAMES), default="faithful", help="The arm it is to play.")
@model_options
@click.option("--attempt-timeout", type=click.FloatRange(0, min_open=True), default=120.0, help="Seconds an answer.")
@click.option("--json", "as_json_", is_flag=True, help="Print the result as JSON and nothing else on stdout.")
def main(model: str, arm: str, prices: Path | None, attempt_timeout: float, as_json_: bool, **options: Any) -> None:
    with exit_codes():
        agent = make_agent(model, load_prices(prices) if prices else {}, **options)
        if agent.service is None:
            raise UsageError(f"{model} runs in this process and is always well: name a model behind an API.")
        deadlines = Deadlines(idle=attempt_timeout, attempt=attempt_timeout)
        checks = asyncio.run(_all(examine(agent, agent.service, make_arm(arm), deadlines)))
    if as_json_:
        click.echo(json.dumps({"model": agent.model, "healthy": healthy(checks), "checks": as_json(checks)}, indent=2))
    else:
        table = Table("", "check", "found", "what to do", title=agent.model)
        for check in checks:
            table.add_row(check.verdict, check.name, check.found, check.cure)
        Console().print(table)
    raise SystemExit(0 if healthy(checks) else 1)


async def _all(checks: Any) -> list[Check]:
    return [check async for check in checks]


if __name__ == "__main__":
    main()
