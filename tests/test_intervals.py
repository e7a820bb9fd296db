"""Intervals that cover what they say, and tests that reject as often as they say."""

import math

import numpy as np
import pytest
from scipy import stats

from stocktake_jax.metrics import (
    detectable_difference,
    holm,
    mean_interval,
    ratio_interval,
    sign_flip_test,
)


def coverage(draw, truth, seeds, repeats=600):
    """Shares of bootstrap-t and t intervals that hold the truth, over many runs of so many seeds."""
    dice = np.random.default_rng(11)
    found = [mean_interval(draw(dice, seeds), draws=600, seed=i) for i in range(repeats)]
    return (
        np.mean([interval.low <= truth <= interval.high for interval in found]),
        np.mean([interval.t_low <= truth <= interval.t_high for interval in found]),
    )


def normal(dice, n):
    return dice.normal(0.5, 0.3, n)


def melted(dice, n):
    """Mostly good runs, and now and then a ruined one."""
    return np.where(dice.random(n) < 0.15, dice.normal(-2, 0.5, n), dice.normal(0.7, 0.2, n))


@pytest.mark.parametrize("seeds", [8, 20, 50])
def test_intervals_of_normal_values_cover_what_they_say(seeds):
    boot, student = coverage(normal, 0.5, seeds)
    assert 0.92 < boot < 0.98
    assert 0.92 < student < 0.98


def test_where_a_few_runs_are_ruined_the_bootstrap_covers_more_than_t():
    truth = 0.85 * 0.7 - 0.15 * 2
    boot, student = coverage(melted, truth, 32)
    assert boot > 0.91
    assert boot > student


def test_a_ratio_covers_its_truth():
    dice, inside = np.random.default_rng(3), []
    for i in range(400):
        below = dice.uniform(500, 2500, 30)
        found = ratio_interval(0.6 * below + dice.normal(0, 300, 30), below, draws=600, seed=i)
        inside.append(found.low <= 0.6 <= found.high)
    assert 0.91 < np.mean(inside) < 0.98


def test_the_t_interval_is_scipy_s_and_the_ratio_weighs_by_dollars():
    values = np.array([0.1, 0.5, 0.9, 0.4, 0.3])
    found = mean_interval(values)
    low, high = stats.t.interval(0.95, 4, values.mean(), stats.sem(values))
    assert (found.estimate, found.t_low, found.t_high) == pytest.approx((values.mean(), low, high))
    assert found.standard_error == pytest.approx(stats.sem(values))
    assert ratio_interval([100.0, 0.0], [100.0, 300.0]).estimate == 0.25


def test_intervals_are_reproducible_and_shift_and_scale_with_the_values():
    values = np.random.default_rng(0).normal(size=20)
    one, again, other = mean_interval(values), mean_interval(values), mean_interval(values, seed=1)
    assert one == again
    assert one != other
    scaled = mean_interval(3 * values + 2)
    assert (scaled.low, scaled.high) == pytest.approx((3 * one.low + 2, 3 * one.high + 2))


def test_an_error_of_the_references_widens_both_intervals():
    values = np.random.default_rng(0).normal(size=20)
    plain = mean_interval(values)
    wide = mean_interval(values, reference_error=3 * plain.standard_error)
    assert wide.standard_error == pytest.approx(plain.standard_error * math.sqrt(10))
    assert wide.high - wide.low == pytest.approx((plain.high - plain.low) * math.sqrt(10))
    assert wide.t_high - wide.t_low > plain.t_high - plain.t_low


def test_too_few_seeds_have_no_interval_and_equal_ones_a_point():
    assert math.isnan(mean_interval([]).estimate)
    alone = mean_interval([0.4])
    assert (alone.estimate, math.isnan(alone.low), alone.seeds) == (0.4, True, 1)
    equal = mean_interval([0.5] * 9)
    assert (equal.low, equal.high) == pytest.approx((0.5, 0.5))


def test_sign_flips_are_exact_for_few_seeds():
    assert sign_flip_test([1.0] * 5) == pytest.approx(2 / 2**5)
    assert sign_flip_test([1.0, -1.0]) == 1.0
    assert sign_flip_test([3.0, 1.0, 2.0]) == pytest.approx(2 / 2**3)
    assert sign_flip_test([]) == sign_flip_test([2.0]) == sign_flip_test([0.0, 0.0]) == 1.0


def test_sign_flips_reject_as_often_as_they_say():
    dice = np.random.default_rng(5)
    false = [sign_flip_test(dice.normal(size=24), draws=800, seed=i) < 0.05 for i in range(300)]
    assert 0.015 < np.mean(false) < 0.1
    assert sign_flip_test(dice.normal(1.0, 0.5, 24)) < 0.001


def test_holm_adjusts_step_by_step():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == pytest.approx([1.0, 1.0])
    assert holm([]) == []


def test_the_detectable_difference_is_found_with_the_power_it_names():
    dice = np.random.default_rng(2)
    noise = dice.normal(0, 0.25, 20)
    size = detectable_difference(noise / noise.std(ddof=1) * 0.25)
    assert 0.14 < size < 0.20
    found = [stats.ttest_1samp(dice.normal(size, 0.25, 20), 0).pvalue < 0.05 for _ in range(2000)]
    assert 0.76 < np.mean(found) < 0.86
    assert math.isnan(detectable_difference([1.0]))
