"""The library's week against the plain one of ``reference_model``, number for number, rare branches included."""

import functools
from collections import Counter
from dataclasses import replace

import hypothesis
import hypothesis.strategies as some
import jax
import numpy as np
import pytest

import stocktake_jax as st
from tests import lanes
from tests.reference_model import LINES, Books, Order, World

STATUSES = ("at_sea", "queued_at_suez", "diverted_via_cape")
BRIEFINGS = ("calm", "watch", "false_alarm", "short", "long", "recovery")
BANDS = ("ontime", "slipping", "failing", "defunct")
EVERGREEN = 2**31 - 1


def columns(tape):
    """A tape's columns as lists of plain numbers."""
    return {name: getattr(tape.rows, name).tolist() for name in tape.rows.__dataclass_fields__}


def named(names, index):
    return names[index] if 0 <= index < len(names) else f"number {index}"


def order_of(action):
    """An action of whole numbers in the reference's words."""
    contract = None
    if action["contract_action"] != 0:
        contract = {
            "action": named(st.CONTRACT_ACTIONS, action["contract_action"]),
            "supplier": named(st.SUPPLIERS, action["contract_supplier"]),
            "terms": named(st.TERMS, action["contract_terms"]),
        }
    return Order(
        qty=action["qty"],
        route=named(st.ROUTES, action["route"]),
        supplier=named(st.SUPPLIERS, action["supplier"]),
        contract=contract,
        lock=action["lock_weeks"],
        air=action["air"],
        inspect=action["inspect"] != 0,
        briefing=action["briefing"] != 0,
        audit=action["audit"] != 0,
    )


def by_lane(table, present, row):
    """``row(values of one slot, slot)`` for every slot that is present, as one list a lane."""
    rows = [[] for _ in present]
    where = np.nonzero(present)
    picked = [leaf[where].tolist() for leaf in jax.tree.leaves(table)]
    for lane, slot, *values in zip(*map(np.ndarray.tolist, where), *picked, strict=True):
        rows[lane].append(row(slot, *values))
    return rows


def library_books(state, observation):
    """Ships, contracts and open contracts of all lanes, in the reference's terms."""
    ships = by_lane(
        observation.ships,
        observation.ships.qty > 0,
        lambda slot, qty, eta, status, route, supplier: {
            "qty": qty,
            "route": st.ROUTES[route],
            "supplier": st.SUPPLIERS[supplier],
            "dispatched_week": slot,
            "status": STATUSES[status],
            "eta": eta,
        },
    )
    contracts = by_lane(
        observation.contracts,
        observation.contracts.supplier >= 0,
        lambda slot, supplier, terms, end_week: {
            "supplier": st.SUPPLIERS[supplier],
            "terms": st.TERMS[terms],
            "start_week": max(slot - 1, 0),
            "end_week": None if end_week == EVERGREEN else end_week,
        },
    )
    names = by_lane(observation.contracts, observation.contract_open, lambda slot, supplier, *_: st.SUPPLIERS[supplier])
    return ships, contracts, names


def whole_numbers(books, state, observation, result, i):
    """Pairs (library, reference) of one lane's whole numbers."""
    lock = books.lock or {"rate": 0.0, "weeks_left": 0}
    pairs = {
        "week": (observation.week[i], books.week),
        "stock": (observation.stock[i], books.stock),
        "on_order": (observation.on_order[i], books.on_order),
        "arrived": (observation.arrived[i], books.arrived),
        "served": (observation.served[i], books.served),
        "live": (observation.live[i].tolist(), [name in books.live() for name in st.SUPPLIERS]),
        "lock": (
            (observation.lock_rate[i] / 10_000, observation.lock_weeks[i]),
            (lock["rate"], lock["weeks_left"]),
        ),
        "fill": (observation.fill[i], -1 if books.fill is None else round(100 * books.fill)),
        "briefing": (observation.briefing[i], -1 if books.briefing is None else BRIEFINGS.index(books.briefing)),
        "audit": (observation.audit[i], -1 if books.audit is None else BANDS.index(books.audit)),
        "queued": (state.queued[i], any(ship["status"] == "queued_at_suez" for ship in books.ships)),
    }
    if result is not None:
        pairs |= {
            "unmet": (result.unmet[i], books.unmet),
            "shipped": (result.shipped[i], books.shipped),
            "defective": (result.defective[i], books.defective),
            "landed": (result.arrived[i], books.arrived),
        }
    return pairs


