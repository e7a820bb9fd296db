"""Parameters: the types of their leaves, what ``validate`` refuses, and the hash that names a world."""

import dataclasses
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stocktake_jax as st
from stocktake_jax.chain import Chain
from stocktake_jax.factors import FACTORS
from stocktake_jax.fields import Params
from stocktake_jax.params import default_params, whole

DEFAULT_HASH = "4692f051101f"
"""Changes only with a number of the world, a chain's layout or the version of the rules."""


def numbers(params=None, path=()):
    """``(path, field, value)`` of every number in a world, chains left out."""
    params = default_params() if params is None else params
    for field in dataclasses.fields(params):
        value = getattr(params, field.name)
        if isinstance(value, Params):
            yield from numbers(value, (*path, field.name))
        elif "kind" in field.metadata:
            yield (*path, field.name), field, value


def on_host(value):
    """Whether a leaf is held in NumPy, as an array or as one number."""
    return isinstance(value, np.ndarray | np.generic)


NUMBERS = {".".join(path): (field, value) for path, field, value in numbers()}
LEAVES = [*NUMBERS, *(f"{factor}.chain" for factor in FACTORS)]


def changed(name, value, params=None):
    """A world in which one number is another; ``name`` is its path with dots."""
    params = default_params() if params is None else params
    first, _, rest = name.partition(".")
    return params.replace(**{first: changed(rest, value, getattr(params, first)) if rest else value})


def found(name, params):
    for part in name.split("."):
        params = getattr(params, part)
    return params


def refusal(params):
    with pytest.raises(ValueError, match=r"\.$") as caught:
        params.validate()
    return str(caught.value)


# Leaves


def test_all_leaves_of_a_world_are_numbers_with_metadata_or_chains():
    assert len(jax.tree.leaves(default_params())) == len(LEAVES)
    assert [field.name for field in dataclasses.fields(st.WorldParams)][-1] == "horizon"
    for factor in FACTORS:
        assert isinstance(getattr(default_params(), factor).chain, Chain)


@pytest.mark.parametrize("name", NUMBERS)
def test_every_number_says_what_it_means(name):
    field, value = NUMBERS[name]
    assert field.metadata["doc"].strip()
    assert isinstance(field.metadata["unit"], str)
    assert field.metadata["shape"] == value.shape
    assert np.all(field.metadata["least"] <= value)
    assert np.all(value <= field.metadata["most"])


@pytest.mark.parametrize("name", NUMBERS)
def test_leaves_are_numpy_float64_or_int32(name):
    field, value = NUMBERS[name]
    assert on_host(value)
    assert value.dtype == field.metadata["kind"]
    assert field.metadata["kind"] in (np.float64, np.int32)


def test_chains_are_float64_in_numpy():
    for factor in FACTORS:
        probabilities = getattr(default_params(), factor).chain.probabilities
        assert type(probabilities) is np.ndarray
        assert probabilities.dtype == np.float64


def test_defaults_are_not_shared_between_worlds():
    first, second = st.WorldParams(), st.WorldParams()
    first.costs.supplier_delta[0] = 7
    assert second.costs.supplier_delta[0] == default_params().costs.supplier_delta[0] == 1


@pytest.mark.parametrize("given", [2, 2.0, np.float32(2), np.int64(2), np.array(2)])
def test_replace_makes_a_float_a_numpy_float64(given):
    value = changed("costs.holding", given).costs.holding
    assert on_host(value)
    assert value.dtype == np.float64
    assert value == 2


@pytest.mark.parametrize("given", [[1, 2, 3], (1.0, 2.0, 3.0), np.float32([1, 2, 3]), np.int64([1, 2, 3])])
def test_replace_makes_a_list_an_array(given):
    value = changed("costs.supplier_delta", given).costs.supplier_delta
    assert value.dtype == np.float64
    assert value.tolist() == [1, 2, 3]


