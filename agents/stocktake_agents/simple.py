"""Four agents that need no model: they show the tools at work and mark the scale's ends.

Each is a pure function of the week's report (and of a generator that the harness seeds by tape and week), and answers
with the calls it wants to make, the last of them ``place_order``.
"""

import random
from typing import Any

import stocktake_jax as st
from stocktake_agents.provider import Agent
from stocktake_agents.scripted import Call, scripted

Report = dict[str, Any]

_PARAMS = st.WorldParams()


def idle(report: Report, rng: random.Random) -> list[Call]:
    """Orders nothing, ever."""
    return [_order("Nothing is ordered.", 0)]


def chance(report: Report, rng: random.Random) -> list[Call]:
    """Draws every lever, contract action and order at random among the legal ones."""
    calls: list[Call] = []
    if rng.random() < 0.1:
        calls.append(("lock_freight", {"weeks": rng.randint(1, 8)}))
    if rng.random() < 0.1:
        calls.append(("expedite_air", {"qty": rng.randint(1, int(_PARAMS.desk.most_air))}))
    calls += [(tool, {}) for tool in ("inspect_batch", "buy_briefing", "buy_audit") if rng.random() < 0.1]
    contract = None
    sources = live_suppliers(report)
    if rng.random() < 0.2:
        action, supplier = rng.choice(st.CONTRACT_ACTIONS[1:]), rng.choice(st.SUPPLIERS)
        contract = {"action": action, "supplier": supplier, "terms": rng.choice(st.TERMS)}
        if action != "lapse" and _alive(report, supplier):
            sources.add(supplier)
    qty = rng.randint(0, int(_PARAMS.desk.most_order)) if sources else 0
    source = rng.choice(sorted(sources)) if qty else None
    calls.append(_order("A draw of the dice.", qty, rng.choice(st.ROUTES) if qty else None, source, contract))
    return calls


def floor(report: Report, rng: random.Random) -> list[Call]:
    """The textbook base-stock rule (docs/rules.md 3): one level, one supplier, one route, blind to every symptom."""
    qty = _up_to(st.policies.floor().order_up_to, report)
    reason = f"I order {qty} to bring the inventory position up to the base-stock level."
    return [_order(reason, qty, "suez", "qualified", _keep("qualified", report))]


def planner(report: Report, rng: random.Random) -> list[Call]:
    """A cautious planner: names the symptoms it sees, covers the delays they announce, and pays for little else."""
    week, notes, calls = report["week"], [], []
    demand = (report["pos_units"] + report["demand_forecast"]) / 2
    if not 16 <= demand <= 24:
        notes.append(f"demand runs at about {demand:g} a week instead of 20")

    route, lead, cover = "suez", 4, 0
    if report["suez_count"] < 45:
        route, lead = "cape", 5
        notes.append(f"canal counts are down to {report['suez_count']}, so I go round the Cape")
    elif report["suez_count"] < 66:
        cover += 5
        notes.append(f"canal counts are a little low at {report['suez_count']}")

    if report["berth_wait"] >= 9:
        cover += 10
        notes.append(f"ships wait {report['berth_wait']} days for a berth: the port is held up")
        short = round(demand) - report["inventory"]
        if short > 0:
            calls.append(("expedite_air", {"qty": min(short, int(_PARAMS.desk.most_air))}))
            notes.append("stock would run out behind it, so I fly units in")

    if 130 < report["freight_index"] < 250 and report["freight_outlook"] > report["freight_index"]:
        notes.append(f"freight is rising, {report['freight_index']} now and {report['freight_outlook']} ahead")
        if "freight_lock" not in report:
            calls.append(("lock_freight", {"weeks": 4}))
    elif report["freight_index"] >= 250:
        notes.append(f"freight is very dear at {report['freight_index']}")

    if report["aql_result"] == "reject":
        notes.append("the last quality sample was rejected")
        if any(ship["eta"] <= week + 1 for ship in report["pipeline"]):
            calls.append(("inspect_batch", {}))

    spot = next(row for row in report["suppliers"] if row["id"] == "spot")
    supplier = "spot"
    if spot["band"] != "ontime" or spot["otif"] < 97 or "spot" not in live_suppliers(report):
        supplier = "qualified"
        notes.append(f"the spot supplier is slipping (band {spot['band']}), so I buy from qualified")

    qty = _up_to(demand * lead + 13 + cover, report) if week + lead <= _PARAMS.horizon else 0
    reason = "; ".join(notes) or "no symptom stands out"
    contract = _keep(supplier, report) if qty else None
    calls.append(_order(f"Week {week}: {reason}. I order {qty}.", qty, route, supplier, contract))
    return calls


def live_suppliers(report: Report) -> set[str]:
    """The suppliers one can order from this week."""
    live = {c["supplier"] for c in report["contracts"] if c["end_week"] is None or c["end_week"] > report["week"]}
    return {supplier for supplier in live if _alive(report, supplier)}


def _alive(report: Report, supplier: str) -> bool:
    return all(row["band"] != "defunct" for row in report["suppliers"] if row["id"] == supplier)


def _keep(supplier: str, report: Report) -> dict[str, Any] | None:
    """The contract action that makes sure of a supplier."""
    return None if supplier in live_suppliers(report) else {"action": "sign", "supplier": supplier}


def _up_to(level: float, report: Report) -> int:
    missing: int = round(level) - report["inventory_position"]
    return min(max(missing, 0), int(_PARAMS.desk.most_order))


def _order(
    rationale: str,
    qty: int,
    route: str | None = None,
    supplier: str | None = None,
    contract: dict[str, Any] | None = None,
) -> Call:
    return "place_order", {
        "rationale": rationale,
        "qty": qty,
        "route": route,
        "supplier": supplier,
        "contract": contract,
    }


AGENTS: dict[str, Agent] = {
    name: scripted(name, script)
    for name, script in {"idle": idle, "random": chance, "floor": floor, "planner": planner}.items()
}
