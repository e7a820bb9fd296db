"""The pure environment: what it refuses, what it shows, what it hides, and that it compiles once."""

import functools
import subprocess
import sys
from collections import Counter
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stocktake_jax as st
from stocktake_jax import env, logistics
from stocktake_jax.factors import MODULES, canal, supplier
from tests import lanes

QUALIFIED, SPOT, BACKUP = range(3)
SIGN, SWITCH, RENEW, LAPSE = range(1, 5)
R = st.Refusal


@functools.cache
def quiet():
    return lanes.quiet_tape()


def assert_same(one, other):
    jax.tree.map(np.testing.assert_array_equal, one, other)


# Compiled once.


@pytest.fixture
def traces(monkeypatch):
    """Counts tracings of the week and of the observation, after one call of each has compiled them."""
    state = st.reset(quiet())
    st.step(state, st.Action(), quiet())
    st.observe(state, quiet())
    counted = Counter()

    def counting(module, name):
        function = getattr(module, name)

        def wrapper(*args):
            counted[name] += 1
            return function(*args)

        monkeypatch.setattr(module, name, wrapper)

    counting(logistics, "transition")
    counting(env, "observe_row")
    return counted


def test_tracings_are_counted(traces):
    state, action = st.reset(quiet()), st.Action(qty=np.zeros((), np.int16))
    jax.eval_shape(st.step, state, action, quiet(), st.WorldParams())
    jax.eval_shape(st.observe, state.replace(arrived=np.zeros((), np.int16)), quiet(), st.WorldParams())
    assert traces == {"transition": 1, "observe_row": 1}


def test_no_seed_week_or_action_compiles_anew(traces):
    kinds = [int, np.int32, np.int64, jnp.int32, lambda x: np.array(x, np.int32)]
    for seed, kind in enumerate(kinds):
        tape = st.published_tape(seed)
        state = st.reset(tape)
        for week in range(4):
            whole = {name: kind(1) for name in st.Action.__dataclass_fields__}
            state, _ = st.step(state, st.Action(**whole | {"qty": kind(10 * week), "supplier": kind(SPOT)}), tape)
            st.observe(state, tape)
    st.step(jax.device_get(state), st.Action(inspect=True), jax.device_put(tape))
    st.observe(jax.device_get(state), jax.device_put(tape))
    assert not traces


def test_no_number_of_the_world_compiles_anew(traces):
    state, params = st.reset(quiet()), st.WorldParams()
    leaves, layout = jax.tree.flatten(params)
    assert len(leaves) > 50
    for i, leaf in enumerate(leaves):
        changed = [*leaves[:i], leaf + np.ones_like(leaf), *leaves[i + 1 :]]
        st.step(state, st.Action(), quiet(), jax.tree.unflatten(layout, changed))
        st.observe(state, quiet(), jax.tree.unflatten(layout, changed))
    for value in (3, 3.5, np.float32(3), np.int64(3), jnp.float32(3), jnp.int32(3)):
        st.step(state, st.Action(), quiet(), params.replace(costs=params.costs.replace(holding=value)))
    assert not traces


_MIXED = """
import jax
import stocktake_jax as st
tape = st.published_tape(1)
single = jax.jit(st.observe)(st.reset(tape), tape)
with jax.enable_x64(True):
    double = st.observe(st.reset(tape), tape)
print(single.costs.dtype, double.costs.dtype)
"""


def test_precisions_can_be_mixed_in_one_process_under_the_callers_own_jit():
    # In a process of its own: where this fails, JAX is left with buffers of the wrong size, and may crash.
    root = Path(__file__).resolve().parent.parent
    done = subprocess.run([sys.executable, "-c", _MIXED], capture_output=True, text=True, cwd=root, check=False)
    assert done.stdout.split() == ["float32", "float64"], done.stderr[-2000:]


# Refused actions.

