"""The exact filter is the true posterior: it equals an enumeration of all hidden paths, and it is calibrated.

The enumeration reads the JSON reports, in plain Python and SciPy, from docs/rules.md alone.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import stocktake_jax as st
from stocktake_jax.env import observe_row
from stocktake_jax.factors import MODULES
from stocktake_jax.logistics import initial_state, transition
from stocktake_jax.oracle import filters
from stocktake_jax.oracle.filters import filter_tape, prior, reveal, update
from stocktake_jax.symptoms import log_mass

WEEKS = 8
LANES = 24
LABELS = {name: module.LAYOUT.labels for name, module in MODULES.items()}


def stormy():
    """A world in which much happens in the first weeks."""
    world = st.WorldParams()

    def rows(factor, **rows):
        numbers = getattr(world, factor)
        chain = numbers.chain
        for label, row in rows.items():
            chain = chain.with_row(label, row)
        return numbers.replace(chain=chain)

    return world.replace(
        canal=rows(
            "canal",
            calm={"watch": 0.5, "calm": 0.5},
            watch={"short:0": 0.3, "long:0": 0.3, "false_alarm": 0.2, "calm": 0.1, "watch": 0.1},
        ).replace(cape_congestion=0.4),
        freight=rows("freight", normal={"tightening:0": 0.3, "slack": 0.3, "normal": 0.4}),
        port=rows("port", clear={"building": 0.3, "customs_hold:0": 0.2, "clear": 0.5}),
        quality=rows("quality", in_control={"drifting:0": 0.5, "in_control": 0.5}),
        supplier=rows("supplier", reliable={"wobbling": 0.5, "reliable": 0.5}),
    )


# The enumeration.


def normal_mass(low, high, mean, sd):
    """P(low <= N(mean, sd) < high), from the tail that keeps the digits."""
    if low > mean:
        return stats.norm.sf(low, mean, sd) - stats.norm.sf(high, mean, sd)
    return stats.norm.cdf(high, mean, sd) - stats.norm.cdf(low, mean, sd)


def cell(value, step, least=0.0, most=np.inf):
    """What rounds and clips to a reading."""
    return (
        -np.inf if value <= least + step / 4 else value - step / 2,
        np.inf if value >= most - step / 4 else value + step / 2,
    )


MULTIPLIERS = np.arange(90_001)
INDEX_OF = np.round(100 * (MULTIPLIERS / 10_000))
FRACTIONS = np.arange(400_001) / 100_000


def steps_mass(steps, mean, sd):
    """P(the multiplier is among a run of whole steps)."""
    assert len(steps) == steps[-1] - steps[0] + 1
    low, high = cell(steps[0] / 1e4, 1e-4, 0.1)[0], steps[-1] / 1e4 + 0.5e-4
    return normal_mass(low, high, mean, sd)


class Enumeration:
    """Likelihood tables by factor, week and state, corrected backwards when a report tells of an earlier week."""

    MEANS = {  # noqa: RUF012
        "demand": {
            "normal": 20,
            "structural_decline": 14,
            "promo_spike": 26,
            "seasonal_lift": 30,
            "seasonal_lift:0": 26,
        },
        "freight": {"slack": 0.7, "normal": 1.0, "tightening": 1.8, "spike": 4.0, "spike:0": 1.8},
        "port": {"clear": 1, "building": 4, "congested": 16, "customs_hold": 16}
        | {"congested:0": 14, "customs_hold:0": 14},
        "quality": {"in_control": 0.001, "drifting": 0.02, "out_of_control": 0.06},
        "slip": {"reliable": 0, "wobbling": 3, "degraded": 7, "defunct": 0},
        "fill": {"reliable": 0.95, "wobbling": 0.60, "degraded": 0.15, "defunct": 0},
    }
    BANDS = {  # noqa: RUF012
        "calm": (70, 70, 60),
        "watch": (63, 63, 60),
        "false_alarm": (28, 25, 66),
        "short:0": (28, 25, 66),
        "long:0": (28, 25, 66),
        "short:1": (0, 0, 72),
        "long:persist": (14, 10, 96),
        "recovery": (56, 56, 69),
    }
    AQL = {  # noqa: RUF012
        "in_control": (0.90, 0.09, 0.01),
        "drifting": (0.30, 0.50, 0.20),
        "out_of_control": (0.05, 0.25, 0.70),
    }

    def __init__(self, world, report):
        self.world = world
        self.last = report
        self.tables = {name: [None] for name in st.FACTORS}
        self.multipliers = [np.array([10_000])]  # those that are possible, by week

    @staticmethod
    def of(table, label):
        return table[label] if label in table else table[label.split(":")[0]]

    def each(self, factor, likelihood):
        return [likelihood(label) for label in LABELS[factor]]

    def read(self, report, lock_weeks):
        """Takes in the report after a decision that locked freight for so many weeks (0: it did not)."""
        for name in st.FACTORS:
            self.tables[name].append(getattr(self, name)(report))
        self.multiplier(report, lock_weeks)
        if "briefing" in report:
            self.late("canal", lambda label: label.split(":")[0] == report["briefing"])
        if "audit" in report:
            self.late("supplier", lambda label: self.true_band(label) == report["audit"])
        self.last = report

    def late(self, factor, fits):
        """Corrects the table of the week before."""
        table = self.tables[factor][-2]
        if table is not None:
            self.tables[factor][-2] = [p * fits(label) for p, label in zip(table, LABELS[factor], strict=True)]

    def demand(self, report):
        pos, forecast = cell(report["pos_units"], 1), cell(report["demand_forecast"], 1)

        def likelihood(label):
            mean = self.of(self.MEANS["demand"], label)
            return normal_mass(*pos, mean, 4) * normal_mass(*forecast, mean, 6)

        return self.each("demand", likelihood)

    def freight(self, report):
        outlook = np.flatnonzero((report["freight_outlook"] == INDEX_OF) & (MULTIPLIERS >= 1000))
        return self.each("freight", lambda label: steps_mass(outlook, self.of(self.MEANS["freight"], label), 0.25))

    def multiplier(self, report, lock_weeks):
        """Which multipliers this week can have had, and the last one."""
        possible = np.flatnonzero((report["freight_index"] == INDEX_OF) & (MULTIPLIERS >= 1000))
        rate = report.get("freight_lock", {}).get("rate")
        sailed = [ship for ship in report["pipeline"] if ship["dispatched_week"] == report["week"]]
        paid = None
        if sailed:
            (ship,) = sailed
            base = {"suez": 4, "cape": 6}[ship["route"]]
            delta = {"qualified": 1, "spot": -1.5, "backup": 0.3}[ship["supplier"]]
            paid = round(1e4 * (report["cost_breakdown"]["shipping"] / ship["qty"] - delta) / base)
        had = "freight_lock" in self.last
        # A lock of one week cannot be told from none where the index stands still.
        unclear = not had and rate is None and report["freight_index"] == self.last["freight_index"]
        if lock_weeks:
            exact = round(rate * 1e4) if rate is not None else None if unclear else paid
            if exact is not None:
                assert exact in self.multipliers[-1]
                self.multipliers[-1] = np.array([exact])
        elif not had and paid is not None and not unclear:
            assert paid in possible
            possible = np.array([paid])
        self.multipliers.append(possible)

    def canal(self, report):
        """By state and coin: whether counts and ships are what they must be."""
        week = report["week"]
        shown = {ship["dispatched_week"]: ship for ship in report["pipeline"]}

        def fits(label, coin):
            regime = label.split(":")[0]
            blocked = regime in ("short", "long")
            suez, bab, cape = self.of(self.BANDS, label)
            if (suez, bab, cape + 21 * coin) != tuple(report[f"{at}_count"] for at in ("suez", "bab", "cape")):
                return False
            for ship in self.last["pipeline"]:
                status, eta = ship["status"], ship["eta"]
                if status == "queued_at_suez":
                    status, eta = ("diverted_via_cape", week + 3) if blocked else ("at_sea", week + 1)
                elif ship["dispatched_week"] + 2 == week and ship["route"] == "suez":
                    if blocked:
                        status = "queued_at_suez"
                    elif regime == "recovery":
                        eta += 1
                elif ship["dispatched_week"] + 2 == week:
                    eta += coin or regime == "long"
                elif eta == week:
                    continue  # the port's affair
                now = shown[ship["dispatched_week"]]
                if (now["status"], now["eta"]) != (status, eta):
                    return False
            return True

        odds = (1 - float(self.world.canal.cape_congestion), float(self.world.canal.cape_congestion))
        return self.each("canal", lambda label: sum(odds[coin] * fits(label, coin) for coin in (0, 1)))

    def due(self, report):
        return [
            ship
            for ship in self.last["pipeline"]
            if ship["eta"] == report["week"] and ship["status"] != "queued_at_suez"
        ]

    def held(self, report):
        return report["cost_breakdown"]["demurrage"] > 0

    def port(self, report):
        wait, outlook = cell(report["berth_wait"], 1), cell(report["wait_outlook"], 1)

        def likelihood(label):
            mean = self.of(self.MEANS["port"], label)
            blocked = label.startswith(("congested", "customs_hold"))
            possible = not self.due(report) or blocked == self.held(report)
            return possible * normal_mass(*wait, mean, 2) * normal_mass(*outlook, mean, 3)

        return self.each("port", likelihood)

    def quality(self, report):
        result = ("accept", "marginal", "reject").index(report["aql_result"])
        low, high = 0.0, np.inf
        if self.due(report) and not self.held(report):
            share = FRACTIONS * 0.3 if report["cost_breakdown"].get("inspect") else FRACTIONS
            lost = sum(np.round(ship["qty"] * share) for ship in self.due(report))
            fits = np.flatnonzero(lost == round(report["cost_breakdown"]["rework"] / 15))
            low, high = max(0.0, (fits[0] - 0.5) / 1e5), (fits[-1] + 0.5) / 1e5

        def likelihood(label):
            gamma = stats.gamma(2, scale=self.of(self.MEANS["quality"], label) / 2)
            return self.of(self.AQL, label)[result] * (gamma.sf(low) - gamma.sf(high))

        return self.each("quality", likelihood)

    @staticmethod
    def true_band(label):
        table = {"reliable": "ontime", "wobbling": "slipping", "degraded:0": "slipping", "defunct": "defunct"}
        return table.get(label, "failing")

    def supplier(self, report):
        row = report["suppliers"][1]
        shown = (row["band"], row["otif"], row["lead_days"])
        scorecard = {
            "ontime": ("ontime", 98, 14),
            "slipping": ("ontime", 96, 15),
            "failing": ("slipping", 86, 19),
            "defunct": ("defunct", None, None),
        }

        def likelihood(label):
            if scorecard[self.true_band(label)] != shown:
                return 0
            if label == "defunct":
                return 1
            p = normal_mass(*cell(row["realized_lead_slip"], 0.1), self.of(self.MEANS["slip"], label), 2.5)
            if "realized_fill" in report:
                p *= normal_mass(*cell(report["realized_fill"], 0.01, 0, 1), self.of(self.MEANS["fill"], label), 0.12)
            return p

        return self.each("supplier", likelihood)

    def posterior(self, factor):
        """Over the last week's states: the weight of every path, added up by where it ends."""
        chain = getattr(self.world, factor).chain
        tables = self.tables[factor]
        if factor == "freight":
            tables = [None] + [
                [
                    p * steps_mass(steps, self.of(self.MEANS["freight"], label), 0.15)
                    for p, label in zip(table, LABELS["freight"], strict=True)
                ]
                for table, steps in zip(tables[1:], self.multipliers[1:], strict=True)
            ]
        weights = np.zeros(len(LABELS[factor]))

        def walk(week, state, weight):
            if week == len(tables):
                weights[state] += weight
                return
            for to, p in zip(chain.layout.successors[state], chain.probabilities[state], strict=False):
                further = weight * p * tables[week][to]
                if further > 0:
                    walk(week + 1, to, further)

        walk(1, MODULES[factor].START, 1.0)
        return weights / weights.sum()


