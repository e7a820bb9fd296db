"""What every policy must keep, whatever it does, and what the two simple ones do."""

import copy
import dataclasses
import functools
import inspect

import jax
import numpy as np
import pytest

import stocktake_jax as st
from tests import lanes

FACTORIES = {
    name: factory
    for name in st.policies.__all__
    if inspect.isfunction(factory := getattr(st.policies, name))
    and all(p.default is not p.empty for p in inspect.signature(factory).parameters.values())
}
every_policy = pytest.mark.parametrize("name", FACTORIES)


@functools.cache
def act_on_lanes(policy):
    """The policy's ``act`` on all lanes at once, compiled."""
    return jax.jit(jax.vmap(policy.act, in_axes=(None, 0, 0, 0)))


def decisions(policy, observation, key=0):
    """Actions and memories of all lanes, from the memory that an episode starts with."""
    params = st.WorldParams()
    memory = lanes.repeat(policy.init(params))
    keys = jax.random.split(jax.random.key(key), lanes.LANES)
    return act_on_lanes(policy)(params, memory, observation, keys)


def assert_same(one, other):
    jax.tree.map(np.testing.assert_array_equal, one, other)


def test_every_policy_is_looked_at():
    assert {"floor", "random_legal"} <= set(FACTORIES)
    made = {type(factory()).__name__ for factory in FACTORIES.values()}
    classes = {name for name in st.policies.__all__ if dataclasses.is_dataclass(getattr(st.policies, name))}
    assert made == classes


@every_policy
def test_policy_is_frozen_hashable_and_equal_to_its_copy(name):
    policy = FACTORIES[name]()
    for other in (FACTORIES[name](), copy.deepcopy(policy)):
        assert policy == other
        assert hash(policy) == hash(other)
    for field in [*(field.name for field in dataclasses.fields(policy)), "anything"]:
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(policy, field, 1)


@every_policy
def test_policy_has_the_protocols_signatures(name):
    policy = FACTORIES[name]()
    assert list(inspect.signature(policy.init).parameters) == ["params"]
    assert list(inspect.signature(policy.act).parameters) == ["params", "carry", "observation", "key"]


@every_policy
def test_policy_acts_in_int32_scalars_and_keeps_the_shape_of_its_memory(name):
    policy, params = FACTORIES[name](), st.WorldParams()
    observation = jax.tree.map(lambda leaf: leaf[0], lanes.random_play()[3][5])
    memory = policy.init(params)
    action, after = jax.eval_shape(policy.act, params, memory, observation, jax.random.key(0))
    assert isinstance(action, st.Action)
    assert {(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(action)} == {((), np.dtype(np.int32))}
    before = jax.eval_shape(lambda: memory)
    assert jax.tree.structure(before) == jax.tree.structure(after)
    assert [(x.shape, x.dtype) for x in jax.tree.leaves(before)] == [(x.shape, x.dtype) for x in jax.tree.leaves(after)]


@every_policy
def test_policy_is_legal_on_books_that_others_kept(name):
    policy, (_, states, _, observations) = FACTORIES[name](), lanes.random_play()
    for week in range(lanes.WEEKS):
        action, _ = decisions(policy, observations[week], key=week)
        _, result = lanes.step(states[week], action, lanes.mint())
        np.testing.assert_array_equal(result.refusal, st.Refusal.ACCEPTED)


@every_policy
def test_policy_decides_by_what_it_is_given_and_by_nothing_else(name):
    policy, observations = FACTORIES[name](), lanes.random_play()[3]
    first = decisions(policy, observations[9])
    for week in (0, 20):
        decisions(policy, observations[week])
    assert_same(decisions(FACTORIES[name](), copy.deepcopy(observations[9])), first)
    one = jax.tree.map(lambda leaf: leaf[4], observations[9])
    params, key = st.WorldParams(), jax.random.split(jax.random.key(0), lanes.LANES)[4]
    alone, _ = jax.jit(policy.act)(params, policy.init(params), one, key)
    assert_same(jax.tree.map(lambda leaf: leaf[4], first[0]), alone)


# The floor's kind.


@pytest.mark.parametrize(
    ("level", "stock", "on_order", "qty"), [(93, 80, 0, 13), (93, 60, 33, 0), (93, 200, 5, 0), (300, 10, 20, 100)]
)
def test_base_stock_orders_up_to_its_level_within_bounds(level, stock, on_order, qty):
    observation = jax.tree.map(lambda leaf: leaf[0], lanes.random_play()[3][5])
    observation = observation.replace(stock=np.int32(stock), on_order=np.int32(on_order))
    action, _ = st.policies.BaseStock(level).act(st.WorldParams(), (), observation, jax.random.key(0))
    assert action.qty == qty


def test_base_stock_policies_of_other_levels_differ():
    assert st.policies.BaseStock(93) == st.policies.floor()
    assert st.policies.BaseStock(94) != st.policies.floor()


@pytest.mark.parametrize(
    ("demand", "level"),
    [({}, 93), ({"mean": 26.0}, 117), ({"sd": 0.0}, 80), ({"weeks": 9.0}, 200), ({"critical_ratio": 0.5}, 80)],
)
def test_order_up_to_level_is_mean_plus_safety_stock(demand, level):
    assert st.policies.base_stock.order_up_to(**demand) == level


# Random play.


@functools.cache
def random_play():
    result = st.evaluate(st.policies.random_legal(), lanes.pool(), jax.random.key(7))
    return jax.device_get(result)


def test_random_play_is_never_refused():
    assert random_play().refusals.size == lanes.MANY * lanes.WEEKS
    assert not random_play().refusals.any()


def test_random_play_pulls_every_lever_with_every_argument():
    actions = random_play().actions
    drawn = {name: set(np.unique(getattr(actions, name)).tolist()) for name in st.Action.__dataclass_fields__}
    assert drawn == {
        "qty": set(range(101)),
        "route": {0, 1},
        "supplier": {0, 1, 2},
        "contract_action": set(range(5)),
        "contract_supplier": {0, 1, 2},
        "contract_terms": set(range(5)),
        "lock_weeks": set(range(9)),
        "air": set(range(21)),
        "inspect": {0, 1},
        "briefing": {0, 1},
        "audit": {0, 1},
    }


def test_random_play_orders_from_everyone_by_both_routes_and_signs_everything():
    actions = random_play().actions
    ordering = actions.qty > 0
    assert set(zip(actions.supplier[ordering].tolist(), actions.route[ordering].tolist(), strict=True)) == {
        (supplier, route) for supplier in range(3) for route in range(2)
    }
    parts = (actions.contract_action, actions.contract_supplier, actions.contract_terms)
    assert len(set(zip(*(part.ravel().tolist() for part in parts), strict=True))) == 5 * 3 * 5


def test_random_play_orders_nothing_when_nobody_can_be_ordered_from():
    tape = lanes.quiet_tape(supplier={0: "defunct", 1: "defunct"})
    observation = lanes.repeat(st.observe(st.reset(tape), tape))
    action, _ = decisions(st.policies.random_legal(), observation)
    contracting = (action.contract_action > 0) & (action.contract_action < 4) & (action.contract_supplier != 1)
    np.testing.assert_array_equal(np.asarray(action.qty)[~np.asarray(contracting)], 0)
    assert np.asarray(action.qty)[np.asarray(contracting)].any()