LEVERS = {"lock_weeks": 3, "air": 5, "inspect": 1, "briefing": 1, "audit": 1}
ORDER = {"qty": 10, "supplier": SPOT}
DEAL = {"contract_action": SIGN, "contract_supplier": BACKUP, "contract_terms": 1}
ILLEGAL = [
    (R.LOCK_WEEKS, {"lock_weeks": -1}),
    (R.LOCK_WEEKS, {"lock_weeks": -(2**31)}),
    (R.AIR, {"air": -1}),
    (R.CONTRACT_ACTION, {"contract_action": -1}),
    (R.CONTRACT_ACTION, {"contract_action": 5}),
    (R.CONTRACT_SUPPLIER, {"contract_supplier": -1}),
    (R.CONTRACT_SUPPLIER, {"contract_supplier": 3}),
    (R.CONTRACT_SUPPLIER, {"contract_action": LAPSE, "contract_supplier": 3}),
    (R.CONTRACT_TERMS, {"contract_terms": -1}),
    (R.CONTRACT_TERMS, {"contract_terms": 5}),
    (R.CONTRACT_TERMS, {"contract_action": LAPSE, "contract_terms": 5}),
    (R.QTY, {"qty": -1}),
    (R.QTY, {"qty": 101}),
    (R.QTY, {"qty": 2**31 - 1}),
    (R.ROUTE, {"route": -1}),
    (R.ROUTE, {"route": 2}),
    (R.SUPPLIER, {"supplier": -1}),
    (R.SUPPLIER, {"supplier": 3}),
    (R.NO_CONTRACT, {"supplier": QUALIFIED}),
    (R.NO_CONTRACT, {"supplier": BACKUP, "contract_supplier": QUALIFIED}),
    (R.NO_CONTRACT, {"supplier": BACKUP, "contract_action": LAPSE}),
]


@functools.cache
def under_way():
    """The books of week 2, with two ships at sea and a freight lock, and the tape."""
    tape = quiet()
    state, _ = st.step(st.reset(tape), st.Action(**ORDER, **LEVERS), tape)
    state, _ = st.step(state, st.Action(**ORDER), tape)
    return state, tape


def described(case):
    return f"{case[0].name} {case[1]}"


@pytest.mark.parametrize("case", ILLEGAL, ids=described)
def test_refused_week_runs_as_order_nothing_with_its_legal_levers(case):
    code, part = case
    state, tape = under_way()
    action = {**ORDER, **DEAL, **LEVERS, **part}
    nothing = {name: max(value, 0) for name, value in action.items() if name in LEVERS}
    after, result = st.step(state, st.Action(**action), tape)
    legal, expected = st.step(state, st.Action(**nothing), tape)
    assert result.refusal == code
    assert expected.refusal == R.ACCEPTED
    assert_same(after, legal)
    assert_same(result.replace(refusal=0), expected.replace(refusal=0))
    assert after.week == 3
    assert after.briefing >= 0


def test_every_refusal_of_the_pure_environment_is_tried():
    tried = {code for code, _ in ILLEGAL}
    at_the_desk_alone = {R.RATIONALE, R.CONTRACT}
    assert tried == set(R) - at_the_desk_alone - {R.ACCEPTED, R.OVER}


def test_whole_action_is_legal_without_its_illegal_part():
    state, tape = under_way()
    after, result = st.step(state, st.Action(**ORDER, **DEAL, **LEVERS), tape)
    assert result.refusal == R.ACCEPTED
    assert after.on_order == state.on_order + 10
    assert after.covered_until[BACKUP] == 2 + 4


@pytest.mark.parametrize("several", [{"qty": 101, "supplier": 3}, {"lock_weeks": -1, "qty": -5, "route": 7}])
def test_first_refusal_in_the_order_of_the_codes_is_returned(several):
    state, tape = under_way()
    _, result = st.step(state, st.Action(**ORDER | several), tape)
    assert result.refusal == (R.LOCK_WEEKS if "lock_weeks" in several else R.QTY)


@pytest.mark.parametrize(
    "ignored",
    [
        {"qty": 0, "route": 99, "supplier": -7},
        {"contract_action": 0, "contract_supplier": 99, "contract_terms": -1},
        {"air": 10**9},
        {"lock_weeks": 2**31 - 1},
        {"contract_action": LAPSE, "contract_supplier": SPOT},
        {"contract_action": LAPSE, "contract_supplier": BACKUP},
    ],
    ids=str,
)
def test_what_the_rules_ignore_is_not_refused(ignored):
    state, tape = under_way()
    _, result = st.step(state, st.Action(**ignored), tape)
    assert result.refusal == R.ACCEPTED