# Episodes, with what the filter makes of them.


def week_of(params, policy, loop, exogenous):
    """One week: the report is read, and a legal action taken."""
    state, memory, now, key = loop
    row, week = exogenous
    observation = observe_row(params, state, now)
    memory = update(params, memory, observation)
    action, _ = policy.act(params, (), observation, jax.random.fold_in(key, week))
    state, _ = transition(params, state, action, now, row)
    return (state, memory, row, key), (observation, action, memory.beliefs)


@functools.partial(jax.jit, static_argnames=("weeks", "view"))
def episodes(seeds, params, weeks=26, view=lambda tape, record: record):
    """Random legal episodes: ``view`` of each tape and of observations, actions and beliefs of the weeks from 0 on."""
    params = params.arrays()

    def one(seed):
        tape = st.mint(seed, params)
        first = jax.tree.map(lambda column: column[0], tape.rows)
        exogenous = (jax.tree.map(lambda column: column[1 : weeks + 1], tape.rows), jnp.arange(weeks))
        loop = (initial_state(params), prior(params, "exact"), first, jax.random.key(seed))
        _, record = jax.lax.scan(functools.partial(week_of, params, st.policies.random_legal()), loop, exogenous)
        return view(tape, record)

    return jax.vmap(one)(seeds)


@pytest.mark.parametrize("world", [st.WorldParams(), stormy()], ids=["paper", "stormy"])
def test_equals_the_enumeration_of_all_paths(world):
    seen = {"locked": 0, "briefing": 0, "audit": 0, "queued_at_suez": 0, "diverted_via_cape": 0, "held": 0, "rework": 0}
    with jax.enable_x64(True):
        observations, actions, beliefs = jax.device_get(episodes(np.arange(LANES, dtype=np.uint32), world, WEEKS))
    assert not beliefs.impossible.any()
    for lane in range(LANES):
        reports = [st.report(jax.tree.map(lambda leaf: leaf[lane, week], observations)) for week in range(WEEKS)]  # noqa: B023
        enumeration = Enumeration(world, reports[0])
        for week, report in enumerate(reports[1:], start=1):
            locked = int(actions.lock_weeks[lane, week - 1])
            enumeration.read(report, locked)
            for factor in st.FACTORS:
                np.testing.assert_allclose(
                    getattr(beliefs, factor)[lane, week],
                    enumeration.posterior(factor),
                    rtol=0,
                    atol=1e-9,
                    err_msg=f"{factor} of seed {lane} in week {week}",
                )
            seen["locked"] += locked > 0
            seen["briefing"] += "briefing" in report
            seen["audit"] += "audit" in report
            seen["held"] += report["cost_breakdown"]["demurrage"] > 0
            seen["rework"] += report["cost_breakdown"]["rework"] > 0
            for ship in report["pipeline"]:
                if ship["status"] in seen:
                    seen[ship["status"]] += 1
    if world.canal.cape_congestion > 0.1:
        assert min(seen.values()) >= 5, seen


