"""Random words, the deviates drawn from them, and rounding: known answers, error bounds, and sameness everywhere.

Statistical tests run on fixed words and reject at a level of 1e-6 each.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats
from jax.extend.random import threefry_2x32

from stocktake_jax import randomness, rounding
from stocktake_jax.factors import freight, quality, supplier

ONE = 2**randomness.FIXED_POINT_BITS
TABLE_ERROR = 1e-5
"""What the docstrings of the quantile functions promise."""
LEVEL = 1e-6

EDGES = [0, 1, 2, 3, 2**24 - 1, 2**24, 2**24 + 1, 2**31 - 1, 2**31, 2**31 + 1, 2**32 - 2, 2**32 - 1]
MILLIONS = 1 << 22
"""The size of every large array of words, so that each function is compiled once."""

standard_normal = jax.jit(randomness.standard_normal)
standard_exponential = jax.jit(randomness.standard_exponential)
rounded_normal = jax.jit(randomness.rounded_normal, static_argnums=3)


def random_words(count, seed=0):
    return np.random.default_rng(seed).integers(0, 2**32, count, dtype=np.uint32)


@functools.cache
def sweep():
    """4 Mi words: the edges, many at both ends and around the sign bit, all cells at 16 places, and random ones."""
    near = np.arange(1 << 17, dtype=np.int64)
    float32_words = (np.float32(2.0) ** np.arange(32)[:, None] * (1 + np.arange(2048) / 2048)).astype(np.uint64)
    fixed = np.concatenate(
        [EDGES, near, 2**31 + near - (1 << 16), 2**32 - 1 - near, (float32_words >> 1).ravel(), float32_words.ravel()]
    ).astype(np.uint32)
    return np.concatenate([fixed, random_words(MILLIONS - fixed.size)])


def stratified():
    """4 Mi words, one in the middle of every stratum of 1024."""
    return (np.arange(MILLIONS, dtype=np.uint64) * 1024 + 512).astype(np.uint32)


def upper_tail_of(word):
    """The upper tail probability of the magnitude of the normal deviate of a word."""
    return ((word.astype(np.uint64) << 1 & 0xFFFF_FFFF) | 1) / 2.0**33


# The cipher


@pytest.mark.parametrize(
    ("key", "counter", "block"),
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((2**32 - 1, 2**32 - 1), (2**32 - 1, 2**32 - 1), (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_threefry_gives_the_known_answers_of_random123(key, counter, block):
    drawn = randomness.threefry(*map(jnp.uint32, (*key, *counter)))
    assert tuple(map(int, drawn)) == block
    assert all(word.dtype == jnp.uint32 for word in drawn)


def test_threefry_is_jax_own_cipher():
    key = random_words(2, seed=1)
    counters = random_words(20_000, seed=2)
    ours = randomness.threefry(*map(jnp.uint32, key), jnp.asarray(counters[:10_000]), jnp.asarray(counters[10_000:]))
    np.testing.assert_array_equal(np.concatenate(ours), threefry_2x32(key, counters))


def test_bits_are_the_cipher_of_the_key_and_the_block():
    key = jax.random.key(2**40 + 7)
    expected = [
        word
        for block in range(4)
        for word in randomness.threefry(*jax.random.key_data(key), *map(jnp.uint32, (0, block)))
    ]
    drawn = randomness.bits(key, 7)
    assert list(map(int, drawn)) == list(map(int, expected[:7]))
    assert all(word.shape == () and word.dtype == jnp.uint32 for word in drawn)


def test_fold_in_is_jax_fold_in():
    keys = jax.random.split(jax.random.key(3), 100)
    data = jnp.asarray(random_words(100, seed=4))
    ours, theirs = jax.vmap(randomness.fold_in)(keys, data), jax.vmap(jax.random.fold_in)(keys, data)
    np.testing.assert_array_equal(jax.random.key_data(ours), jax.random.key_data(theirs))
    assert ours.dtype == theirs.dtype


@pytest.mark.parametrize("data", [0, 1, 2**31 - 1])
def test_fold_in_takes_python_ints_as_jax_does(data):
    key = jax.random.key(5)
    ours, theirs = randomness.fold_in(key, data), jax.random.fold_in(key, data)
    np.testing.assert_array_equal(jax.random.key_data(ours), jax.random.key_data(theirs))


def test_words_of_a_channel_do_not_depend_on_how_many_are_drawn():
    of = functools.partial(randomness.words, jnp.uint32(9), 77, jnp.uint32(3))
    longest = list(map(int, of(6)))
    for count in range(6):
        assert list(map(int, of(count))) == longest[:count]
    assert len(set(longest)) == 6


def test_words_change_with_seed_channel_and_week():
    def of(seed, channel, week):
        return tuple(map(int, randomness.words(jnp.uint32(seed), channel, jnp.uint32(week), 2)))

    named = [(seed, channel, week) for seed in (0, 1, 2**32 - 1) for channel in (0, 1, 2**31) for week in (0, 1, 26)]
    assert len({of(*name) for name in named}) == len(named)


def test_uniform_is_the_upper_24_bits_exactly():
    word = sweep()
    u = np.asarray(jax.jit(randomness.uniform)(word))
    assert u.dtype == np.float32
    assert u.min() == 0
    assert u.max() == 1 - 2.0**-24
    np.testing.assert_array_equal(u.astype(np.float64), (word >> 8) / 2.0**24)


# Deviates


def test_standard_normal_is_the_exact_quantile_within_its_promise():
    word = sweep()
    magnitude = -scipy.special.ndtri(upper_tail_of(word))
    exact = np.where(word >= 2**31, -magnitude, magnitude)
    error = np.abs(np.asarray(standard_normal(word)) / ONE - exact)
    assert error.max() <= TABLE_ERROR, f"{error.max():.3g} at word {word[error.argmax()]}"
    tail = np.abs(exact) > 5
    assert tail.sum() > 1000
    assert error[tail].max() <= TABLE_ERROR


def test_standard_exponential_is_the_exact_quantile_within_its_promise():
    word = sweep()
    exact = scipy.stats.expon.isf((word | np.uint32(1)) / 2.0**32)
    error = np.abs(np.asarray(standard_exponential(word)) / ONE - exact)
    assert error.max() <= TABLE_ERROR, f"{error.max():.3g} at word {word[error.argmax()]}"
    tail = exact > 15
    assert tail.sum() > 1000
    assert error[tail].max() <= TABLE_ERROR


def test_standard_normal_is_odd_in_its_sign_bit():
    word = sweep()
    np.testing.assert_array_equal(standard_normal(word ^ np.uint32(2**31)), -np.asarray(standard_normal(word)))


def test_standard_normal_falls_from_its_largest_to_zero_in_each_half():
    word = np.sort(sweep())
    z = np.asarray(standard_normal(word))
    half = word < 2**31
    assert np.all(np.diff(z[half]) <= 0)
    assert np.all(np.diff(z[~half]) >= 0)
    assert z[half].min() == z[~half].max() == 0
    assert z[0] == -z[~half][0] == round(6.337957754 * ONE)


def test_standard_exponential_falls_from_its_largest_to_zero():
    x = np.asarray(standard_exponential(np.sort(sweep())))
    assert np.all(np.diff(x) <= 0)
    assert x[0] == round(32 * np.log(2) * ONE)
    assert x[-1] == 0


def test_deviates_have_the_moments_of_their_laws():
    z, x = (np.asarray(draw(stratified())) / ONE for draw in (standard_normal, standard_exponential))
    assert z.mean() == pytest.approx(0, abs=1e-5)
    assert [np.mean(z**k) for k in (2, 4)] == pytest.approx([1, 3], rel=1e-4)
    assert [np.mean(x**k) for k in (1, 2, 3)] == pytest.approx([1, 2, 6], rel=1e-4)


def test_scaled_is_the_product_rounded_once():
    deviate = np.asarray(standard_normal(random_words(1000)))
    factor = np.float32(2.5)
    product = np.round(deviate.astype(np.float32) * factor)
    np.testing.assert_array_equal(randomness.scaled(deviate, factor), product.astype(np.int32))


# Rounded readings

READINGS = [
    (20.0, 4.0, 1),
    (14.0, 6.0, 1),
    (1.0, 2.0, 1),
    (0.5, 0.3, 1),
    (7.0, 2.5, 10),
    (0.0, 2.5, 10),
    (0.95, 0.12, 100),
    (0.7, 0.25, 10_000),
    (4.0, 0.15, 10_000),
    (999.0, 100.0, 1),
]


def masses(mean, sd, resolution):
    """Whole steps within 5.5 sd, and the exact mass of each; the first and the last take all beyond."""
    reach = 5.5 * sd
    steps = np.arange(np.floor((mean - reach) * resolution), np.ceil((mean + reach) * resolution) + 1).astype(int)
    below = scipy.stats.norm.cdf((steps[1:] - 0.5) / resolution, mean, sd)
    return steps, np.diff(below, prepend=0.0, append=1.0)


def drawn(word, mean, sd, resolution):
    return np.asarray(rounded_normal(word, np.float32(mean), np.float32(sd), resolution))


def counted(reading, steps):
    return np.bincount(np.clip(reading, steps[0], steps[-1]) - steps[0], minlength=len(steps))


def p_value(counts, mass):
    """Chi-square against an exact law, cells in order being merged until each expects at least 10."""
    expected = mass * counts.sum()
    group = np.floor(np.cumsum(expected) / 10).astype(int)
    group = np.minimum(np.unique(group, return_inverse=True)[1], max(1, np.unique(group).size - 2))
    merged, exact = np.bincount(group, counts), np.bincount(group, expected)
    return scipy.stats.chi2.sf(np.sum((merged - exact) ** 2 / exact), len(exact) - 1)


@pytest.mark.parametrize(("mean", "sd", "resolution"), READINGS)
def test_rounded_normal_has_the_exact_mass_at_every_step(mean, sd, resolution):
    word = np.asarray(jax.random.bits(jax.random.key(11), (MILLIONS,), jnp.uint32))
    steps, mass = masses(mean, sd, resolution)
    assert p_value(counted(drawn(word, mean, sd, resolution), steps), mass) > LEVEL


@pytest.mark.parametrize(("mean", "sd", "resolution"), READINGS)
def test_rounded_normal_on_even_words_is_exact_but_for_the_table_error(mean, sd, resolution):
    steps, mass = masses(mean, sd, resolution)
    counts = counted(drawn(stratified(), mean, sd, resolution), steps)
    # A deviate that is off by the table error, and then by half a fixed-point step, moves both ends of a step.
    moved = 2 * (TABLE_ERROR + 1 / (sd * ONE)) * scipy.stats.norm.pdf(0) * MILLIONS
    assert np.abs(counts - mass * MILLIONS).max() <= moved + 4


def test_the_mass_test_would_notice_a_slightly_wrong_spread():
    word = np.asarray(jax.random.bits(jax.random.key(11), (MILLIONS,), jnp.uint32))
    steps, mass = masses(20.0, 4.0, 1)
    assert p_value(counted(drawn(word, 20.0, 4.02, 1), steps), mass) < LEVEL
    assert p_value(counted(drawn(word, 20.02, 4.0, 1), steps), mass) < LEVEL


def test_rounded_normal_stays_whole_at_the_limits_of_its_range():
    word = np.array(EDGES, np.uint32)
    magnitude = -scipy.special.ndtri(upper_tail_of(word))
    z = np.where(word >= 2**31, -magnitude, magnitude)
    for mean, sd, resolution in [(1400.0, 100.0, 1), (1400.0, 100.0, 10), (0.0, 0.0, 1), (1900.0, 15.0, 10_000)]:
        reading = np.asarray(randomness.rounded_normal(word, jnp.float32(mean), jnp.float32(sd), resolution))
        # In fixed point with many steps a unit, a few digits of the noise are dropped.
        np.testing.assert_allclose(reading, (mean + sd * z) * resolution, atol=0.51 + 2e-4 * sd * resolution)


# The same numbers everywhere


def everything(word):
    """Every function of one word and of its neighbours, as whole numbers (float32 by its bits), ``[n]``."""
    mean, sd = jnp.float32(0.7), jnp.float32(0.15)
    u = jax.lax.bitcast_convert_type(randomness.uniform(word), jnp.uint32)
    block = [*randomness.words(word, 5, word ^ np.uint32(3), 3)]
    readings = [randomness.rounded_normal(word, mean, sd, r).astype(jnp.uint32) for r in (1, 10_000)]
    deviates = [randomness.standard_normal(word), randomness.standard_exponential(word)]
    deviates.append(randomness.scaled(deviates[0], sd))
    return jnp.stack([u, *block, *readings, *(d.astype(jnp.uint32) for d in deviates)])


def test_numbers_do_not_depend_on_how_they_are_computed():
    word = jnp.asarray(np.concatenate([np.array(EDGES, np.uint32), random_words(300, seed=6)]))
    together = np.asarray(jax.jit(jax.vmap(everything))(word))

    one_by_one = jax.jit(everything)
    np.testing.assert_array_equal([one_by_one(w) for w in word], together)
    in_turn = jax.jit(lambda word: jax.lax.scan(lambda _, w: (None, everything(w)), None, word)[1])
    np.testing.assert_array_equal(in_turn(word), together)
    in_two_axes = jax.jit(jax.vmap(jax.vmap(everything)))(word.reshape(12, 26))
    np.testing.assert_array_equal(in_two_axes.reshape(len(word), -1), together)
    with jax.disable_jit():
        np.testing.assert_array_equal([everything(w) for w in word[: len(EDGES)]], together[: len(EDGES)])
    with jax.enable_x64(True):
        np.testing.assert_array_equal(jax.jit(jax.vmap(everything))(word), together)


def test_readings_do_not_depend_on_the_precision_of_mean_and_sd():
    word = random_words(5000, seed=7)
    means, sds = np.float64([20.0, 0.1, 0.95, 1.8]), np.float64([4.0, 0.15, 0.12, 0.25])
    read = jax.jit(jax.vmap(lambda mean, sd: randomness.rounded_normal(word, mean, sd, 100)))
    single = read(means, sds)
    with jax.enable_x64(True):
        double = read(means, sds)
    assert single.dtype == double.dtype == jnp.int32
    np.testing.assert_array_equal(single, double)


# Whole steps as fractions, and products of them


def products(per_unit, most_steps, quantities, dtype):
    """``rounded_product(qty, fraction(steps))`` for all steps and quantities, and Python's own, ``[steps, qty]``."""
    steps, qty = np.arange(most_steps + 1, dtype=np.int32), np.asarray(quantities, np.int32)
    with jax.enable_x64(dtype == np.float64):

        @jax.jit
        def ours(steps):
            share = rounding.fraction(steps, per_unit, dtype)
            return jax.vmap(lambda q: rounding.rounded_product(q, share), out_axes=1)(jnp.asarray(qty))

        got = np.asarray(ours(steps))
    python = [[round(q * share) for q in qty.tolist()] for share in (k / per_unit for k in steps.tolist())]
    return got, np.array(python)