def test_after_the_last_week_nothing_changes_any_more():
    actions, states, _, observations = lanes.random_play()
    tapes = lanes.mint()
    after, result = jax.device_get(lanes.step(states[-1], jax.tree.map(lambda leaf: leaf[:, 0], actions), tapes))
    assert (states[-1].week == lanes.WEEKS).all()
    assert (result.refusal == R.OVER).all()
    assert_same(after, states[-1])
    assert_same(lanes.observe(after, tapes), observations[-1])
    for name in ("costs", "cost", "unmet", "arrived", "shipped", "defective"):
        assert not getattr(result, name).any()


@pytest.mark.parametrize(("lever", "shown"), [("briefing", ("calm", "long")), ("audit", ("ontime", "failing"))])
def test_bought_reveal_is_in_the_next_report_alone_and_tells_of_the_week_it_was_bought_in(lever, shown):
    tape = lanes.quiet_tape(canal={2: "long:0"}, supplier={2: "degraded:1"})
    state, said = st.reset(tape), []
    for week in range(4):
        state, _ = st.step(state, st.Action(**{lever: int(week in (1, 2))}), tape)
        said.append(st.report(st.observe(state, tape)).get(lever))
    assert said == [None, *shown, None]


def test_reset_is_the_same_for_every_tape():
    assert_same(st.reset(st.published_tape(1)), st.reset(quiet()))
    state = jax.device_get(st.reset(quiet()))
    assert (state.week, state.stock, state.on_order) == (0, 80, 0)
    assert state.contracts.supplier.tolist()[:2] == [SPOT, -1]


# The mask.


def test_mask_calls_legal_what_is_accepted_and_nothing_else():
    _, states, _, observations = lanes.random_play()
    tapes, zeros = lanes.mint(), np.zeros(lanes.LANES, np.int32)
    masks = jax.vmap(st.action_mask, in_axes=(0, None, None))
    verdicts = Counter()
    for week in (0, 3, 9, 17, 25, 26):
        for action, contractor in [(0, 0), *((a, s) for a in (SIGN, RENEW, LAPSE) for s in range(3))]:
            mask = masks(observations[week], np.int32(action), np.int32(contractor))
            np.testing.assert_array_equal(mask.open, week < lanes.WEEKS)
            for source in range(3):
                order = st.Action(
                    **dict.fromkeys(st.Action.__dataclass_fields__, zeros)
                    | {"qty": zeros + 1, "supplier": zeros + source}
                    | {"contract_action": zeros + action, "contract_supplier": zeros + contractor}
                )
                _, result = lanes.step(states[week], order, tapes)
                np.testing.assert_array_equal(mask.supplier[:, source], result.refusal == R.ACCEPTED)
                verdicts.update(zip(np.asarray(mask.supplier[:, source]).tolist(), [source] * lanes.LANES, strict=True))
    assert all(verdicts[legal, source] > 100 for legal in (True, False) for source in range(3))


def test_mask_of_a_dead_spot_cannot_be_mended_by_signing():
    tape = lanes.quiet_tape(supplier={0: "defunct", 1: "defunct"})
    observation = st.observe(st.reset(tape), tape)
    assert st.action_mask(observation).supplier.tolist() == [False, False, False]
    assert st.action_mask(observation, SIGN, SPOT).supplier.tolist() == [False, False, False]
    assert st.action_mask(observation, SIGN, BACKUP).supplier.tolist() == [False, False, True]
    assert st.action_mask(observation, LAPSE, BACKUP).supplier.tolist() == [False, False, False]


# What is hidden (docs/rules.md 1). First, pairs of seasons that differ in nothing that can be seen.


def season(factor, first, **changes):
    """A quiet season, the states of one factor changed from week 6 on."""
    return lanes.quiet_tape(**{factor: {6 + i: state for i, state in enumerate(first)}}, **changes)


def ages(regime, count):
    return [f"{regime}:{age}" for age in range(count)]