# Calibration.


def moments(tape, beliefs):
    """Sums over weeks 1.. of belief, truth, and belief times (truth - belief), for all states of all factors."""
    totals = []
    for name, belief in beliefs.items():
        truth = getattr(tape.rows, name)[1 : len(belief), None] == np.arange(belief.shape[1], dtype=np.int32)[None]
        truth, belief = truth.astype(belief.dtype), belief[1:]
        totals.append(jnp.stack([belief, truth, belief * (truth - belief)]).sum(axis=1))
    return jnp.concatenate(totals, axis=-1)


def active(tape, record):
    return moments(tape, record[2].as_dict())


@functools.partial(jax.jit, static_argnames="kind")
def passive(seeds, kind):
    def one(seed):
        tape = st.mint(seed)
        return moments(tape, filter_tape(tape, kind))

    return jax.vmap(one)(seeds)


def gather(function, tapes, chunk=2048):
    """``[tapes, 3, states]``, in float64."""
    chunks = [np.arange(first, first + chunk, dtype=np.uint32) for first in range(0, tapes, chunk)]
    return np.concatenate([np.asarray(function(seeds), np.float64) for seeds in chunks])


def deviations(sums):
    """How many standard errors (tapes being independent) each state is off, on average and where it is believed.

    What a report settles never varies, so that its standard error is the rounding of sums; a hundredth of a week in all
    is let pass.
    """
    belief, truth, product = np.moveaxis(sums, 1, 0)
    common = truth.sum(axis=0) >= 30
    found = []
    for differences in (belief - truth, product):
        error = differences.std(axis=0) * np.sqrt(len(differences))
        found.append(np.where(common, np.abs(differences.sum(axis=0)) / np.maximum(error, 0.01), 0))
    return np.stack(found)


