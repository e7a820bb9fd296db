"""What no report shows never moves a decision of the oracle: neither the hidden present nor the future.

The oracle plays a tape. Then every hidden number of every week is changed that can be changed without changing a
report under the very same actions, found by trying each on its own. On the changed tape the oracle sees the same and
must do the same, to the last bit of every belief and of every candidate's mean cost.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stocktake_jax as st
from stocktake_jax.env import observe_row
from stocktake_jax.factors import MODULES
from stocktake_jax.logistics import initial_state, transition
from stocktake_jax.oracle import references
from stocktake_jax.oracle.menu import to_action
from stocktake_jax.tape import COLUMNS

HORIZON = 26
ORACLE = st.oracle.policy(futures=16)
SEEDS = range(8)
STATES = {name: len(module.LAYOUT.labels) for name, module in MODULES.items()}
# What a report shows rounded, late, or only after certain decisions, and the least and greatest that it may become.
READINGS = {
    "freight_multiplier": (1_000, 90_000),
    "freight_outlook": (1_000, 90_000),
    "defect_fraction": (0, 20_000),
    "fill": (0, 100),
}
TRIES = 3
LATER = (0, 3, 11, 24)
CRASH = [MODULES["canal"].LAYOUT.index(label) for label in ("false_alarm", "short:0", "long:0")]
SLIPPING = [MODULES["supplier"].LAYOUT.index(label) for label in ("wobbling", "degraded:0")]


HONEST = np.zeros(len(STATES) + 1, np.int32)


def peeking(observation, now, later, peek):
    """What a cheating policy reads: now's hidden states and the next week's readings, each ``peek [7]`` times."""
    return observation.replace(
        berth_wait=observation.berth_wait + (peek[:-1] * now.states).sum(),
        demand_forecast=observation.demand_forecast + peek[-1] * later.demand_forecast,
    )


def over_weeks(week, loop, rows, *others):
    """Scans the weeks, each given its own row, the next one's, and its share of ``others``."""
    now, later = jax.tree.map(lambda column: column[:-1], rows), jax.tree.map(lambda column: column[1:], rows)
    return jax.lax.scan(week, loop, (now, later, *others))


@jax.jit
def play(tapes, peek=HONEST):
    """The oracle on every tape: observations and decisions ``[tapes, 26, ...]``."""
    params = st.WorldParams().arrays()

    def one(tape):
        def week(loop, at):
            state, beliefs = loop
            now, later = at
            observation = observe_row(params, state, now)
            key = jax.random.fold_in(jax.random.key(7), state.week)
            decision = ORACLE.explain(params, beliefs, peeking(observation, now, later, peek), key)
            state, _ = transition(params, state, decision.action, now, later)
            return (state, decision.beliefs), (observation, decision)

        return over_weeks(week, (initial_state(params), ORACLE.init(params)), tape.rows)[1]

    return jax.vmap(one)(tapes)


@jax.jit
def reports(tapes, actions):
    """Observations ``[tapes, 27, ...]`` of weeks 0..26 on every tape under given actions ``[26]``."""
    params = st.WorldParams().arrays()

    def one(tape):
        def week(state, at):
            now, later, action = at
            state, _ = transition(params, state, action, now, later)
            return state, observe_row(params, state, later)

        first = observe_row(params, initial_state(params), tape.week(0))
        _, rest = over_weeks(week, initial_state(params), tape.rows, actions)
        return jax.tree.map(lambda one, others: jnp.concatenate([one[None], others]), first, rest)

    return jax.vmap(one)(tapes)


def differing(one, other):
    """bool ``[n]``: where along the first axis two pytrees differ in any bit."""
    pairs = list(zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))
    flat = [(np.asarray(a).reshape(len(a), -1), np.asarray(b).reshape(len(b), -1)) for a, b in pairs]
    return np.any([((a != b) & ~((a != a) & (b != b))).any(axis=1) for a, b in flat], axis=0)


def assert_same(one, other):
    jax.tree.map(np.testing.assert_array_equal, one, other)


def disguised(tape, actions, rng):
    """The tape with every hidden number changed that shows in no report under these actions."""
    tried = []
    for name in (*STATES, *READINGS):
        column = np.asarray(getattr(tape.rows, name))
        for week in range(HORIZON + 1):
            for _ in range(TRIES):
                if name in STATES:
                    value = (column[week] + rng.integers(1, STATES[name])) % STATES[name]
                else:
                    value = np.clip(column[week] + rng.choice([-1, 1]) * rng.integers(1, 40), *READINGS[name])
                tried.append((name, week, value))
    columns = {name: np.repeat(np.asarray(getattr(tape.rows, name))[None], len(tried), 0) for name in COLUMNS}
    for i, (name, week, value) in enumerate(tried):
        columns[name][i, week] = value
    each = st.Tape(rows=st.Row(**columns), id=np.repeat(tape.id, len(tried)), minted=np.repeat(tape.minted, len(tried)))
    shown = reports(jax.tree.map(lambda leaf: leaf[None], tape), actions)
    seen = differing(reports(each, actions), jax.tree.map(lambda leaf: np.repeat(leaf, len(tried), 0), shown))
    columns = {name: np.array(getattr(tape.rows, name)) for name in COLUMNS}
    for (name, week, value), visible in zip(tried, seen, strict=True):
        if not visible:
            columns[name][week] = value
    other = tape.replace(rows=tape.rows.replace(**columns))
    assert_same(reports(jax.tree.map(lambda leaf: leaf[None], other), actions), shown)
    return other