ALIKE = {
    "promotion, lift, decline": ("demand", ages("promo_spike", 4), ages("seasonal_lift", 4), ["structural_decline"]),
    "tightening, spike": ("freight", ages("tightening", 5), ages("spike", 5), ["slack", "normal", "spike:3"]),
    "congestion, customs": (
        "port",
        ages("congested", 3),
        ["customs_hold:0", "customs_hold:persist", "customs_hold:persist"],
        ["congested:7", "congested:0", "congested:5"],
    ),
    "clear, building": ("port", ["clear"], ["building"]),
    "drift, failure": ("quality", ages("drifting", 9), ["out_of_control"] * 9, ["in_control"]),
    "wobbling, degraded": ("supplier", ["wobbling"], ["degraded:0"]),
    "degraded for long": ("supplier", ["degraded:1"], ["degraded:2"], ["degraded:3"]),
    "ages of recovery": ("canal", ages("recovery", 3), ["recovery:0"] * 3, ["recovery:2"] * 3),
}
READINGS = {
    "pos_units": {6: 27, 7: 24, 8: 31},
    "freight_multiplier": {6: 18_200, 7: 17_500},
    "berth_wait": {6: 13, 7: 15},
    "aql_result": {6: 2, 7: 1},
    "defect_fraction": {6: 3_000, 7: 1_000},
    "lead_slip": {6: 71},
    "fill": {6: 20},
}


