"""Detection, diagnosis and knowing-doing (docs/rules.md 5): against a second implementation, by hand, and in bulk."""

import math

import numpy as np
import pytest

import stocktake_jax as st
from stocktake_jax.metrics import DEFINITIONS, belief_metrics, pooled

WEEKS, FACTORS = 27, 6


def flags(**weeks):
    """bool ``[27, 6]`` with the given weeks set, by factor."""
    grid = np.zeros((WEEKS, FACTORS), bool)
    for factor, at in weeks.items():
        grid[list(at), st.FACTORS.index(factor)] = True
    return grid


NOTHING = np.zeros((WEEKS, FACTORS), bool)
EMPTY = np.zeros(WEEKS, bool)


def stockouts(*weeks):
    column = np.zeros(WEEKS, bool)
    column[list(weeks)] = True
    return column


def by_the_book(stressed, named, stockout, graded, definition):
    """The same metrics week by week in plain Python, written from the rules and not from the code."""
    detected = missed = undetectable = lag_sum = 0
    for factor in range(FACTORS):
        week = 1
        while week <= 26:
            if not stressed[week][factor]:
                week += 1
                continue
            onset = week
            while week <= 26 and stressed[week][factor]:
                week += 1
            end = week - 1
            if definition != "paper" and onset == 26:
                undetectable += 1
                continue
            limit = end + 1 if definition == "bounded" else 26
            hits = [w for w in range(onset, min(limit, 25) + 1) if named[w][factor] and graded[w]]
            if hits:
                detected += 1
                lag_sum += hits[0] - onset
            else:
                missed += 1
    tally = {(diagnosed, out): 0 for diagnosed in (True, False) for out in (True, False)}
    for week in range(1, 27 if definition == "paper" else 26):
        if not any(stressed[week]) or (week < 26 and not graded[week]):
            continue
        right = week < 26 and any(s and n for s, n in zip(stressed[week], named[week], strict=True))
        tally[right, bool(stockout[week])] += 1
    pairs = [(w, f) for w in range(1, 26) for f in range(FACTORS) if graded[w] and named[w][f]]
    return {
        "stress_episodes": detected + missed, "detected": detected, "missed": missed, "undetectable": undetectable,
        "lag_sum": lag_sum, "diagnosed_weeks": tally[True, True] + tally[True, False],
        "diagnosed_stockouts": tally[True, True], "undiagnosed_weeks": tally[False, True] + tally[False, False],
        "undiagnosed_stockouts": tally[False, True], "ungraded_weeks": sum(not graded[w] for w in range(1, 26)),
        "named": len(pairs), "named_stressed": sum(bool(stressed[w][f]) for w, f in pairs),
    }  # fmt: skip


@pytest.mark.parametrize("definition", DEFINITIONS)
def test_random_episodes_agree_with_the_rules_read_week_by_week(definition):
    dice = np.random.default_rng(5)
    for _ in range(400):
        rates = dice.uniform(size=4)
        stressed = np.repeat(dice.random((14, FACTORS)) < rates[0], 2, axis=0)[:WEEKS]
        named = dice.random((WEEKS, FACTORS)) < rates[1]
        stockout, graded = dice.random(WEEKS) < rates[2], dice.random(WEEKS) < 0.5 + rates[3]
        found = belief_metrics(stressed, named, stockout, graded, definition)
        assert vars(found) == by_the_book(stressed, named, stockout, graded, definition)


@pytest.mark.parametrize(
    ("definition", "episodes", "undetectable", "weeks"),
    [("paper", 283, 0, 677), ("sound", 266, 17, 639), ("bounded", 266, 17, 639)],
)
def test_the_published_tapes_hold_the_printed_numbers_of_episodes_and_weeks(definition, episodes, undetectable, weeks):
    tapes = st.stack([st.published_tape(seed.seed) for seed in st.published_seeds()])
    masks = np.asarray(st.stress_mask(tapes))
    total = pooled(belief_metrics(mask, NOTHING, EMPTY, definition=definition) for mask in masks)
    assert (total.stress_episodes, total.undetectable, total.undiagnosed_weeks) == (episodes, undetectable, weeks)
    assert (total.detected, total.missed, total.diagnosed_weeks) == (0, episodes, 0)
    everything = pooled(belief_metrics(mask, ~NOTHING, EMPTY, definition=definition) for mask in masks)
    assert everything.detected == 266  # whatever begins in week 26 is beyond every rationale
    assert everything.mean_lag == 0.0
    assert everything.precision < 0.2  # naming everything always wins no precision


