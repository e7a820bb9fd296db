"""Canal: transits through Suez, and what the Cape suffers from it (docs/rules.md 1, Canal)."""

from random import Random

import jax.numpy as jnp
import numpy as np

from stocktake_jax.chain import Chain
from stocktake_jax.fields import Params, number, probability
from stocktake_jax.randomness import Array, uniform
from stocktake_jax.symptoms import Clues, Symptoms, log_if

CHAIN = Chain.from_rows(
    {
        "calm": {"watch": 0.08, "calm": 0.92},
        "watch": {"short:0": 0.35, "long:0": 0.15, "false_alarm": 0.20, "calm": 0.15, "watch": 0.15},
        "false_alarm": {"calm": 1.0},
        "short:0": {"short:1": 0.50, "recovery:0": 0.50},
        "short:1": {"recovery:0": 1.0},
        "long:0": {"long:persist": 0.92, "recovery:0": 0.08},
        "long:persist": {"long:persist": 0.92, "recovery:0": 0.08},
        "recovery:0": {"recovery:1": 0.50, "calm": 0.50},
        "recovery:1": {"recovery:2": 0.50, "calm": 0.50},
        "recovery:2": {"calm": 1.0},
    }
)
LAYOUT = CHAIN.layout
START = LAYOUT.index("calm")
STRESS = LAYOUT.mask("short", "long")
BLOCKED = STRESS
"""States in which no ship passes Suez."""
LONG = LAYOUT.mask("long")
RECOVERY = LAYOUT.mask("recovery")

BANDS = ("calm", "watch", "crash", "blockage", "crisis", "recovery")
"""What the counts tell: a false alarm and the first week of either closure are one and the same crash."""
_BAND_OF = {
    **{"calm": "calm", "watch": "watch", "false_alarm": "crash", "short:0": "crash", "long:0": "crash"},
    **{"short:1": "blockage", "long:persist": "crisis"},
}
BAND = np.array([BANDS.index(_BAND_OF.get(label, "recovery")) for label in LAYOUT.labels], np.int32)
TENSE = np.isin(BAND, [BANDS.index(band) for band in ("watch", "crash", "blockage", "crisis")])
"""States whose visible band makes a supplier's shortfall expensive."""

BRIEFINGS = ("calm", "watch", "false_alarm", "short", "long", "recovery")
"""What a bought briefing can say: the true regime."""
BRIEFING = np.array([BRIEFINGS.index(regime) for regime in LAYOUT.regimes], np.int32)

BULLETINS = (
    "Suez and Bab-el-Mandeb traffic is moving normally.",
    "Naval advisories for the Red Sea approaches have been raised; some carriers are reviewing their schedules.",
    "Transits have dropped sharply after an incident; it is unclear whether the waterway is shut or merely paused.",
    "The waterway is shut to commercial traffic and ships are being sent by the Cape.",
    "Only a handful of escorted transits are reported; most carriers are routing by the Cape.",
    "The waterway is open again and a queue of waiting ships is being worked off.",
)
"""One line for each band."""

READINGS = ("cape_congestion",)
BASELINE = (0,)
WORDS = 1


class CanalParams(Params):
    """Numbers of the canal process."""

    chain: Chain = CHAIN
    counts: Array = number(
        ((70, 70, 60), (63, 63, 60), (28, 25, 66), (0, 0, 72), (14, 10, 96), (56, 56, 69)),
        "transits at Suez, Bab-el-Mandeb and the Cape by band",
        unit="ships/week",
    )
    cape_congestion: Array = probability(0.08, "chance of local congestion at the Cape, each week on its own")
    cape_congestion_ships: Array = number(21, "ships that it adds to the Cape's count", unit="ships/week")


def read(params: CanalParams, state: Array, previous: list[Array], words: list[Array]) -> list[Array]:
    """Readings of a state just entered: whether the Cape is congested (0 or 1)."""
    return [(uniform(words[0]) < params.cape_congestion.astype(jnp.float32)).astype(jnp.int32)]


