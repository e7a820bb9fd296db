"""A plain compiled loop for the benchmark to stand beside: tapes and the floor's weeks, one after another, in numba.

It takes the library's words, tables and roundings, so its results are the library's (tests/test_bench.py), but it
knows one policy, the floor, where the library's week takes any action. It serves the benchmark alone.
"""

import numba
import numpy as np

from stocktake_jax.actions import QUALIFIED, SUEZ
from stocktake_jax.factors import FACTORS, MODULES, canal, demand, freight, port, quality, supplier
from stocktake_jax.logistics import COSTS
from stocktake_jax.params import default_params
from stocktake_jax.policies import floor
from stocktake_jax.randomness import _EXPONENTIAL, _HALF_NORMAL, FIXED_POINT_BITS
from stocktake_jax.tape import _READINGS, _STATES, COLUMNS, start_row

PARAMS = default_params()
WEEKS = PARAMS.horizon + 1
START = np.array([getattr(start_row(), name) for name in COLUMNS], np.int32)
CANAL, DEMAND, FREIGHT, PORT, QUALITY, SUPPLIER, CONGESTED = range(7)
POS, FORECAST, MULTIPLIER, OUTLOOK, BERTH, WAIT, DEFECTS, AQL, SLIP, FILL = range(7, len(COLUMNS))

