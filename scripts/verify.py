"""Plays the logs of runs again: every request, report and cost must come out as recorded, to the last bit."""

import json
from pathlib import Path

import click

from stocktake_agents.arm_names import arm_of_run
from stocktake_agents.cli import exit_codes
from stocktake_agents.manifest import read_manifest
from stocktake_agents.verify import Finding, verify_run

EPILOG = """
\b
Example:
  python scripts/verify.py runs/planner-published

Exit codes: 0 everything came out the same, 1 something differs, 2 bad use.
"""


@click.command(help=__doc__, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON and nothing else on stdout.")
def main(runs: tuple[Path, ...], as_json: bool) -> None:
    found: dict[str, list[Finding]] = {}
    with exit_codes():
        for folder in runs:
            manifest = read_manifest(folder)
            arm = arm_of_run(manifest["settings"], manifest["texts"])
            found[str(folder)] = verify_run(folder, manifest, arm)
    differing = [
        (run, finding) for run, findings in found.items() for finding in findings if finding.status == "differs"
    ]
    if as_json:
        click.echo(
            json.dumps({run: [vars(finding) for finding in findings] for run, findings in found.items()}, indent=2)
        )
    else:
        for run, findings in found.items():
            counts = {status: sum(f.status == status for f in findings) for status in ("same", "unfinished", "differs")}
            click.echo(f"{run}: {', '.join(f'{count} {status}' for status, count in counts.items())}")
        for run, finding in differing:
            click.echo(f"Error: {run}/{finding.log}: {finding.detail}", err=True)
    raise SystemExit(1 if differing else 0)


if __name__ == "__main__":
    main()