def test_detection_begins_at_the_onset_and_lag_counts_from_there():
    stressed = flags(port=range(5, 9))
    for week, detected, lag in ((4, 0, 0), (5, 1, 0), (7, 1, 2), (9, 1, 4), (20, 1, 15)):
        found = belief_metrics(stressed, flags(port=[week]), EMPTY)
        assert (found.detected, found.lag_sum) == (detected, lag)
    assert belief_metrics(stressed, flags(port=[4, 6, 7]), EMPTY).lag_sum == 1
    assert belief_metrics(stressed, flags(canal=[5]), EMPTY).detected == 0


def test_the_bounded_window_closes_one_week_after_the_end():
    stressed = flags(port=range(5, 9))
    found = [belief_metrics(stressed, flags(port=[week]), EMPTY, definition="bounded").detected for week in (8, 9, 10)]
    assert found == [1, 1, 0]
    assert belief_metrics(stressed, flags(port=[10]), EMPTY, definition="sound").detected == 1


def test_one_late_naming_detects_every_earlier_episode_of_its_factor_unless_bounded():
    stressed = flags(port=[2, 3, 8, 9, 15])
    late = flags(port=[25])
    assert belief_metrics(stressed, late, EMPTY).detected == 3
    assert belief_metrics(stressed, late, EMPTY, definition="bounded").detected == 0


@pytest.mark.parametrize("definition", DEFINITIONS)
def test_week_0_and_the_last_week_hear_no_names(definition):
    stressed = flags(port=[0, 26], canal=[26])
    found = belief_metrics(stressed, ~NOTHING, stockouts(26), definition=definition)
    assert (found.detected, found.diagnosed_weeks) == (0, 0)
    assert found.missed == (2 if definition == "paper" else 0)
    assert found.undetectable == (0 if definition == "paper" else 2)
    assert found.undiagnosed_stockouts == (1 if definition == "paper" else 0)
    assert found.named == 25 * 6
    ongoing = flags(port=[25, 26])
    assert belief_metrics(ongoing, ~NOTHING, EMPTY, definition=definition).detected == 1


def test_one_right_name_diagnoses_a_week_and_a_wrong_one_does_not():
    stressed = flags(port=[5, 6, 7], canal=[6])
    found = belief_metrics(stressed, flags(canal=[5, 6], demand=[7]), stockouts(5, 6))
    assert (found.diagnosed_weeks, found.diagnosed_stockouts) == (1, 1)
    assert (found.undiagnosed_weeks, found.undiagnosed_stockouts) == (2, 1)
    assert (found.knowing_doing, found.not_knowing) == (1.0, 0.5)
    assert found.precision == pytest.approx(1 / 3)


def test_what_could_not_be_graded_is_left_out_and_counted():
    stressed, named = flags(port=[5, 6]), flags(port=[5, 6])
    graded = ~stockouts(5, 12, 0, 26)
    found = belief_metrics(stressed, named, stockouts(5), graded)
    assert found.ungraded_weeks == 2
    assert (found.diagnosed_weeks, found.undiagnosed_weeks) == (1, 0)
    assert (found.detected, found.lag_sum, found.named) == (1, 1, 1)


def test_rates_are_undefined_where_there_is_nothing():
    found = belief_metrics(NOTHING, NOTHING, EMPTY)
    rates = (found.mean_lag, found.detection, found.knowing_doing, found.not_knowing, found.precision)
    assert all(math.isnan(rate) for rate in rates)
    assert all(math.isnan(rate) for rate in (pooled([]).mean_lag, pooled([]).precision))


def test_pooling_adds_counts_and_so_weighs_by_weeks():
    one = belief_metrics(flags(port=[5]), flags(port=[5]), stockouts(5))
    other = belief_metrics(flags(port=range(5, 8)), flags(port=range(5, 8)), EMPTY)
    both = pooled([one, other])
    assert both.knowing_doing == 0.25
    assert both.stress_episodes == 2


@pytest.mark.parametrize(
    "arguments",
    [
        (NOTHING[:26], NOTHING, EMPTY), (NOTHING, NOTHING[:, :5], EMPTY), (NOTHING, NOTHING, EMPTY[:26]),
        (NOTHING, NOTHING, EMPTY, EMPTY[:26]), (EMPTY, EMPTY, EMPTY),
    ],
)  # fmt: skip
def test_other_shapes_are_refused(arguments):
    with pytest.raises(ValueError, match=r"they must be \[weeks, factors\]"):
        belief_metrics(*arguments)


def test_an_unknown_definition_is_refused():
    with pytest.raises(ValueError, match=r"definition is 'strict'; it must be 'paper', 'sound', 'bounded'"):
        belief_metrics(NOTHING, NOTHING, EMPTY, definition="strict")
