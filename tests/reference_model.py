"""The week of docs/rules.md 2 and 2.1 over again, written from the rules alone: plain Python and nothing else.

Ships and contracts are dicts in lists, in the order in which they came to be. Nothing is shared with the library, so
a mistake has to be made twice to pass unseen. What is rare is counted, so that tests can tell that it was reached.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

SUPPLIERS = ("qualified", "spot", "backup")
ROUTES = ("suez", "cape")
CONTRACT_ACTIONS = ("sign", "switch", "renew", "lapse")
TERMS = ("none", "short", "long", "strict", "lenient")
LINES = (
    *("shipping", "surcharge", "holding", "in_transit", "stockout", "couple", "demurrage", "rework"),
    *("briefing", "audit", "air", "inspect", "dual_source"),
)

# States in canonical order, for the three factors whose state bears on the books (docs/rules.md 1).
CANAL = (
    *("calm", "watch", "false_alarm", "short:0", "short:1"),
    *("long:0", "long:persist", "recovery:0", "recovery:1", "recovery:2"),
)
PORT = ("clear", "building", *(f"congested:{age}" for age in range(8)), "customs_hold:0", "customs_hold:persist")
SPOT = ("reliable", "wobbling", "defunct", *(f"degraded:{age}" for age in range(4)))
# What can be seen of them: the bands of the canal in which a shortfall is charged, and spot's true band.
TENSE = ("watch", "false_alarm", "short:0", "short:1", "long:0", "long:persist")
TRUE_BAND = dict(zip(SPOT, ("ontime", "slipping", "defunct", "slipping", "failing", "failing", "failing"), strict=True))


@dataclass
class World:
    """The numbers of docs/rules.md 2 and 2.1."""

    horizon: int = 26
    initial_stock: int = 80
    most_order: int = 100
    most_air: int = 20
    inspection_factor: float = 0.3
    term_weeks: dict = field(default_factory=lambda: {"none": 8, "short": 4, "long": 12, "strict": 8, "lenient": 8})
    unit_price: dict = field(
        default_factory=lambda: {"none": 4.00, "short": 3.88, "long": 4.24, "strict": 4.12, "lenient": 3.80}
    )
    otif_floor: dict = field(default_factory=lambda: {"none": 85, "short": 80, "long": 85, "strict": 92, "lenient": 70})
    break_fee: dict = field(default_factory=lambda: {"none": 10, "short": 5, "long": 20, "strict": 10, "lenient": 10})
    base_rate: dict = field(default_factory=lambda: {"suez": 4.0, "cape": 6.0})
    delta: dict = field(default_factory=lambda: {"qualified": 1.00, "spot": -1.50, "backup": 0.30})
    surcharge: float = 2.0
    holding: float = 1.0
    in_transit: float = 1.0
    stockout: float = 20.0
    couple: float = 60.0
    demurrage: float = 2.0
    rework: float = 15.0
    briefing: float = 30.0
    audit: float = 25.0
    air: float = 15.0
    inspect: float = 40.0
    dual_source: float = 4.0


@dataclass
class Order:
    """A week's decision in words; a name that no rule knows is simply not listed above."""

    qty: int = 0
    route: str | None = None
    supplier: str | None = None
    contract: dict | None = None
    lock: int = 0
    air: int = 0
    inspect: bool = False
    briefing: bool = False
    audit: bool = False


def weeks_of(rows: Mapping[str, Sequence[int]]) -> list[dict]:
    """A tape's columns of whole numbers as one dict for each week, in units and words."""
    return [
        {
            "canal": CANAL[rows["canal"][w]],
            "cape_coin": rows["cape_congestion"][w] == 1,
            "port_blocked": PORT[rows["port"][w]].startswith(("congested", "customs_hold")),
            "spot": SPOT[rows["supplier"][w]],
            "demand": rows["pos_units"][w],
            "multiplier": rows["freight_multiplier"][w] / 10_000,
            "defect_fraction": rows["defect_fraction"][w] / 100_000,
            "fill": rows["fill"][w] / 100,
        }
        for w in range(len(rows["canal"]))
    ]