@pytest.mark.parametrize("given", [50, 50.0, np.float32(50), np.int64(50), np.uint8(50)])
def test_replace_makes_a_whole_number_an_int32(given):
    value = changed("desk.most_order", given).desk.most_order
    assert on_host(value)
    assert value.dtype == np.int32
    assert value == 50


def test_replace_keeps_jax_arrays_on_their_device():
    params = changed("costs.holding", jnp.float32(2))
    assert isinstance(params.costs.holding, jax.Array)
    assert params.costs.holding.dtype == jnp.float32
    params = changed("costs.holding", jnp.int32(2))
    assert isinstance(params.costs.holding, jax.Array)
    assert params.costs.holding.dtype == jnp.float32
    with jax.enable_x64(True):
        assert changed("costs.holding", jnp.int32(2)).costs.holding.dtype == jnp.float64


def test_arrays_are_in_the_precision_in_force():
    def kinds(params):
        return {leaf.dtype.name for leaf in jax.tree.leaves(params)}

    assert kinds(default_params().arrays()) == {"float32", "int32"}
    with jax.enable_x64(True):
        assert kinds(default_params().arrays()) == {"float64", "int32"}
    assert kinds(default_params()) == {"float64", "int32"}


def test_numbers_never_recompile():
    traces = []

    @jax.jit
    def total(params):
        traces.append(1)
        return params.costs.holding + params.desk.most_order.astype(params.costs.holding.dtype)

    worlds = [
        default_params(),
        st.WorldParams(),
        changed("costs.holding", 3),
        changed("desk.most_order", 40.0),
        changed("costs.supplier_delta", [1, 2, 3]),
        changed("demand.chain", default_params().demand.chain.with_row("promo_spike:3", {"normal": 1.0})),
    ]
    assert [float(total(world)) for world in worlds] == [101, 101, 103, 41, 101, 101]
    assert len(traces) == 1


def test_another_horizon_is_another_structure():
    assert jax.tree.structure(st.WorldParams(horizon=27)) != jax.tree.structure(default_params())
    assert jax.tree.structure(st.WorldParams()) == jax.tree.structure(default_params())


@pytest.mark.parametrize(("horizon", "slots"), [(1, 8), (7, 8), (8, 16), (26, 32), (31, 32), (32, 40)])
def test_slots_hold_all_weeks_in_whole_eights(horizon, slots):
    assert st.WorldParams(horizon=horizon).slots == slots


# Whatever JAX puts into the leaves of a pytree must go through.


@pytest.mark.parametrize(
    "use",
    [
        lambda params: jax.jit(lambda params: params.costs.holding).lower(params),
        lambda params: jax.eval_shape(lambda params: params, params),
        lambda params: jax.grad(lambda params: params.costs.holding, allow_int=True)(params.arrays()),
        lambda params: jax.tree.map(lambda leaf: None, params),
        lambda params: jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), params),
        lambda params: jax.device_put(
            params, jax.tree.map(lambda _: jax.sharding.SingleDeviceSharding(jax.devices()[0]), params)
        ),
    ],
    ids=["lower", "eval_shape", "grad", "none", "shapes", "shardings"],
)
def test_worlds_are_ordinary_pytrees(use):
    use(default_params())


def test_a_world_goes_through_flattening_and_back():
    leaves, structure = jax.tree.flatten(default_params())
    back = jax.tree.unflatten(structure, leaves)
    assert st.world_hash(back) == st.world_hash()
    assert all(map(on_host, jax.tree.leaves(back)))


# What is refused


def test_the_papers_world_is_valid():
    params = st.WorldParams()
    assert params.validate() is params


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_below_its_bound_is_refused_by_name(name):
    field, value = NUMBERS[name]
    least = field.metadata["least"]
    if least == -math.inf:
        changed(name, value - 1e6).validate()
        return
    bad = np.array(value)
    bad.flat[-1] = least - 1
    sentence = refusal(changed(name, bad))
    assert f"WorldParams.{name} is {bad.tolist()}; it must be " in sentence
    assert "at least" in sentence or "between" in sentence


