"""Published tapes and figures: every recorded state, draw and reading, the counts of the rules, and what is refused."""

import functools
import json
import random
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stocktake_jax as st
from stocktake_jax import published
from stocktake_jax.factors import MODULES, canal, freight, quality, supplier
from stocktake_jax.params import default_params

ROOT = Path(__file__).resolve().parent.parent
POOL = range(200)

# The states of these regimes carry an age; "persist" stands for all ages from 1 on.
AGED = {
    "canal": ("short", "long", "recovery"),
    "demand": ("promo_spike", "seasonal_lift"),
    "freight": ("tightening", "spike"),
    "port": ("congested", "customs_hold"),
    "quality": ("drifting",),
    "supplier": ("degraded",),
}

# Recorded column, ours, and the steps of ours in a unit of it.
READINGS = {
    "cape_local": ("cape_congestion", 1),
    "demand_realized": ("pos_units", 1),
    "demand_forecast": ("demand_forecast", 1),
    "freight_mult": ("freight_multiplier", freight.STEPS),
    "freight_outlook": ("freight_outlook", freight.STEPS),
    "berth_wait": ("berth_wait", 1),
    "wait_outlook": ("wait_outlook", 1),
    "realized_defect": ("defect_fraction", quality.STEPS),
    "sample_band": ("aql_result", 1),
    "lead_slip": ("lead_slip", supplier.SLIP_STEPS),
    "fill_draw": ("fill", supplier.FILL_STEPS),
}


@pytest.fixture(scope="module")
def recorded(load_golden):
    golden = load_golden("tapes.json.gz")
    assert len(golden["tapes"]) == 207
    return golden


@functools.cache
def tape(seed):
    return st.published_tape(seed)


def label(factor, regime, age):
    """The state's label in the rules, from a regime and an age."""
    if regime not in AGED[factor]:
        return regime
    labels = MODULES[factor].LAYOUT.labels
    return f"{regime}:{age}" if f"{regime}:{age}" in labels else f"{regime}:persist"


def recorded_labels(recorded, seed, factor):
    columns, codes = recorded["tapes"][str(seed)], recorded["codes"]
    regimes = [codes[factor][code] for code in columns[factor]]
    if factor == "canal":
        kinds = [codes["canal_type"][code] for code in columns["canal_type"]]
        regimes = [kind if regime == "disruption" else regime for regime, kind in zip(regimes, kinds, strict=True)]
    return [label(factor, regime, age) for regime, age in zip(regimes, columns[f"{factor}_age"], strict=True)]


# Tapes


@pytest.mark.parametrize("factor", st.FACTORS)
def test_states_are_the_recorded_ones(recorded, factor):
    labels = MODULES[factor].LAYOUT.labels
    for seed in map(int, recorded["tapes"]):
        ours = [labels[state] for state in getattr(tape(seed).rows, factor)]
        assert ours == recorded_labels(recorded, seed, factor), f"seed {seed}"


@pytest.mark.parametrize("column", READINGS)
def test_draws_are_the_recorded_ones(recorded, column):
    ours, steps = READINGS[column]
    for seed, columns in recorded["tapes"].items():
        values = [0 if value is None else value for value in columns[column]]  # no fill in week 0
        # A whole number of steps, and no other number of steps prints as the recorded value.
        assert [k / steps for k in getattr(tape(int(seed)).rows, ours).tolist()] == values, f"seed {seed}"


def test_every_column_of_a_tape_is_compared(recorded):
    assert {*st.FACTORS, *(name for name, _ in READINGS.values())} == set(st.Row.__dataclass_fields__)
    derived = {"canal_type", *(f"{factor}_age" for factor in st.FACTORS)}
    shown = {name for name in recorded["columns"] if name.startswith("obs_")}
    assert set(recorded["columns"]) - {*st.FACTORS, *READINGS} == derived | shown | {"rng_next"}
    assert shown == set(SHOWN)


def test_the_random_stream_is_left_where_the_reference_leaves_it(recorded):
    for seed, columns in recorded["tapes"].items():
        source = random.Random(int(seed))
        replayed = published._replay(source, int(seed))
        assert source.random() == columns["rng_next"], f"seed {seed}"
        assert st.tape_digest(replayed) == st.tape_digest(tape(int(seed)))