def compare(tapes, actions, params, world):
    """Plays the actions in both models and compares everything; returns what happened, counted, and refusals."""
    with jax.enable_x64(True):
        states, results, observations = lanes.play(tapes, actions, params)
    books = [Books(columns(lanes.lane(tapes, i)), world) for i in range(lanes.LANES)]
    weeks = [jax.tree.map(lambda leaf: leaf[:, w].tolist(), actions) for w in range(actions.qty.shape[1])]  # noqa: B023
    happened: Counter = Counter()
    for week, (state, observation) in enumerate(zip(states, observations, strict=True)):
        ships, contracts, names = library_books(state, observation)
        result = results[week - 1] if week > 0 else None
        for i, book in enumerate(books):
            at = f"lane {i}, week {week}"
            if result is not None:
                decision = {name: values[i] for name, values in vars(weeks[week - 1]).items()}
                faults = book.step(order_of(decision))
                codes = [st.Refusal[name] for name in faults]
                assert result.refusal[i] == min(codes, default=0), at
                happened.update(code.name for code in codes)
                charged = [0.0 if "OVER" in faults else book.costs.get(line, 0.0) for line in LINES]
                np.testing.assert_allclose(result.costs[i], charged, rtol=1e-9, atol=1e-9, err_msg=at)
                assert result.cost[i] == pytest.approx(sum(charged), rel=1e-9, abs=1e-9), at
            shown = [book.costs.get(line, 0.0) for line in LINES]
            np.testing.assert_allclose(observation.costs[i], shown, rtol=1e-9, atol=1e-9, err_msg=at)
            passed = None if week > book.week else result
            for name, (ours, theirs) in whole_numbers(book, state, observation, passed, i).items():
                assert ours == theirs, f"{name} at {at}"
            assert ships[i] == [{k: v for k, v in ship.items() if k != "component"} for ship in book.pipeline()], at
            assert contracts[i] == book.contracts, at
            assert names[i] == book.open(), at
    for book in books:
        happened += book.happened
    return happened


def with_rows(factor, **rows):
    chain = factor.chain
    for label, row in rows.items():
        chain = chain.with_row(label.replace("__", ":"), row)
    return factor.replace(chain=chain)


@functools.cache
def worlds():
    """Worlds in which the rare is common, each for the library and for the reference."""
    paper = st.WorldParams()
    canal = with_rows(
        paper.canal,
        calm={"watch": 0.5, "calm": 0.5},
        watch={"short:0": 0.45, "long:0": 0.4, "false_alarm": 0.05, "calm": 0.05, "watch": 0.05},
        long__0={"long:persist": 0.7, "recovery:0": 0.3},
        long__persist={"long:persist": 0.7, "recovery:0": 0.3},
    ).replace(cape_congestion=0.3)
    port = with_rows(
        paper.port,
        clear={"building": 0.2, "customs_hold:0": 0.3, "clear": 0.5},
        building={"congested:0": 0.8, "clear": 0.1, "building": 0.1},
        customs_hold__0={"customs_hold:persist": 0.5, "clear": 0.5},
        customs_hold__persist={"customs_hold:persist": 0.5, "clear": 0.5},
    )
    quality = paper.quality.replace(defect_rate=(0.02, 0.08, 0.2))
    spot = with_rows(
        paper.supplier,
        reliable={"wobbling": 0.5, "reliable": 0.5},
        wobbling={"degraded:0": 0.6, "reliable": 0.3, "wobbling": 0.1},
        degraded__0={"defunct": 0.2, "reliable": 0.3, "degraded:1": 0.5},
    )
    freight = paper.freight.replace(mean=(0.2, 0.5, 1.8, 1.8, 4.0))
    prices = {
        **{"surcharge": 2.5, "holding": 0.75, "in_transit": 1.25, "stockout": 11.0, "couple": 33.0, "demurrage": 3.0},
        **{"rework": 7.0, "briefing": 12.0, "audit": 13.0, "air": 9.0, "inspect": 21.0, "dual_source": 6.0},
    }
    limits = {"initial_stock": 30, "most_order": 60, "most_air": 7, "inspection_factor": 0.5}
    terms = dict(zip(st.TERMS, (3, 1, 5, 2, 6), strict=True))
    return {
        "paper": (paper, World()),
        "storms": (paper.replace(canal=canal, freight=freight), World()),
        "jams": (paper.replace(port=port, quality=quality), World()),
        "deaths": (paper.replace(canal=canal, supplier=spot), World()),
        "prices": (
            paper.replace(
                canal=canal,
                port=port,
                supplier=spot,
                costs=paper.costs.replace(base_rate=(3.0, 5.0), supplier_delta=(0.5, -2.0, 0.25), **prices),
                desk=paper.desk.replace(term_weeks=tuple(terms.values()), **limits),
            ),
            World(
                base_rate={"suez": 3.0, "cape": 5.0},
                delta={"qualified": 0.5, "spot": -2.0, "backup": 0.25},
                term_weeks=terms,
                **prices,
                **limits,
            ),
        ),
    }