# A tape gives 25 weeks with a decision behind them.
@pytest.mark.parametrize("tapes", [8192, pytest.param(40_960, marks=pytest.mark.slow)])
def test_calibrated_under_random_play(tapes):
    world = st.WorldParams()
    off = deviations(gather(lambda seeds: episodes(seeds, world, 26, active), tapes))
    assert off.max() < 4, off.round(1)


def test_calibrated_on_passive_weeks_where_the_published_filter_is_not():
    states = [(name, label) for name in st.FACTORS for label in LABELS[name]]
    building = states.index(("port", "building"))
    exact, published = (gather(functools.partial(passive, kind=kind), 8192) for kind in ("exact", "published"))
    assert deviations(exact).max() < 4
    assert deviations(published)[0, building] > 10
    weeks = 8192 * 26
    assert published[:, 0, building].sum() / weeks > 1.05 * published[:, 1, building].sum() / weeks


# The rest.


def test_equal_reports_give_equal_beliefs_whatever_is_hidden_behind_them():
    tape = st.mint(5)
    hidden = {
        name: jnp.zeros_like(getattr(tape.rows, name)) + np.int32(len(LABELS[name]) - 1)
        for name in ("demand", "freight", "port", "quality")
    }
    crash = jnp.asarray([2, 3, 5])  # a false alarm and the first week of either closure show the same
    swapped = jnp.where(jnp.isin(tape.rows.canal, crash), np.int32(5), tape.rows.canal)
    other = tape.replace(rows=tape.rows.replace(canal=swapped, **hidden))
    for factor, belief in filter_tape(tape, "exact").items():
        np.testing.assert_array_equal(belief, filter_tape(other, "exact")[factor])