def test_a_dead_supplier_leaves_stream_and_readings_alone(recorded):
    dead = [seed for seed in recorded["tapes"] if "defunct" in recorded_labels(recorded, seed, "supplier")]
    assert len(dead) > 10
    for seed in map(int, dead):
        rows = tape(seed).rows
        death = int(np.argmax(supplier.DEFUNCT[rows.supplier]))
        assert supplier.DEFUNCT[rows.supplier[death:]].all()
        assert len(set(rows.lead_slip[death:].tolist())) == len(set(rows.fill[death:].tolist())) == 1


def test_week_0_is_the_same_on_every_tape():
    for seed in (0, 1, 199, 2**32 - 1):
        rows = tape(seed).rows
        start = {factor: MODULES[factor].LAYOUT.labels[getattr(rows, factor)[0]] for factor in st.FACTORS}
        assert start == {
            "canal": "calm",
            "demand": "normal",
            "freight": "normal",
            "port": "clear",
            "quality": "in_control",
            "supplier": "reliable",
        }
        readings = {name: int(getattr(rows, name)[0]) for name, _ in READINGS.values()}
        assert readings == {
            "cape_congestion": 0,
            "pos_units": 20,
            "demand_forecast": 20,
            "freight_multiplier": 10_000,
            "freight_outlook": 10_000,
            "berth_wait": 1,
            "wait_outlook": 1,
            "defect_fraction": 0,
            "aql_result": 0,
            "lead_slip": 0,
            "fill": 0,
        }


def test_a_published_tape_is_made_on_the_host_in_whole_numbers():
    made = tape(12)
    assert all(type(column) is np.ndarray and column.dtype == np.int32 for column in jax.tree.leaves(made.rows))
    assert all(column.shape == (27,) for column in jax.tree.leaves(made.rows))
    assert made.id == np.uint32(12)
    assert made.id.dtype == np.uint32
    assert not made.minted


def test_digests_of_the_pool_are_the_published_ones():
    file = ROOT / "stocktake_jax" / "data" / "published_tapes.json"
    digests = json.loads(file.read_text(encoding="utf-8"))
    assert digests == {str(seed): st.tape_digest(tape(seed)) for seed in POOL}


# What is shown

SHOWN = {
    "obs_suez_count": lambda seen: seen.counts[..., 0],
    "obs_bab_count": lambda seen: seen.counts[..., 1],
    "obs_cape_count": lambda seen: seen.counts[..., 2],
    "obs_freight_index": lambda seen: seen.freight_index,
    "obs_freight_outlook": lambda seen: seen.freight_outlook,
    "obs_spot_band": lambda seen: seen.supplier_band[..., 1],
    "obs_spot_otif": lambda seen: seen.supplier_otif[..., 1],
    "obs_spot_lead_days": lambda seen: seen.supplier_lead[..., 1],
}


@pytest.fixture(scope="module")
def shown(recorded):
    """What ``observe`` shows in every week of every recorded tape, leaves ``[tape, week, ...]``."""
    tapes = st.stack([tape(int(seed)) for seed in recorded["tapes"]])
    weeks = jnp.arange(27, dtype=jnp.int32)

    def observe(tape):
        books = st.reset(tape)
        return jax.vmap(lambda week: st.observe(books.replace(week=week), tape))(weeks)

    with jax.enable_x64(True):
        return jax.device_get(jax.jit(jax.vmap(observe))(tapes))


@pytest.mark.parametrize("column", SHOWN)
def test_reports_show_the_recorded_symptoms(recorded, shown, column):
    expected = [[-1 if value is None else value for value in columns[column]] for columns in recorded["tapes"].values()]
    np.testing.assert_array_equal(SHOWN[column](shown), expected)


def test_reports_show_the_band_that_the_counts_tell(recorded, shown):
    counts = np.asarray(default_params().canal.counts)
    np.testing.assert_array_equal(shown.counts[..., :2], counts[shown.canal_band][..., :2])
    np.testing.assert_array_equal(shown.canal_band, canal.BAND[[tape(int(s)).rows.canal for s in recorded["tapes"]]])