@functools.cache
def pool(name, batch=0):
    return lanes.mint(worlds()[name][0], first=batch * lanes.LANES)


@functools.cache
def bulk(name, batches):
    """What happened in random play, part of it illegal, in one of the worlds."""
    params, world = worlds()[name]
    params.validate()
    rng = np.random.default_rng(sum(map(ord, name)))
    happened: Counter = Counter()
    for batch in range(batches):
        actions = lanes.random_actions(rng, illegal=0.015, most_order=world.most_order, weeks=27)
        happened += compare(pool(name, batch), actions, params, world)
    return happened


@pytest.mark.parametrize("name", ["paper", "storms", "jams", "deaths", "prices"])
def test_random_play_is_the_same_in_both_models(name):
    assert bulk(name, 1)["OVER"] == lanes.LANES


@pytest.mark.slow
@pytest.mark.parametrize("name", ["paper", "storms", "jams", "deaths", "prices"])
def test_much_random_play_is_the_same_in_both_models(name):
    assert bulk(name, 10)["OVER"] == 10 * lanes.LANES


def test_random_play_is_the_same_in_both_models_on_published_tapes():
    seeds = [seed.seed for seed in st.published_seeds()]
    tapes = st.stack([st.published_tape(seeds[i] if i < 50 else i) for i in range(lanes.LANES)])
    compare(tapes, lanes.random_actions(np.random.default_rng(50), illegal=0.01), *worlds()["paper"])


# What a player may say at the desk, right or wrong.
WEEKS = some.one_of(some.integers(1, 9), some.sampled_from([0, -1, 2.5, True, "4", None]))
AIR = some.one_of(some.integers(1, 40), some.sampled_from([0, -3, 7.0, False, "20"]))
NAMES = some.one_of(some.sampled_from(st.SUPPLIERS), some.sampled_from(["SPOT", "", None, 1]))
CONTRACTS = some.one_of(
    some.none(),
    some.fixed_dictionaries(
        {"action": some.sampled_from(st.CONTRACT_ACTIONS[1:]), "supplier": some.sampled_from(st.SUPPLIERS)},
        optional={"terms": some.one_of(some.none(), some.sampled_from(st.TERMS))},
    ),
    some.fixed_dictionaries({"action": some.sampled_from(["lapse", "cancel", None]), "supplier": NAMES}),
    some.fixed_dictionaries(
        {"action": some.just("sign"), "supplier": some.just("spot"), "terms": some.sampled_from(["weekly", 0])}
    ),
)
ORDERS = some.fixed_dictionaries(
    {
        "qty": some.one_of(some.integers(0, 100), some.sampled_from([-1, 101, 20.0, "20", True])),
        "route": some.one_of(some.sampled_from(st.ROUTES), some.sampled_from(st.ROUTES), some.just("air")),
        "supplier": some.one_of(some.sampled_from(st.SUPPLIERS), some.sampled_from(st.SUPPLIERS), NAMES),
        "contract": CONTRACTS,
    }
)
LEVERS = some.one_of(
    some.tuples(some.just("lock_freight"), some.tuples(WEEKS)),
    some.tuples(some.just("expedite_air"), some.tuples(AIR)),
    some.tuples(some.sampled_from(["inspect_batch", "buy_briefing", "buy_audit"]), some.just(())),
)
SEASON = some.lists(
    some.tuples(some.lists(LEVERS, max_size=3), some.lists(ORDERS, max_size=2)), min_size=26, max_size=26
)