def take(tree, i):
    return jax.tree.map(lambda leaf: np.asarray(leaf)[i], tree)


def disguise(tapes, actions):
    rng = np.random.default_rng(0)
    return st.stack([disguised(take(tapes, i), take(actions, i), rng) for i in range(len(tapes.id))])


def with_another_future(tapes, week):
    """The tapes up to a week, and from the next week on the rows of other tapes."""
    rows = jax.tree.map(
        lambda column: np.concatenate([column[:, : week + 1], np.roll(column, 1, axis=0)[:, week + 1 :]], axis=1),
        tapes.rows,
    )
    return tapes.replace(rows=rows)


@functools.cache
def minted():
    return jax.device_get(jax.vmap(st.mint)(jnp.asarray(SEEDS, jnp.uint32)))


@functools.cache
def played():
    return jax.device_get(play(minted()))


@functools.cache
def disguised_tapes():
    return disguise(minted(), played()[1].action)


def test_disguises_change_whatever_is_hidden():
    before, after = minted().rows, disguised_tapes().rows
    for name in (*STATES, *READINGS):
        assert (getattr(before, name) != getattr(after, name)).sum() >= 5, name
    for name, alike in (("canal", CRASH), ("supplier", SLIPPING)):
        one, other = getattr(before, name), getattr(after, name)
        assert ((one != other) & np.isin(one, alike) & np.isin(other, alike)).any(), name
    for name in set(COLUMNS) - set(STATES) - set(READINGS):
        np.testing.assert_array_equal(getattr(before, name), getattr(after, name))


def test_the_hidden_present_never_moves_a_decision():
    observations, decisions = jax.device_get(play(disguised_tapes()))
    assert_same(observations, played()[0])
    assert_same(decisions, played()[1])


@pytest.mark.parametrize("week", LATER)
def test_the_future_never_moves_a_decision(week):
    until = functools.partial(jax.tree.map, lambda leaf: leaf[:, : week + 1])
    other = jax.device_get(play(with_another_future(minted(), week)))
    assert_same(until(other), until(played()))
    later = functools.partial(jax.tree.map, lambda leaf: leaf[:, week + 1 :])
    assert differing(later(other[0]), later(played()[0])).all()


# The same with a policy that cheats: it would be caught.


@pytest.mark.parametrize(
    "factor",
    [pytest.param(i, id=name, marks=() if name == "canal" else pytest.mark.slow) for i, name in enumerate(STATES)],
)
def test_a_policy_that_peeks_at_a_hidden_state_is_caught(factor):
    peek = np.eye(len(HONEST), dtype=np.int32)[factor]
    cheated = jax.device_get(play(minted(), peek))
    other = jax.device_get(play(disguise(minted(), cheated[1].action), peek))
    assert differing(other[1], cheated[1]).any()


def test_a_policy_that_peeks_at_next_week_is_caught():
    peek = np.eye(len(HONEST), dtype=np.int32)[-1]
    cheated, other = (jax.device_get(play(tapes, peek)) for tapes in (minted(), with_another_future(minted(), 3)))
    assert not differing(take(other[1], np.s_[:, :3]), take(cheated[1], np.s_[:, :3])).any()
    assert differing(take(other[1], np.s_[:, 3]), take(cheated[1], np.s_[:, 3])).any()


# And through the references, where many runs go in lockstep.


def measured(tapes, monkeypatch, peek=None):
    """A reference of one run for each tape: its costs, what lockstep records of every week, and the actions."""
    records, actions = [], []
    play_all, commit, read = references.lockstep, references._commit, references._read

    def recording(*args):
        totals, record = play_all(*args)
        records.extend(record)
        return totals, record

    def committing(params, state, candidates, choices, now, row):
        actions.append(jax.vmap(lambda candidate, i: to_action(take_one(candidate, i)))(candidates, choices))
        return commit(params, state, candidates, choices, now, row)

    def take_one(candidates, i):
        return jax.tree.map(lambda leaf: leaf[i], candidates)

    def cheating(params, state, beliefs, row):
        return read(params, state, beliefs, row.replace(berth_wait=row.berth_wait + getattr(row, peek)))

    with monkeypatch.context() as patch:
        patch.setattr(references, "lockstep", recording)
        patch.setattr(references, "_commit", committing)
        if peek:
            patch.setattr(references, "_read", cheating)
        mean, _ = references.reference(tapes, jax.random.key(1), 1, futures=16, chunk=len(tapes.id))
    return mean, records, jax.tree.map(lambda *weeks: np.stack(weeks, axis=1), *jax.device_get(actions))


def test_references_depend_on_reports_alone(monkeypatch):
    costs, weeks, actions = measured(minted(), monkeypatch)
    again, same_weeks, same_actions = measured(disguise(minted(), actions), monkeypatch)
    np.testing.assert_array_equal(again, costs)
    assert_same(same_weeks, weeks)
    assert_same(same_actions, actions)
    for week in LATER:
        other, other_weeks, _ = measured(with_another_future(minted(), week), monkeypatch)
        assert_same(other_weeks[: week + 1], weeks[: week + 1])
        assert (other != costs).all()


def test_a_reference_that_peeks_is_caught(monkeypatch):
    _, weeks, actions = measured(minted(), monkeypatch, peek="demand")
    _, other_weeks, _ = measured(disguise(minted(), actions), monkeypatch, peek="demand")
    assert differing(weeks, other_weeks).any()