def test_the_scorecard_of_a_dead_supplier_shows_nothing(recorded, shown):
    dead = supplier.DEFUNCT[[tape(int(seed)).rows.supplier for seed in recorded["tapes"]]]
    assert dead.any()
    np.testing.assert_array_equal(shown.supplier_otif[..., 1] == -1, dead)
    np.testing.assert_array_equal(shown.supplier_lead[..., 1] == -1, dead)
    np.testing.assert_array_equal(~shown.supplier_alive[..., 1], dead)


# Published figures


def test_published_figures_are_the_recorded_ones(load_golden):
    models = ("claude_sonnet_5", "gpt_5_4", "deepseek_v4_pro", "grok_4_5")
    assert st.published_seeds() == [
        st.PublishedSeed(
            seed=int(row["seed"]),
            group=row["group"],
            floor=float(row["base_stock"]),
            oracle_mean=float(row["oracle_mean"]),
            oracle_se=float(row["oracle_se"]),
            model_costs={name: float(row[name]) for name in models},
        )
        for row in load_golden("published.csv")
    ]


def test_fifty_seeds_are_published_in_the_groups_of_the_rules():
    groups = {
        "isolated": "11, 24, 25, 36, 60, 86, 91, 112, 157, 160, 178, 189",
        "persistent": "1, 29, 53, 58, 74, 95, 108, 119, 135, 145, 169, 170, 172, 194, 198",
        "compound": "0, 9, 12, 14, 21, 33, 39, 44, 72, 75, 82, 85, 90, 94, 99, 100, 143, 148, 154, 163, 164, 168, 187",
    }
    expected = {int(seed): group for group, seeds in groups.items() for seed in seeds.split(", ")}
    assert {seed.seed: seed.group for seed in st.published_seeds()} == expected
    assert [seed.seed for seed in st.published_seeds()] == sorted(expected)


def test_the_list_of_published_seeds_is_the_callers_own():
    st.published_seeds().clear()
    assert len(st.published_seeds()) == 50


def test_seeds_with_little_headroom_are_the_two_of_the_rules():
    assert [seed.seed for seed in st.published_seeds() if seed.floor - seed.oracle_mean < 500] == [11, 164]
    assert [seed.seed for seed in st.published_seeds() if seed.floor < seed.oracle_mean] == [11]


@pytest.fixture(scope="module")
def fifty():
    return [tape(seed.seed) for seed in st.published_seeds()]


def test_the_fifty_tapes_have_283_stress_episodes_and_17_begin_in_the_last_week(fifty):
    episodes = [episode for tape in fifty for episode in st.stress_episodes(tape)]
    assert len(episodes) == 283
    assert sum(episode.onset < 26 for episode in episodes) == 266
    assert all(episode.onset >= 1 for episode in episodes)


def test_the_fifty_tapes_have_677_stressed_weeks_and_38_are_the_last_week(fifty):
    stressed = np.array([np.asarray(st.stress_mask(tape)).any(axis=-1) for tape in fifty])
    assert stressed[:, 1:].sum() == 677
    assert stressed[:, 1:26].sum() == 639
    assert not stressed[:, 0].any()


# Seeds


def test_the_largest_seed_is_accepted():
    assert st.tape_digest(st.published_tape(4294967295)) == st.tape_digest(st.published_tape(np.uint32(2**32 - 1)))


@pytest.mark.parametrize("seed", [-1, 2**32, True, np.bool_(False), 1.0, np.float64(3), "7", None])
def test_what_is_no_seed_is_refused_in_a_sentence(seed):
    with pytest.raises(ValueError, match=r"^The seed is .+; it must be a whole number from 0 to 4294967295\.$"):
        st.published_tape(seed)


def test_published_tapes_start_no_backend():
    code = (
        "from stocktake_jax import published\n"
        "from jax._src import xla_bridge\n"
        "published.published_seeds()\n"
        "assert published.published_tape(3).rows.canal.shape == (27,)\n"
        "assert not xla_bridge._backends\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, capture_output=True, text=True)