read = jax.jit(update)


def test_float32_agrees_with_float64():
    world = st.WorldParams()
    with jax.enable_x64(True):
        observations, _, double = jax.device_get(episodes(np.arange(LANES, dtype=np.uint32), world, WEEKS))
    single = jax.tree.map(lambda leaf: leaf.astype(np.float32) if leaf.dtype == np.float64 else leaf, observations)
    for lane in range(LANES):
        memory = prior(world, "exact")
        for week in range(WEEKS):
            memory = read(world, memory, jax.tree.map(lambda leaf: leaf[lane, week], single))  # noqa: B023
            for name, belief in memory.beliefs.as_dict().items():
                assert belief.dtype == np.float32
                np.testing.assert_allclose(belief, getattr(double, name)[lane, week], rtol=0, atol=1e-4)


def test_an_answer_bought_counts_once_at_the_desk_and_in_the_next_report():
    """Known at once or with the next report, or both: a week later it comes to the same."""
    params = st.WorldParams()
    tape = st.mint(3)
    memory, state = prior(params, "exact"), st.reset(tape)
    for week in range(10):
        memory = read(params, memory, st.observe(state, tape))
        row = tape.week(week)
        briefing = MODULES["canal"].BRIEFING[row.canal]
        audit = MODULES["supplier"].TRUE_BAND[row.supplier]
        told = reveal(memory.beliefs, briefing=briefing, audit=audit)
        assert not told.impossible.any()
        np.testing.assert_allclose(told.canal[briefing == MODULES["canal"].BRIEFING].sum(), 1, rtol=1e-6)
        np.testing.assert_allclose(told.supplier[audit == MODULES["supplier"].TRUE_BAND].sum(), 1, rtol=1e-6)
        state, _ = st.step(state, st.Action(briefing=1, audit=1), tape)
        seen = st.observe(state, tape)
        late, twice = read(params, memory, seen).beliefs, read(params, memory.replace(beliefs=told), seen).beliefs
        once = read(params, memory.replace(beliefs=told), seen.replace(briefing=jnp.int32(-1), audit=jnp.int32(-1)))
        for name in st.FACTORS:
            np.testing.assert_allclose(getattr(twice, name), getattr(late, name), rtol=0, atol=1e-6)
            np.testing.assert_allclose(getattr(once.beliefs, name), getattr(late, name), rtol=0, atol=1e-6)
    impossible = reveal(memory.beliefs, briefing=MODULES["canal"].BRIEFINGS.index("long"), audit=0)
    assert impossible.impossible.tolist() == [True, False, False, False, False, audit != 0]