def whole(value, least):
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


LEVER_FIELDS = {
    "lock_freight": "lock",
    "expedite_air": "air",
    "inspect_batch": "inspect",
    "buy_briefing": "briefing",
    "buy_audit": "audit",
}


def pull(order, name, arguments):
    """The order with a lever pulled, in the reference's words; None if no rule allows it."""
    if arguments and not whole(arguments[0], 1):
        return None
    return replace(order, **{LEVER_FIELDS[name]: arguments[0] if arguments else True})


@hypothesis.given(season=SEASON, seed=some.integers(0, lanes.LANES - 1), name=some.sampled_from(["paper", "prices"]))
def test_desk_is_the_plain_model_and_a_refused_call_is_as_if_never_made(season, seed, name):
    params, world = worlds()[name]
    tape = lanes.lane(pool(name), seed)
    desk, books = st.Episode(tape, params), Books(columns(tape), world)
    for levers, orders in season:
        pulled = Order()
        for lever, arguments in levers:
            legal = pull(pulled, lever, arguments)
            if legal is None:
                with pytest.raises(st.Refused):
                    getattr(desk, lever)(*arguments)
            else:
                getattr(desk, lever)(*arguments)
                pulled = legal
        for order in [*orders, {"qty": 0}]:
            decision = replace(pulled, **order)
            if not whole(decision.qty, 0) or books.faults(decision):
                with pytest.raises(st.Refused):
                    desk.place_order("Why not?", **order)
                continue
            report = desk.place_order("Why not?", **order)
            books.commit(decision)
            expected = books.report()
            assert report.pop("cost_breakdown") == pytest.approx(expected.pop("cost_breakdown"), rel=1e-9, abs=1e-9)
            assert {key: report.get(key) for key in expected} == expected
            assert ("freight_lock" in report, "realized_fill" in report) == (
                "freight_lock" in expected,
                "realized_fill" in expected,
            )
            assert desk.total_cost == pytest.approx(books.total, rel=1e-9)
            break
    assert desk.done


RARE = {
    "storms": (
        *("queued", "released", "released in recovery", "diverted", "delayed by recovery"),
        *("Cape delayed by the coin alone", "Cape delayed by a long closure alone", "Cape delayed once by both"),
        *("Cape not delayed by a short closure", "negative freight bill", "lock replaced", "lock ran out"),
    ),
    "jams": (
        *("held more than once", "several ships landed at once", "defects of several ships rounded apart"),
        "inspection saved units",
    ),
    "deaths": (
        *("contract with spot killed by its death", "dead spot signed", "order that ships nothing"),
        *("couple charged", "shortfall without couple", "dual source charged", "dual source not charged"),
    ),
    "paper": (
        *("none terms ran out", "short terms ran out", "long terms ran out", "strict terms ran out"),
        *("lenient terms ran out", "live supplier signed again", "lapse of an open contract"),
        *("lapse of a live contract", "supplier open twice", "supplier open and live"),
        "open contract dropped beside a live one",
        *(code.name for code in st.Refusal if code.name not in ("ACCEPTED", "RATIONALE", "CONTRACT")),
    ),
}


@pytest.mark.parametrize(("name", "branch"), [(name, branch) for name, branches in RARE.items() for branch in branches])
def test_random_play_reaches_the_rare_branches(name, branch):
    assert bulk(name, 1)[branch] >= 5
