"""Scores finished runs side by side: agents by arms, paired on common seeds. Reads logs, asks nobody."""

import json
from pathlib import Path

import click
from rich.console import Console

from stocktake_agents.cli import exit_codes
from stocktake_agents.comparison import as_json, compare, comparison_table, load_runs

EPILOG = """
\b
Example:
  python scripts/score.py runs/planner-published runs/planner-posterior-published

Exit codes: 0 scored, 1 a log cannot be read, 2 bad use.
"""


@click.command(help=__doc__, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--json", "as_json_", is_flag=True, help="Print the result as JSON and nothing else on stdout.")
def main(runs: tuple[Path, ...], as_json_: bool) -> None:
    with exit_codes():
        cells = compare(load_runs(runs))
    if as_json_:
        click.echo(json.dumps(as_json(cells), indent=2))
    else:
        Console().print(comparison_table(cells))


if __name__ == "__main__":
    main()