def test_a_report_read_twice_counts_once():
    params = st.WorldParams()
    tape = st.mint(7)
    state, _ = st.step(st.reset(tape), st.Action(), tape)
    memory = prior(params, "exact")
    first = read(params, memory, st.observe(st.reset(tape), tape))
    once = read(params, first, st.observe(state, tape))
    assert not np.array_equal(once.beliefs.demand, first.beliefs.demand)
    twice = read(params, once, st.observe(state, tape))
    for name in st.FACTORS:
        np.testing.assert_array_equal(getattr(first.beliefs, name), np.eye(len(LABELS[name]))[MODULES[name].START])
        np.testing.assert_array_equal(getattr(once.beliefs, name), getattr(twice.beliefs, name))


def test_an_impossible_report_leaves_the_prediction_and_raises_the_factors_flag():
    params = st.WorldParams()
    tape = st.mint(7)
    state, _ = st.step(st.reset(tape), st.Action(), tape)
    seen = st.observe(state, tape).replace(
        counts=jnp.array([1, 2, 3], jnp.int32), supplier_otif=jnp.full(3, 50, jnp.int32)
    )
    memory = read(params, prior(params, "exact"), seen)
    assert dict(zip(st.FACTORS, memory.beliefs.impossible.tolist(), strict=True)) == {
        name: name in ("canal", "supplier") for name in st.FACTORS
    }
    chain = params.canal.chain
    start = np.eye(10, dtype=np.float32)[MODULES["canal"].START]
    np.testing.assert_allclose(memory.beliefs.canal, chain.predict(start), rtol=1e-6)


@pytest.mark.parametrize("x64", [False, True])
def test_masses_are_probabilities(x64):
    """Over all readings they add up to 1, nothing is NaN, and cells far out keep their order."""
    with jax.enable_x64(x64):
        dtype = jnp.zeros(()).dtype
        means = jnp.asarray([-3.0, 0.0, 0.2, 7.5, 100.0], dtype)

        @jax.jit
        @functools.partial(jax.vmap, in_axes=(0, None))
        def clipped(reading, sd):
            return log_mass(reading, reading, means, sd, np.int32(0), np.int32(100))

        for sd in (0.0, 1e-4, 0.3, 2.5, 40.0):
            mass = clipped(np.arange(101, dtype=np.int32), jnp.asarray(sd, dtype))
            assert not np.isnan(mass).any()
            np.testing.assert_allclose(np.exp(mass).sum(axis=0), 1, rtol=1e-12 if x64 else 1e-5)
        one = jnp.asarray(1.0, dtype)
        far = jax.vmap(lambda k: log_mass(k, k, means, one, np.int32(0)))(jnp.arange(500, dtype=jnp.int32))
        assert np.isfinite(far).all()
        assert (np.diff(far[110:], axis=0) < 0).all()


def test_evidence_is_named_once_and_can_be_left_out():
    names = [name for names in filters.EVIDENCE.values() for name in names]
    assert len(names) == len(set(names))
    params = st.WorldParams().arrays()
    tape = st.mint(0)
    seen = st.observe(st.reset(tape), tape)
    told = filters.clues(params, seen, seen, jnp.array(True))
    for factor, module in MODULES.items():
        late, now = filters._terms(module, getattr(params, factor), seen, told)
        assert (*now, *late) == filters.EVIDENCE[factor]
    state, _ = st.step(st.reset(tape), st.Action(), tape)
    blind = update(params, prior(params, "exact", ignored=names), st.observe(state, tape))
    for name in st.FACTORS:
        start = np.eye(len(LABELS[name]), dtype=np.float32)[MODULES[name].START]
        np.testing.assert_allclose(getattr(blind.beliefs, name), getattr(params, name).chain.predict(start), rtol=1e-6)
    with pytest.raises(ValueError, match="No evidence is called gossip"):
        prior(params, "exact", ignored=["gossip"])
