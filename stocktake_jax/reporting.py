"""The weekly report: an observation as the JSON object that an agent reads (docs/rules.md 2.2)."""

import jax
import numpy as np

from stocktake_jax.actions import ROUTES, SUPPLIERS, TERMS
from stocktake_jax.env import Observation
from stocktake_jax.factors import canal, freight, quality, supplier
from stocktake_jax.logistics import COSTS, STATUSES
from stocktake_jax.params import EVERGREEN

COMPONENT = "unit"
"""Name of the one product."""

# Fees stand in the breakdown only in weeks that paid them.
_FEES = ("briefing", "audit", "air", "inspect", "dual_source")


def report(observation: Observation) -> dict:
    """The report of one week, from its observation: plain Python values, ready for ``json.dumps``.

    Args:
        observation: of a single episode, no leading axes.

    Returns:
        The fields of docs/rules.md 2.2. ``freight_lock`` stands in it while a lock is live, ``realized_fill`` after a
        week that ordered from spot, ``briefing`` and ``audit`` after a week that bought them.
    """
    seen = jax.tree.map(np.asarray, observation)
    on_hand = {
        "on_hand": int(seen.stock),
        "on_order": int(seen.on_order),
        "inventory_position": int(seen.stock + seen.on_order),
        "arrived": int(seen.arrived),
    }
    written = {
        "week": int(seen.week),
        "inventory": on_hand["on_hand"],
        "on_order": on_hand["on_order"],
        "inventory_position": on_hand["inventory_position"],
        "arrived": on_hand["arrived"],
        "components": {COMPONENT: on_hand},
        "served": {COMPONENT: int(seen.served)},
        "pipeline": _pipeline(seen),
        "cost_breakdown": _breakdown(seen),
        "contracts": _contracts(seen),
        "contract_open": [SUPPLIERS[seen.contracts.supplier[i]] for i in np.flatnonzero(seen.contract_open)],
        "term_menu": list(TERMS[1:]),
        "suez_count": int(seen.counts[0]),
        "bab_count": int(seen.counts[1]),
        "cape_count": int(seen.counts[2]),
        "bulletin": canal.BULLETINS[seen.canal_band],
        "suppliers": _suppliers(seen),
        "pos_units": int(seen.pos_units),
        "demand_forecast": int(seen.demand_forecast),
        "freight_index": int(seen.freight_index),
        "freight_outlook": int(seen.freight_outlook),
        "berth_wait": int(seen.berth_wait),
        "wait_outlook": int(seen.wait_outlook),
        "aql_result": quality.AQL_RESULTS[seen.aql_result],
    }
    if seen.lock_weeks > 0:
        written["freight_lock"] = {"rate": int(seen.lock_rate) / freight.STEPS, "weeks_left": int(seen.lock_weeks)}
    if seen.fill >= 0:
        written["realized_fill"] = int(seen.fill) / supplier.FILL_STEPS
    if seen.briefing >= 0:
        written["briefing"] = canal.BRIEFINGS[seen.briefing]
    if seen.audit >= 0:
        written["audit"] = supplier.BANDS[seen.audit]
    return written


def breakdown(costs: np.ndarray) -> dict[str, float]:
    """Cost lines of a committed week by name, from ``[13]``; fees that were not paid are left out."""
    return {name: float(cost) for name, cost in zip(COSTS, costs, strict=True) if name not in _FEES or cost != 0}


def _breakdown(seen: Observation) -> dict[str, float]:
    return breakdown(seen.costs) if seen.week > 0 else {}


def _pipeline(seen: Observation) -> list[dict]:
    ships = seen.ships
    return [
        {
            "qty": int(ships.qty[week]),
            "route": ROUTES[ships.route[week]],
            "supplier": SUPPLIERS[ships.supplier[week]],
            "component": COMPONENT,
            "dispatched_week": int(week),
            "status": STATUSES[ships.status[week]],
            "eta": int(ships.eta[week]),
        }
        for week in np.flatnonzero(ships.qty)
    ]


def _contracts(seen: Observation) -> list[dict]:
    contracts = seen.contracts
    return [
        {
            "supplier": SUPPLIERS[contracts.supplier[slot]],
            "start_week": max(int(slot) - 1, 0),
            "end_week": None if contracts.end_week[slot] == EVERGREEN else int(contracts.end_week[slot]),
            "unit_price": round(float(seen.contract_price[slot]), 4),
            "otif_floor": int(seen.contract_otif_floor[slot]),
            "break_fee": float(seen.contract_break_fee[slot]),
        }
        for slot in np.flatnonzero(contracts.supplier >= 0)
    ]


def _suppliers(seen: Observation) -> list[dict]:
    rows: list[dict] = []
    for i, name in enumerate(SUPPLIERS):
        delta = round(float(seen.supplier_delta[i]), 4)
        row = {
            "id": name,
            "otif": _shown(seen.supplier_otif[i]),
            "lead_days": _shown(seen.supplier_lead[i]),
            "band": supplier.BANDS[seen.supplier_band[i]],
            "onboard_lead": int(seen.supplier_onboard[i]),
            "unit_delta": delta,
        }
        if name == "qualified":
            row["unit_premium"] = delta
        if name == "spot":
            row["unit_discount"] = -delta
            row["realized_lead_slip"] = int(seen.lead_slip) / supplier.SLIP_STEPS
        rows.append(row)
    return rows


def _shown(value: np.ndarray) -> int | None:
    return None if value < 0 else int(value)