def ties(per_unit, most_steps, quantities):
    """Where the true product lies halfway between two whole numbers."""
    product = np.arange(most_steps + 1, dtype=np.int64)[:, None] * np.asarray(quantities, np.int64)
    return 2 * product % (2 * per_unit) == per_unit


CASES = {
    "fill": (supplier.FILL_STEPS, 100, range(101)),
    "defects": (quality.STEPS, 60_000, range(101)),
    "freight index": (freight.STEPS, 60_000, [100]),
}


@pytest.mark.parametrize("case", CASES)
def test_products_in_float64_are_pythons(case):
    got, python = products(*CASES[case], np.float64)
    assert got.dtype == np.int32
    np.testing.assert_array_equal(got, python)


# How many products sit on a tie and round to the other side than Python does, in float32.
OFF_IN_FLOAT32 = {"fill": 8, "defects": 9, "freight index": 71}


@pytest.mark.parametrize("case", CASES)
def test_products_in_float32_differ_from_pythons_on_ties_alone(case):
    got, python = products(*CASES[case], np.float32)
    differs = got != python
    assert not np.any(differs & ~ties(*CASES[case]))
    assert differs.sum() == OFF_IN_FLOAT32[case]
    assert np.abs(got - python).max() == 1


@pytest.mark.parametrize("per_unit", [supplier.FILL_STEPS, freight.STEPS, quality.STEPS])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_fraction_is_the_exactly_rounded_quotient(per_unit, dtype):
    steps = np.arange(60_001, dtype=np.int32)
    with jax.enable_x64(dtype == np.float64):
        compiled = np.asarray(jax.jit(lambda steps: rounding.fraction(steps, per_unit, dtype))(steps))
        scalars = np.asarray(jax.jit(jax.vmap(lambda k: rounding.fraction(k, per_unit, dtype)))(steps))
    np.testing.assert_array_equal(compiled, steps.astype(dtype) / dtype(per_unit))
    np.testing.assert_array_equal(scalars, compiled)
    assert compiled.dtype == dtype


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_tie_goes_to_the_even_neighbour(dtype):
    with jax.enable_x64(dtype == np.float64):
        got = [int(rounding.rounded_product(jnp.int32(q), jnp.asarray(dtype(0.5)))) for q in (1, 3, 5, 7)]
    assert got == [0, 2, 2, 4]