@pytest.mark.parametrize("name", [name for name, (field, _) in NUMBERS.items() if field.metadata["most"] < math.inf])
def test_a_number_above_its_bound_is_refused_by_name(name):
    field, value = NUMBERS[name]
    bad = np.array(value)
    bad.flat[0] = field.metadata["most"] + 1
    least, most = field.metadata["least"], field.metadata["most"]
    assert f"WorldParams.{name} is {bad.tolist()}; it must be between {least:g} and {most:g}." in refusal(
        changed(name, bad)
    )


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("kind", [np.float64, np.int32])
def test_a_number_that_is_not_finite_is_refused_by_name(kind, bad):
    for name, (field, value) in NUMBERS.items():
        if field.metadata["kind"] is kind:
            values = np.full(value.shape, bad)
            assert f"WorldParams.{name} is {values.tolist()}; it must be finite." in refusal(changed(name, values))


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_of_another_shape_is_refused_by_name(name):
    value = np.stack([NUMBERS[name][1]] * 2)
    expected = f"WorldParams.{name} has shape {list(value.shape)}; it must have shape {list(value.shape[1:])}."
    assert refusal(changed(name, value)) == expected


@pytest.mark.parametrize("name", [name for name, (field, _) in NUMBERS.items() if field.metadata["kind"] is np.int32])
def test_a_fraction_for_a_whole_number_is_refused_by_name(name):
    value = NUMBERS[name][1] + 0.5
    assert refusal(changed(name, value)) == f"WorldParams.{name} is {value.tolist()}; it must be a whole number."


@pytest.mark.parametrize("given", [2**32 + 5, 2**31, np.int64(2**40), 2.0**32 + 5])
def test_a_whole_number_beyond_32_bits_is_refused_and_never_wrapped(given):
    assert "WorldParams.desk.most_order" in refusal(changed("desk.most_order", given))


def test_what_costs_may_be():
    assert refusal(changed("costs.holding", -0.01)) == "WorldParams.costs.holding is -0.01; it must be at least 0."
    changed("costs.supplier_delta", (-9.0, -9.0, -9.0)).validate()
    changed("costs.holding", 0).validate()


@pytest.mark.parametrize("horizon", [0, -1, True, 2.5, 26.0, "26", None])
def test_a_horizon_that_is_no_number_of_weeks_is_refused(horizon):
    expected = f"WorldParams.horizon is {horizon!r}; it must be a whole number of weeks, at least 1."
    assert refusal(default_params().replace(horizon=horizon)) == expected


def test_all_that_is_wrong_is_said_at_once():
    params = changed("demand.sd", -1, changed("costs.air", math.nan, st.WorldParams(horizon=0)))
    sentences = refusal(params)
    assert all(name in sentences for name in ("WorldParams.horizon", "WorldParams.costs.air", "WorldParams.demand.sd"))


@pytest.mark.parametrize("factor", FACTORS)
def test_a_row_that_does_not_sum_to_one_is_refused_by_name(factor):
    chain = getattr(default_params(), factor).chain
    probabilities = chain.probabilities.copy()
    probabilities[1, 0] -= 1e-3
    params = changed(f"{factor}.chain", chain.replace(probabilities=probabilities))
    label = chain.layout.labels[1]
    expected = f"WorldParams.{factor}.chain: the row of {label} sums to 0.999; it must sum to 1"
    assert refusal(params).startswith(expected)


@pytest.mark.parametrize("bad", [-0.1, 1.1, math.nan])
def test_a_probability_outside_0_and_1_is_refused_by_name(bad):
    chain = default_params().freight.chain.with_row("slack", {"slack": bad, "normal": 1 - bad})
    sentence = refusal(changed("freight.chain", chain))
    assert sentence.startswith("WorldParams.freight.chain: the row of slack is ")
    assert sentence.endswith("; a probability lies between 0 and 1.")


