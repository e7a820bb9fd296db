"""A run as two tables, for people with their own tools: ``results.csv``, a row an episode, and ``weeks.csv``, a row a
week; and the same as Parquet where polars is installed. Made from finished logs alone; docs/agents.md has the columns.
"""

import csv
import importlib.util
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import stocktake_jax as st
from stocktake_agents.log import read_events
from stocktake_agents.scoreboard import Row

Table = list[dict[str, Any]]

LEVERS = ("lock_freight", "expedite_air", "inspect_batch", "buy_briefing", "buy_audit")


def export(folder: Path, rows: Sequence[Row], settings: Mapping[str, Any]) -> list[Path]:
    """Writes the tables of some finished episodes into their results folder; each file is replaced as a whole.

    Args:
        folder: a results folder.
        rows: its episodes.
        settings: of the run, as in its manifest.

    Returns:
        The files; none without a finished episode.
    """
    if not rows:
        return []
    results = [_result(row, settings) for row in rows]
    weeks = [week for row in rows for week in _weeks(folder / f"{row.episode.stem}.jsonl", row)]
    written = []
    for name, table in (("results", results), ("weeks", weeks)):
        written.append(_replace(folder / f"{name}.csv", _as_csv(table)))
        if importlib.util.find_spec("polars") is not None:
            written.append(_replace(folder / f"{name}.parquet", _as_parquet(table)))
    return written


def _result(row: Row, settings: Mapping[str, Any]) -> dict[str, Any]:
    details = settings["arm_details"]
    return {
        "model": settings["model"], "arm": settings["arm"], "standard": details["standard"],
        "privileged": details["privileged"], "prompt": settings["prompt"], "tools": settings["tools"],
        "agent": settings["agent"], **_name(row), "group": row.group, "status": row.status, "weeks": row.weeks,
        "cost": row.cost, "floor": row.floor, "oracle": row.oracle, "skill": row.skill, **row.counts,
        **{f"tokens_{name}": count for name, count in asdict(row.usage).items()}, "usd": row.usd,
        "usd_basis": row.usd_basis,
    }  # fmt: skip


def _name(row: Row) -> dict[str, Any]:
    return {"source": row.episode.source, "seed": row.episode.seed, "repeat": row.episode.repeat}


def _weeks(path: Path, row: Row) -> Iterable[dict[str, Any]]:
    events, _ = read_events(path)
    for event in events:
        if event["event"] != "week":
            continue
        *levers, order = event["calls"]
        asked, stated = order["arguments"], event["stated"]
        contract, plan, beliefs = asked["contract"] or {}, stated.get("plan", {}), stated.get("beliefs", {})
        last = {lever: next((c for c in reversed(levers) if c["name"] == lever), None) for lever in LEVERS}
        lock, air = last["lock_freight"], last["expedite_air"]
        yield {
            **_name(row), "week": event["week"] - 1, "qty": asked["qty"], "route": asked["route"],
            "supplier": asked["supplier"], "contract_action": contract.get("action"),
            "contract_supplier": contract.get("supplier"), "contract_terms": contract.get("terms"),
            "lock_weeks": lock["arguments"]["weeks"] if lock else 0, "air": air["result"] if air else 0,
            "inspect": last["inspect_batch"] is not None,
            "briefing": last["buy_briefing"] and last["buy_briefing"]["result"],
            "audit": last["buy_audit"] and last["buy_audit"]["result"],
            **{f"cost_{name}": event["costs"].get(name, 0.0) for name in st.COSTS}, "total": event["total"],
            **{f"belief_{factor}": beliefs.get(factor) for factor in st.FACTORS},
            **{f"plan_{name}": plan.get(name) for name in ("stance", "target_position", "main_concern", "next_qty")},
            "rationale": asked["rationale"],
        }  # fmt: skip


def _as_csv(table: Table) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(table[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    return text.getvalue().encode("utf-8", "backslashreplace")


def _as_parquet(table: Table) -> bytes:
    import polars

    buffer = io.BytesIO()
    polars.DataFrame(table, infer_schema_length=None).write_parquet(buffer)
    return buffer.getvalue()


def _replace(path: Path, content: bytes) -> Path:
    if path.exists() and path.read_bytes() == content:
        return path  # a second run of a finished command touches nothing
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_bytes(content)
    temporary.replace(path)
    return path