def terms_of(contract: dict) -> str:
    return "none" if contract.get("terms") is None else contract["terms"]


class Books:
    """The books of one episode."""

    def __init__(self, rows: Mapping[str, Sequence[int]], world: World | None = None) -> None:
        self.world = world or World()
        self.weeks = weeks_of(rows)
        self.happened: Counter = Counter()
        self.week = 0
        self.stock = self.world.initial_stock
        self.ships: list[dict] = []
        self.contracts = [{"supplier": "spot", "terms": "none", "start_week": 0, "end_week": None}]
        self.lock: dict | None = None
        self.arrived = self.served = self.unmet = self.shipped = self.defective = 0
        self.fill: float | None = None
        self.briefing: str | None = None
        self.audit: str | None = None
        self.costs: dict[str, float] = {}
        self.cost = self.total = 0.0

    @property
    def over(self) -> bool:
        return self.week >= self.world.horizon

    @property
    def on_order(self) -> int:
        return sum(ship["qty"] for ship in self.ships)

    def is_open(self, contract: dict) -> bool:
        expired = contract["end_week"] is not None and contract["end_week"] <= self.week
        return expired or (contract["supplier"] == "spot" and self.weeks[self.week]["spot"] == "defunct")

    def open(self) -> list[str]:
        return [contract["supplier"] for contract in self.contracts if self.is_open(contract)]

    def live(self, contracts: list[dict] | None = None) -> set[str]:
        contracts = self.contracts if contracts is None else contracts
        return {contract["supplier"] for contract in contracts if not self.is_open(contract)}

    def after_contract_action(self, contract: dict | None) -> list[dict]:
        """Stage 1."""
        if contract is None:
            return self.contracts
        supplier, terms = contract["supplier"], terms_of(contract)
        kept = [c for c in self.contracts if not (c["supplier"] == supplier and self.is_open(c))]
        if contract["action"] == "lapse":
            return kept
        end_week = None if supplier == "qualified" else self.week + self.world.term_weeks[terms]
        return [*kept, {"supplier": supplier, "terms": terms, "start_week": self.week, "end_week": end_week}]

    def faults(self, order: Order) -> set[str]:
        """Everything that is wrong with a decision."""
        contract, found = order.contract, set()
        if self.over:
            return {"OVER"}
        if order.lock < 0:
            found.add("LOCK_WEEKS")
        if order.air < 0:
            found.add("AIR")
        contracts = self.contracts
        if contract is not None:
            wrong = {
                "CONTRACT_ACTION": contract["action"] not in CONTRACT_ACTIONS,
                "CONTRACT_SUPPLIER": contract["supplier"] not in SUPPLIERS,
                "CONTRACT_TERMS": terms_of(contract) not in TERMS,
            }
            found |= {name for name, is_wrong in wrong.items() if is_wrong}
            if not any(wrong.values()):
                contracts = self.after_contract_action(contract)
        if not 0 <= order.qty <= self.world.most_order:
            found.add("QTY")
        if order.qty > 0:
            if order.route not in ROUTES:
                found.add("ROUTE")
            if order.supplier not in SUPPLIERS:
                found.add("SUPPLIER")
            elif order.supplier not in self.live(contracts):
                found.add("NO_CONTRACT")
        return found

    def step(self, order: Order) -> set[str]:
        """A week of the pure environment: a faulty decision runs as "order nothing", its legal levers standing."""
        faults = self.faults(order)
        if "OVER" in faults:
            return faults
        if faults:
            order = Order(
                lock=max(order.lock, 0),
                air=max(order.air, 0),
                inspect=order.inspect,
                briefing=order.briefing,
                audit=order.audit,
            )
        self.commit(order)
        return faults

    def commit(self, order: Order) -> None:
        """A week with a decision that is known to be legal."""
        world, happened, now = self.world, self.happened, self.weeks[self.week]
        qty = order.qty

        if order.contract is not None:  # 1. contract
            self._count_contract_action(order.contract)
            self.contracts = self.after_contract_action(order.contract)
        self.briefing = now["canal"].split(":")[0] if order.briefing else None
        self.audit = TRUE_BAND[now["spot"]] if order.audit else None
        if order.lock:
            happened["lock replaced"] += self.lock is not None
            self.lock = {"rate": now["multiplier"], "weeks_left": order.lock}

        self.week += 1  # 3. clock
        today, week = self.weeks[self.week], self.week

        flown = min(order.air, world.most_air)  # 4. air
        self.stock += flown

        shipped, shortfall = qty, 0  # 5. dispatch
        self.fill = None
        if qty > 0 and order.supplier == "spot":
            shipped = round(qty * today["fill"])
            shortfall = qty - shipped
            self.fill = today["fill"]
            happened["order that ships nothing"] += shipped == 0
        multiplier = today["multiplier"] if self.lock is None else self.lock["rate"]
        bill = 0.0
        if shipped > 0:
            bill = shipped * (world.base_rate[order.route] * multiplier + world.delta[order.supplier])
            happened["negative freight bill"] += bill < 0
            self.ships.append(
                {
                    "qty": shipped,
                    "route": order.route,
                    "supplier": order.supplier,
                    "dispatched_week": week,
                    "status": "at_sea",
                    "eta": week + {"suez": 3, "cape": 4}[order.route],
                    "holds": 0,
                }
            )

        diverted = self._move_ships(today)  # 6. voyages
        arrived, defective, held = self._arrivals(today, order.inspect)  # 7. arrivals
        self.stock += arrived

        served = min(self.stock, today["demand"])  # 8. sales
        self.stock -= served
        unmet = today["demand"] - served

        live = self.live()  # 9. costs
        tense = today["canal"] in TENSE
        happened["couple charged"] += tense and shortfall > 0
        happened["shortfall without couple"] += not tense and shortfall > 0
        lines = {
            "shipping": bill,
            "surcharge": world.surcharge * diverted,
            "holding": world.holding * self.stock,
            "in_transit": world.in_transit * self.on_order,
            "stockout": world.stockout * unmet,
            "couple": world.couple * shortfall if tense else 0.0,
            "demurrage": world.demurrage * held,
            "rework": world.rework * defective,
        }
        if order.briefing:
            lines["briefing"] = world.briefing
        if order.audit:
            lines["audit"] = world.audit
        if flown:
            lines["air"] = world.air * flown
        if order.inspect:
            lines["inspect"] = world.inspect
        if len(live) >= 2:
            lines["dual_source"] = world.dual_source
        happened["dual source charged" if len(live) >= 2 else "dual source not charged"] += 1

        if self.lock is not None:  # 10. lock
            self.lock["weeks_left"] -= 1
            if self.lock["weeks_left"] == 0:
                self.lock = None
                happened["lock ran out"] += 1

        self.arrived, self.served, self.unmet = arrived, served, unmet
        self.shipped, self.defective = shipped, defective
        self.costs, self.cost = lines, 0.0
        for line in LINES:
            self.cost += lines.get(line, 0.0)
        self.total += self.cost
        self._count_contracts()

    def _move_ships(self, today: dict) -> int:
        """Stage 6; returns the units diverted today."""
        week, canal, happened, diverted = self.week, today["canal"], self.happened, 0
        blocked = canal.startswith(("short", "long"))
        for ship in self.ships:
            if ship["status"] == "queued_at_suez":
                if blocked:
                    happened["diverted"] += 1
                    diverted += ship["qty"]
                    ship |= {"status": "diverted_via_cape", "eta": week + 3}
                else:
                    happened["released"] += 1
                    happened["released in recovery"] += canal.startswith("recovery")
                    ship |= {"status": "at_sea", "eta": week + 1}
            elif week == ship["dispatched_week"] + 2 and ship["route"] == "suez":
                if blocked:
                    happened["queued"] += 1
                    ship["status"] = "queued_at_suez"
                elif canal.startswith("recovery"):
                    happened["delayed by recovery"] += 1
                    ship["eta"] = ship["dispatched_week"] + 4
                else:
                    ship["eta"] = ship["dispatched_week"] + 3
            elif week == ship["dispatched_week"] + 2:
                long = canal.startswith("long")
                happened["Cape delayed by the coin alone"] += today["cape_coin"] and not long
                happened["Cape delayed by a long closure alone"] += long and not today["cape_coin"]
                happened["Cape delayed once by both"] += long and today["cape_coin"]
                happened["Cape not delayed by a short closure"] += blocked and not long and not today["cape_coin"]
                ship["eta"] = ship["dispatched_week"] + (5 if long or today["cape_coin"] else 4)
        return diverted

    def _arrivals(self, today: dict, inspected: bool) -> tuple[int, int, int]:
        """Stage 7: units stocked, defective, and held."""
        due = [ship for ship in self.ships if ship["eta"] == self.week and ship["status"] != "queued_at_suez"]
        if today["port_blocked"]:
            for ship in due:
                ship["eta"] += 1
                ship["holds"] += 1
                self.happened["held more than once"] += ship["holds"] == 2
            return 0, 0, sum(ship["qty"] for ship in due)
        fraction = today["defect_fraction"] * (self.world.inspection_factor if inspected else 1.0)
        lost = [round(ship["qty"] * fraction) for ship in due]
        self.ships = [ship for ship in self.ships if not any(ship is landed for landed in due)]
        self.happened["several ships landed at once"] += len(due) > 1
        self.happened["defects of several ships rounded apart"] += sum(lost) != round(
            sum(ship["qty"] for ship in due) * fraction
        )
        self.happened["inspection saved units"] += inspected and sum(lost) < sum(
            round(ship["qty"] * today["defect_fraction"]) for ship in due
        )
        return sum(ship["qty"] for ship in due) - sum(lost), sum(lost), 0

    def _count_contract_action(self, contract: dict) -> None:
        supplier, lapse = contract["supplier"], contract["action"] == "lapse"
        dead = supplier in self.open()
        dropped = dead and supplier in self.live()
        self.happened["open contract dropped beside a live one"] += dropped
        self.happened["lapse of an open contract"] += lapse and dead
        self.happened["lapse of a live contract"] += lapse and supplier in self.live() and not dead
        self.happened["live supplier signed again"] += not lapse and supplier in self.live()
        spot_dead = self.weeks[self.week]["spot"] == "defunct"
        self.happened["dead spot signed"] += not lapse and supplier == "spot" and spot_dead

    def _count_contracts(self) -> None:
        for contract in self.contracts:
            if contract["end_week"] == self.week:
                self.happened[f"{contract['terms']} terms ran out"] += 1
        names = self.open()
        dead_early = [
            c for c in self.contracts if self.is_open(c) and (c["end_week"] is None or c["end_week"] > self.week)
        ]
        self.happened["contract with spot killed by its death"] += bool(dead_early)
        self.happened["supplier open twice"] += len(names) != len(set(names))
        self.happened["supplier open and live"] += bool(set(names) & self.live())

    def pipeline(self) -> list[dict]:
        """The ships as the report lists them."""
        keys = ("qty", "route", "supplier", "dispatched_week", "status", "eta")
        return [{"component": "unit"} | {key: ship[key] for key in keys} for ship in self.ships]

    def report(self) -> dict:
        """The part of the weekly report that concerns the books (docs/rules.md 2.2)."""
        world, on_order = self.world, self.on_order
        contracts = [
            {
                "supplier": contract["supplier"],
                "start_week": contract["start_week"],
                "end_week": contract["end_week"],
                "unit_price": world.unit_price[contract["terms"]],
                "otif_floor": world.otif_floor[contract["terms"]],
                "break_fee": world.break_fee[contract["terms"]],
            }
            for contract in self.contracts
        ]
        position = {"on_order": on_order, "inventory_position": self.stock + on_order, "arrived": self.arrived}
        part = {
            "week": self.week,
            "inventory": self.stock,
            **position,
            "components": {"unit": {"on_hand": self.stock, **position}},
            "served": {"unit": self.served},
            "pipeline": self.pipeline(),
            "contracts": contracts,
            "contract_open": self.open(),
            "cost_breakdown": dict(self.costs),
        }
        if self.lock is not None:
            part["freight_lock"] = dict(self.lock)
        if self.fill is not None:
            part["realized_fill"] = self.fill
        return part