def test_a_probability_in_the_padding_is_refused():
    chain = default_params().freight.chain
    probabilities = chain.probabilities.copy()
    probabilities[0] = [0.93, 0.05, 0.02]
    sentence = refusal(changed("freight.chain", chain.replace(probabilities=probabilities)))
    assert "the row of slack sums to 1; it must sum to 1 over its own successors" in sentence


def test_a_table_of_another_shape_is_refused():
    chain = default_params().freight.chain
    sentence = refusal(changed("freight.chain", chain.replace(probabilities=chain.probabilities[:-1])))
    assert sentence == "WorldParams.freight.chain has shape [13, 3]; it must have shape [14, 3]."


def test_an_inspection_table_that_does_not_sum_to_one_is_refused():
    aql = default_params().quality.aql.copy()
    aql[1] = [0.3, 0.5, 0.3]
    sentence = refusal(changed("quality.aql", aql))
    assert sentence.startswith("WorldParams.quality.aql has rows that sum to [")
    assert sentence.endswith("]; each must sum to 1.")


def test_worlds_in_single_precision_are_valid():
    assert st.world_hash(default_params().arrays().validate()) != st.world_hash()
    with jax.enable_x64(True):
        assert st.world_hash(default_params().arrays().validate()) == st.world_hash()


# Names of worlds


def test_the_papers_world_keeps_its_name():
    assert st.world_hash() == DEFAULT_HASH
    assert st.world_hash(st.WorldParams()) == DEFAULT_HASH


def test_a_name_is_twelve_hexadecimal_digits():
    assert re.fullmatch("[0-9a-f]{12}", st.world_hash())


def perturbed(name):
    value = np.asarray(found(name, default_params()).probabilities if name.endswith(".chain") else NUMBERS[name][1])
    other = value.copy()
    other.flat[-1] = other.flat[-1] + 1 if value.dtype == np.int32 else np.nextafter(other.flat[-1], np.inf)
    if name.endswith(".chain"):
        other = found(name, default_params()).replace(probabilities=other)
    return changed(name, other)


def test_a_world_is_renamed_by_any_number_and_by_the_horizon():
    names = {name: st.world_hash(perturbed(name)) for name in LEAVES}
    names |= {"horizon": st.world_hash(st.WorldParams(horizon=27)), "default": st.world_hash()}
    assert len(set(names.values())) == len(LEAVES) + 2


def test_a_world_is_renamed_by_the_order_of_its_states():
    chain = default_params().port.chain
    layout = type(chain.layout)(chain.layout.labels, ((0, 1, 10), *chain.layout.successors[1:]))
    assert st.world_hash(changed("port.chain", chain.replace(layout=layout))) != st.world_hash()


def test_a_name_depends_on_values_and_not_on_their_types():
    params = changed("costs.holding", jnp.float32(1), changed("desk.most_order", 100.0))
    assert params.costs.holding.dtype == jnp.float32
    assert st.world_hash(params) == st.world_hash()
    assert st.world_hash(changed("desk.most_order", jnp.int32(100))) == st.world_hash()


# Whole numbers


@pytest.mark.parametrize("given", [5, np.int32(5), np.uint32(5), np.array(5), jnp.int32(5)])
def test_whole_takes_whole_numbers_of_any_type(given):
    checked = whole(given, "The count", 0, 9)
    assert checked == 5
    assert type(checked) is int


@pytest.mark.parametrize("given", [-1, 10, True, np.True_, 5.0, np.float32(5), "5", None, [5]])
def test_whole_refuses_the_rest_in_a_sentence(given):
    with pytest.raises(ValueError, match=r"^The count is ") as caught:
        whole(given, "The count", 0, 9)
    assert str(caught.value) == f"The count is {given!r}; it must be a whole number from 0 to 9."