# The blocks of two words that a tape takes: week by week, for its states and then for each factor's readings.
_blocks = [(_STATES, block) for block in range(len(FACTORS) // 2)]
_blocks += [(_READINGS[name], block) for name, module in MODULES.items() for block in range((module.WORDS + 1) // 2)]
CHANNELS, COUNTERS = np.tile(np.array(_blocks, np.uint32), (WEEKS - 1, 1)).T.copy()
WEEK_OF = np.repeat(np.arange(1, WEEKS, dtype=np.uint32), len(_blocks))
# Where in a week's words each factor's first reading finds its own.
WORD_OF = {name: 2 * [channel for channel, _ in _blocks].index(_READINGS[name]) for name in FACTORS}
PER_WEEK = len(_blocks)
CONGESTED_WORD, QUALITY_WORD = WORD_OF["canal"], WORD_OF["quality"]


def _chains() -> tuple[np.ndarray, np.ndarray]:
    """Cumulative probabilities and successors of all chains, [factors, most states, most successors]."""
    chains = [getattr(PARAMS, name).chain for name in FACTORS]
    shape = (len(chains), *np.max([chain.layout.table.shape for chain in chains], axis=0))
    cumulative, successors = np.full(shape, np.inf, np.float32), np.zeros(shape, np.int32)
    for i, chain in enumerate(chains):
        states, width = chain.layout.table.shape
        sums = np.cumsum(chain.probabilities.astype(np.float32), axis=1, dtype=np.float32)
        cumulative[i, :states, : width - 1] = sums[:, :-1]  # the last successor is taken if none before it is
        successors[i, :states, :width] = chain.layout.table
    return cumulative, successors


def _normals() -> tuple[np.ndarray, ...]:
    """The normal readings: int32 [readings, 6] of column, factor, word, shift, least, most; centres; spreads."""
    world, most = PARAMS, 2**31 - 1
    least = round(float(world.freight.least) * freight.STEPS)
    slip, fill = supplier.SLIP_STEPS, supplier.FILL_STEPS
    readings = (
        ("demand", 0, POS, world.demand.mean[demand.BAND], world.demand.sd, 1, 0, most),
        ("demand", 1, FORECAST, world.demand.mean[demand.BAND], world.demand.forecast_sd, 1, 0, most),
        ("freight", 0, MULTIPLIER, world.freight.mean[freight.BAND], world.freight.sd, freight.STEPS, least, most),
        ("freight", 1, OUTLOOK, world.freight.mean[freight.BAND], world.freight.outlook_sd, freight.STEPS, least, most),
        ("port", 0, BERTH, world.port.mean[port.BAND], world.port.sd, 1, 0, most),
        ("port", 1, WAIT, world.port.mean[port.BAND], world.port.outlook_sd, 1, 0, most),
        ("supplier", 0, SLIP, world.supplier.mean_slip[supplier.REGIME], world.supplier.slip_sd, slip, 0, most),
        ("supplier", 1, FILL, world.supplier.mean_fill[supplier.REGIME], world.supplier.fill_sd, fill, 0, fill),
    )
    whole, spreads = [], []
    centres = np.zeros((len(readings), max(len(mean) for _, _, _, mean, *_ in readings)), np.int32)
    for i, (factor, word, column, mean, sd, steps, low, high) in enumerate(readings):
        shift = FIXED_POINT_BITS - (steps - 1).bit_length()
        whole.append((column, FACTORS.index(factor), WORD_OF[factor] + word, shift, low, high))
        centres[i, : len(mean)] = np.rint(mean.astype(np.float32) * np.float32(steps * 2.0**shift))
        spreads.append(sd.astype(np.float32) * np.float32(steps * 2.0 ** (shift - FIXED_POINT_BITS)))
    return np.array(whole, np.int32), centres, np.array(spreads, np.float32)


CUMULATIVE, SUCCESSORS = _chains()
NORMALS, CENTRES, SPREADS = _normals()
HALF_NORMAL, NORMAL_SLOPE = _HALF_NORMAL, np.diff(_HALF_NORMAL, append=_HALF_NORMAL[-1])
EXPONENTIAL, EXPONENTIAL_SLOPE = _EXPONENTIAL, np.diff(_EXPONENTIAL, append=_EXPONENTIAL[-1])
TICK = np.float32(2.0**-24)
CONGESTION = np.float32(PARAMS.canal.cape_congestion)
DEFECT_RATES = PARAMS.quality.defect_rate.astype(np.float32)[quality.BAND]
DEFECT_RATES = DEFECT_RATES * np.float32(quality.STEPS / 2.0 ** (FIXED_POINT_BITS + 1))
AQL_SUMS = np.cumsum(PARAMS.quality.aql.astype(np.float32), axis=1, dtype=np.float32)[quality.BAND]
DEFUNCT, BLOCKED, RECOVERY, PORT_BLOCKED = supplier.DEFUNCT, canal.BLOCKED, canal.RECOVERY, port.BLOCKED

ORDER_UP_TO, MOST_ORDER = floor().order_up_to, int(PARAMS.desk.most_order)
INITIAL_STOCK = int(PARAMS.desk.initial_stock)
LEAD, DELAY = int(PARAMS.voyage.lead[SUEZ]), int(PARAMS.voyage.recovery_delay)
RELEASE, DIVERSION = int(PARAMS.voyage.release), int(PARAMS.voyage.diversion)
LINES = len(COSTS)
SHIPPING, SURCHARGE, HOLDING, IN_TRANSIT, STOCKOUT, _, DEMURRAGE, REWORK = range(8)
DUAL_SOURCE = COSTS.index("dual_source")
CHUNK = 256


@numba.njit(inline="always")
def _threefry(
    key0: np.uint32, key1: np.uint32, counter0: np.uint32, counter1: np.uint32
) -> tuple[np.uint32, np.uint32]:
    # numba widens unsigned sums to 64 bits, hence a cast for each.
    key2 = np.uint32(key0 ^ key1 ^ np.uint32(0x1BD11BDA))
    keys = (key0, key1, key2)
    x0, x1 = np.uint32(counter0 + key0), np.uint32(counter1 + key1)
    for group in range(5):
        for rotation in (13, 15, 26, 6) if group % 2 == 0 else (17, 29, 16, 24):
            x0 = np.uint32(x0 + x1)
            x1 = np.uint32(np.uint32(x1 << np.uint32(rotation)) | np.uint32(x1 >> np.uint32(32 - rotation)))
            x1 = np.uint32(x0 ^ x1)
        x0 = np.uint32(x0 + keys[(group + 1) % 3])
        x1 = np.uint32(x1 + keys[(group + 2) % 3] + np.uint32(group + 1))
    return x0, x1


@numba.njit(inline="always")
def _quantile(table: np.ndarray, slopes: np.ndarray, word: np.uint32) -> np.int32:
    bits = np.float32(word).view(np.int32) - np.int32(127 << 23)
    cell, fraction = bits >> 16, bits & 0xFFFF
    return table[cell] + ((slopes[cell] * fraction) >> 16)


@numba.njit(inline="always")
def _uniform(word: np.uint32) -> np.float32:
    return np.float32(word >> np.uint32(8)) * TICK


@numba.njit
def _mint_one(seed: np.uint32, words: np.ndarray, tape: np.ndarray) -> None:
    """Writes the tape [columns, weeks] that a seed names; ``words`` [26 weeks, blocks, 2] is room to work in."""
    flat = words.reshape(-1, 2)
    for i in range(len(flat)):
        flat[i, 0], flat[i, 1] = _threefry(seed, CHANNELS[i], WEEK_OF[i], COUNTERS[i])
    tape[:, 0] = START
    for week in range(1, WEEKS):
        drawn = words[week - 1].reshape(-1)
        for factor in range(6):
            before, u, choice = tape[factor, week - 1], _uniform(drawn[factor]), 0
            while u >= CUMULATIVE[factor, before, choice]:
                choice += 1
            tape[factor, week] = SUCCESSORS[factor, before, choice]
        tape[CONGESTED, week] = _uniform(drawn[CONGESTED_WORD]) < CONGESTION
        for reading in range(len(NORMALS)):
            column, factor, place, shift, least, most = NORMALS[reading]
            word = drawn[place]
            deviate = _quantile(HALF_NORMAL, NORMAL_SLOPE, np.uint32(np.uint32(word << np.uint32(1)) | np.uint32(1)))
            deviate = -deviate if word >> np.uint32(31) != 0 else deviate
            noise = np.int32(np.rint(np.float32(deviate) * SPREADS[reading]))
            value = (CENTRES[reading, tape[factor, week]] + noise + (1 << (shift - 1))) >> shift
            tape[column, week] = min(max(value, least), most)
        if DEFUNCT[tape[SUPPLIER, week - 1]]:
            tape[SLIP, week], tape[FILL, week] = tape[SLIP, week - 1], tape[FILL, week - 1]
        state, gamma = tape[QUALITY, week], 0
        for word in drawn[QUALITY_WORD : QUALITY_WORD + 2]:
            gamma += _quantile(EXPONENTIAL, EXPONENTIAL_SLOPE, np.uint32(word | np.uint32(1)))
        u = _uniform(drawn[QUALITY_WORD + 2])
        tape[DEFECTS, week] = np.int32(np.rint(np.float32(gamma) * DEFECT_RATES[state]))
        tape[AQL, week] = np.int32(u >= AQL_SUMS[state, 0]) + np.int32(u >= AQL_SUMS[state, 1])


@numba.njit
def _floor_one(tape: np.ndarray, prices: tuple, ships: np.ndarray, due: np.ndarray, costs: np.ndarray) -> float:
    """Plays the floor on a tape [columns, weeks], writes its costs [26, 13], and returns their sum.

    ``ships`` and ``due`` [weeks], units aboard and week of arrival by week of dispatch, are room to work in.
    """
    base_rate, delta, surcharge, holding, in_transit, stockout, demurrage, rework, dual_source, zero = prices
    ships[:], due[:], costs[:] = 0, 0, zero
    stock, afloat, oldest, queued, total = INITIAL_STOCK, 0, 1, False, zero
    as_float = type(zero)
    for week in range(1, WEEKS):
        qty = min(max(ORDER_UP_TO - stock - afloat, 0), MOST_ORDER)
        ships[week], due[week] = qty, week + LEAD
        blocked = BLOCKED[tape[CANAL, week]]
        diverted = 0
        if queued:
            due[week - 3] = week + (DIVERSION if blocked else RELEASE)
            diverted = ships[week - 3] if blocked else 0
        queued = week > 2 and ships[week - 2] > 0 and blocked
        if week > 2 and RECOVERY[tape[CANAL, week]]:
            due[week - 2] += DELAY
        held, landed, defective = 0, 0, 0
        share = as_float(tape[DEFECTS, week]) / as_float(quality.STEPS)
        for ship in range(oldest, week + 1):
            if due[ship] == week and ships[ship] > 0:
                if PORT_BLOCKED[tape[PORT, week]]:
                    held += ships[ship]
                    due[ship] += 1
                else:
                    defective += int(np.rint(as_float(ships[ship]) * share))
                    landed += ships[ship]
                    ships[ship] = 0
        while oldest <= week and ships[oldest] == 0:
            oldest += 1
        afloat += qty - landed
        stock += landed - defective
        sold = min(stock, tape[POS, week])
        stock -= sold
        lines = costs[week - 1]
        rate = as_float(tape[MULTIPLIER, week]) / as_float(freight.STEPS)
        lines[SHIPPING] = as_float(qty) * (base_rate * rate + delta)
        lines[SURCHARGE] = as_float(diverted) * surcharge
        lines[HOLDING] = as_float(stock) * holding
        lines[IN_TRANSIT] = as_float(afloat) * in_transit
        lines[STOCKOUT] = as_float(tape[POS, week] - sold) * stockout
        lines[DEMURRAGE] = as_float(held) * demurrage
        lines[REWORK] = as_float(defective) * rework
        lines[DUAL_SOURCE] = zero if DEFUNCT[tape[SUPPLIER, week]] else dual_source
        cost = lines[0]
        for line in range(1, LINES):
            cost += lines[line]
        total += cost
    return total


@numba.njit(parallel=True)
def _mint_all(seeds: np.ndarray, tapes: np.ndarray) -> None:
    for chunk in numba.prange(-(-len(seeds) // CHUNK)):
        words = np.empty((WEEKS - 1, PER_WEEK, 2), np.uint32)
        for i in range(chunk * CHUNK, min((chunk + 1) * CHUNK, len(seeds))):
            _mint_one(seeds[i], words, tapes[i])


@numba.njit(parallel=True)
def _floor_all(tapes: np.ndarray, prices: tuple, costs: np.ndarray, totals: np.ndarray) -> None:
    for chunk in numba.prange(-(-len(tapes) // CHUNK)):
        ships, due = np.empty(WEEKS, np.int32), np.empty(WEEKS, np.int32)
        for i in range(chunk * CHUNK, min((chunk + 1) * CHUNK, len(tapes))):
            totals[i] = _floor_one(tapes[i], prices, ships, due, costs[i])


def room(count: int, dtype: type = np.float32) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Arrays to write ``count`` episodes into: tapes, costs and totals."""
    tapes = np.empty((count, len(COLUMNS), WEEKS), np.int32)
    return tapes, np.empty((count, WEEKS - 1, LINES), dtype), np.empty(count, dtype)


def mint(seeds: np.ndarray, tapes: np.ndarray) -> None:
    """Writes the tapes [n, columns, weeks] that seeds (uint32 [n]) name in the paper's world."""
    _mint_all(seeds, tapes)


def play_floor(tapes: np.ndarray, costs: np.ndarray, totals: np.ndarray) -> None:
    """Writes what the floor costs on tapes that ``mint`` made: costs [n, 26, 13] and totals [n] in $."""
    numbers = PARAMS.costs
    prices = (numbers.base_rate[SUEZ], numbers.supplier_delta[QUALIFIED], numbers.surcharge, numbers.holding)
    prices += (numbers.in_transit, numbers.stockout, numbers.demurrage, numbers.rework, numbers.dual_source, 0.0)
    _floor_all(tapes, tuple(costs.dtype.type(price) for price in prices), costs, totals)