def replay(params: CanalParams, source: Random, state: int, previous: list[int]) -> tuple[int, list[int]]:
    """The next state and its readings on CPython's stream."""
    if LAYOUT.labels[state] == "watch":
        state = _replay_watch(params.chain.probabilities[state].tolist(), source)
    else:
        state = params.chain.replay(source, state)
    return state, [int(source.random() < float(params.cape_congestion))]


def _replay_watch(row: list[float], source: Random) -> int:
    """The published stream settles a closure first and its kind by a second uniform."""
    short, long, false_alarm, calm, _ = row
    u = source.random()
    if u < short + long:
        return LAYOUT.index("short:0" if source.random() < short / (short + long) else "long:0")
    if u < short + long + false_alarm:
        return LAYOUT.index("false_alarm")
    return LAYOUT.index("calm" if u < short + long + false_alarm + calm else "watch")


def counts(params: CanalParams, state: Array, cape_congestion: Array) -> Array:
    """Transits shown at Suez, Bab-el-Mandeb and the Cape (int32 ``[3]``)."""
    extra = cape_congestion * params.cape_congestion_ships
    return params.counts[BAND][state] + jnp.stack([jnp.zeros_like(extra), jnp.zeros_like(extra), extra])


def published_log_likelihood(params: CanalParams, seen: Symptoms) -> Array:
    """Log likelihood ``[states]`` of the week's counts, local congestion at the Cape summed out."""
    counts = params.counts[BAND]
    lane = (counts[:, 0] == seen.counts[0]) & (counts[:, 1] == seen.counts[1])
    cape = jnp.where(counts[:, 2] == seen.counts[2], 1 - params.cape_congestion, 0)
    extra = counts[:, 2] + params.cape_congestion_ships
    cape = cape + jnp.where(extra == seen.counts[2], params.cape_congestion, 0)
    return jnp.log(jnp.where(lane, cape, 0))


def log_likelihoods(params: CanalParams, seen: Symptoms, clues: Clues) -> dict[str, Array]:
    """Log likelihoods ``[states]`` of what the report tells of its week, by evidence.

    ``transits``: counts and bulletin follow from the visible band, and the coin adds its ships to the Cape's count:
    P(counts) = sum over the coin c of P(c) [counts = counts(state, c)].

    ``suez_ships``: a ship at Suez waits, or is sent round the Cape after a week's wait, just when the canal is blocked;
    one that passes loses time just when the canal recovers.

    ``cape_ships``, given the counts: a ship at its decisive point loses time if the canal is in a long closure or the
    coin is on, and P(coin on | counts, state) is the share of that coin in the sum above.
    """
    dtype = params.cape_congestion.dtype
    band = jnp.asarray(BAND) == seen.canal_band

    def shown(coin: int) -> Array:
        extra = coin * params.cape_congestion_ships * np.array([0, 0, 1], np.int32)
        return band & (params.counts + extra[None] == seen.counts[None]).all(axis=-1)[BAND]

    off, on = jnp.where(shown(0), 1 - params.cape_congestion, 0), jnp.where(shown(1), params.cape_congestion, 0)
    slow = jnp.where(LONG, 1, on / jnp.where(on > 0, off + on, 1))
    cape = jnp.log(jnp.where(clues.cape_slow == 1, slow, 1 - slow))
    blocked = log_if((clues.suez_blocked == 1) == BLOCKED, clues.suez_blocked >= 0, dtype)
    recovering = log_if((clues.suez_recovering == 1) == RECOVERY, clues.suez_recovering >= 0, dtype)
    return {
        "transits": jnp.log(off + on),
        "suez_ships": blocked + recovering,
        "cape_ships": jnp.where(clues.cape_slow >= 0, cape, 0),
    }


def hindsight(params: CanalParams, seen: Symptoms, clues: Clues) -> dict[str, Array]:
    """Log likelihoods ``[states]`` of what the report tells of the week before: ``briefing``, its true regime."""
    return {"briefing": log_if(seen.briefing == BRIEFING, seen.briefing >= 0, params.cape_congestion.dtype)}