def blind_actions(seed=9):
    """Random actions that buy no reveal; the first lanes order nothing in weeks 2 to 5."""
    actions = lanes.random_actions(np.random.default_rng(seed), levers=("lock_weeks", "air", "inspect"))
    actions.qty[: lanes.LANES // 2, 2:6] = 0
    return actions


def play(tape):
    return lanes.play(lanes.repeat(tape), blind_actions())


@pytest.mark.parametrize("case", ALIKE)
def test_seasons_with_equal_symptoms_cannot_be_told_apart(case):
    factor, *variants = ALIKE[case]
    runs = [play(season(factor, states, **READINGS)) for states in variants]
    for _, results, observations in runs[1:]:
        assert_same(observations, runs[0][2])
        assert_same(results, runs[0][1])
    reports = [[st.report(lanes.lane(observation, 3)) for observation in run[2]] for run in runs]
    assert all(report == reports[0] for report in reports)


CRASH = ("false_alarm", "short:0", "long:0")


@functools.cache
def crashes():
    """Observations of weeks 0 to 6, the canal crashing in week 6 for one of three reasons."""
    return {reason: play(season("canal", [reason]))[2][:7] for reason in CRASH}


@pytest.mark.parametrize("reason", CRASH[1:])
def test_crash_hides_its_reason_while_no_ship_is_at_the_chokepoint(reason):
    # A ship at the chokepoint in week 6 was ordered in week 3; half of the lanes ordered none.
    half = slice(0, lanes.LANES // 2)
    assert_same(lanes.lane(crashes()[reason], half), lanes.lane(crashes()["false_alarm"], half))
    assert_same(crashes()[reason][:6], crashes()["false_alarm"][:6])
    one, other = (st.report(lanes.lane(crashes()[name][6], 0)) for name in (reason, "false_alarm"))
    assert one == other


def test_crash_is_told_by_the_ships_at_the_chokepoint_and_by_nothing_else():
    at_sea, short, long = (crashes()[reason][6] for reason in CRASH)
    seen = (at_sea.ships.qty[:, 4] > 0).nonzero()[0]
    by_cape = at_sea.ships.route[seen, 4] == st.ROUTES.index("cape")
    assert 10 < by_cape.sum() < len(seen) - 10
    queued = short.ships.status[seen, 4] != at_sea.ships.status[seen, 4]
    np.testing.assert_array_equal(queued, ~by_cape)
    later = long.ships.eta[seen, 4] != at_sea.ships.eta[seen, 4]
    np.testing.assert_array_equal(later, by_cape)
    veil = at_sea.ships
    assert_same(short.replace(ships=veil), at_sea.replace(ships=veil))
    assert_same(long.replace(ships=veil), at_sea.replace(ships=veil))


# Then every field of the observation, under any change of hidden states that leaves what is visible as it is.

VISIBLE = {
    "canal": (
        *(("calm",), ("watch",), ("false_alarm", "short:0", "long:0"), ("short:1",), ("long:persist",)),
        ("recovery:0", "recovery:1", "recovery:2"),
    ),
    "supplier": (("reliable",), ("wobbling", "degraded:0"), ("degraded:1", "degraded:2", "degraded:3"), ("defunct",)),
    **{name: (MODULES[name].LAYOUT.labels,) for name in ("demand", "freight", "port", "quality")},
}
PORT = MODULES["port"].LAYOUT.labels
# What moves ships is told by the ships.
MOVING = VISIBLE | {
    "canal": (
        *(("calm",), ("watch",), ("false_alarm",), ("short:0",), ("long:0",), ("short:1",), ("long:persist",)),
        ("recovery:0", "recovery:1", "recovery:2"),
    ),
    "port": (("clear", "building"), tuple(label for label in PORT if label.startswith(("congested", "customs_hold")))),
}


def veiled(tapes, classes, rng):
    """The same tapes with every hidden state replaced at random by one of its class."""
    columns = {}
    for name, module in MODULES.items():
        column = getattr(tapes.rows, name)
        columns[name] = column.copy()
        for members in classes[name]:
            indices = np.array([module.LAYOUT.index(label) for label in members], np.int32)
            there = np.isin(column, indices)
            columns[name][there] = rng.choice(indices, there.sum())
    return tapes.replace(rows=tapes.rows.replace(**columns))


def leaks(observe, tapes, rng):
    """Names of the observation's fields that tell more of the present states than their visible class."""
    _, states, _, _ = lanes.random_play()
    found = set()
    for week in (0, 1, 5, 11, 18, 26):
        open_, hidden = observe(states[week], tapes), observe(states[week], veiled(tapes, VISIBLE, rng))
        for name in st.Observation.__dataclass_fields__:
            pairs = zip(jax.tree.leaves(getattr(open_, name)), jax.tree.leaves(getattr(hidden, name)), strict=True)
            if any(not np.array_equal(one, other) for one, other in pairs):
                found.add(name)
    return found


@functools.cache
def busy_tapes():
    """Tapes on which every state of every factor occurs, unlike any season's."""
    rng = np.random.default_rng(4)
    tapes = lanes.mint()
    states = {
        name: rng.integers(0, len(module.LAYOUT.labels), tapes.rows.canal.shape).astype(np.int32)
        for name, module in MODULES.items()
    }
    return tapes.replace(rows=tapes.rows.replace(**states))


def test_visible_classes_hold_every_state_once():
    for classes in (VISIBLE, MOVING):
        for name, module in MODULES.items():
            labels = [label for members in classes[name] for label in members]
            assert sorted(labels) == sorted(module.LAYOUT.labels), name


@pytest.mark.parametrize("seed", range(3))
def test_no_field_of_the_observation_tells_more_than_the_visible_class(seed):
    assert leaks(lanes.observe, busy_tapes(), np.random.default_rng(seed)) == set()


@pytest.mark.parametrize("factor", st.FACTORS)
def test_a_leak_would_be_found(factor):
    def leaky(state, tapes):
        observation, states = lanes.observe(state, tapes), getattr(tapes.rows, factor)
        now = np.take_along_axis(states, np.asarray(state.week)[:, None], axis=1)[:, 0]
        return observation.replace(berth_wait=observation.berth_wait + now)

    assert leaks(leaky, busy_tapes(), np.random.default_rng(0)) == {"berth_wait"}


def test_week_does_not_depend_on_what_neither_shows_nor_moves_a_ship():
    tapes = busy_tapes()
    actions = blind_actions(1)
    first = lanes.play(tapes, actions)
    assert_same(first, lanes.play(veiled(tapes, MOVING, np.random.default_rng(5)), actions))


def test_reveals_are_what_tells_more():
    told = {
        "briefing": {canal.BRIEFINGS[canal.BRIEFING[i]] for i in range(len(canal.LAYOUT.labels))},
        "audit": {supplier.BANDS[supplier.TRUE_BAND[i]] for i in range(len(supplier.LAYOUT.labels))},
    }
    assert told["briefing"] == {"calm", "watch", "false_alarm", "short", "long", "recovery"}
    assert told["audit"] == {"ontime", "slipping", "failing", "defunct"}
    state = st.reset(quiet())
    for reason in CRASH:
        tape = lanes.quiet_tape(canal={0: reason})
        after, _ = st.step(state, st.Action(briefing=1), tape)
        assert st.report(st.observe(after, tape))["briefing"] == reason.split(":")[0]
