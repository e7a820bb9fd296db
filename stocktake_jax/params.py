"""Every number of the world in one immutable pytree (docs/rules.md 1 and 2).

A factor's own numbers stand in its module under ``factors``, beside the chain they belong to; ``WorldParams`` holds
them all. The horizon is the one size that sets shapes, so it is static; every other number is a leaf that may be
changed, stacked and vmapped over without recompiling anything.
"""

import dataclasses
import functools
import hashlib
import operator
from typing import Self

import jax
import numpy as np
from flax import struct

from stocktake_jax.factors.canal import CanalParams
from stocktake_jax.factors.demand import DemandParams
from stocktake_jax.factors.freight import FreightParams
from stocktake_jax.factors.port import PortParams
from stocktake_jax.factors.quality import QualityParams
from stocktake_jax.factors.supplier import SupplierParams
from stocktake_jax.fields import Params, number, problems
from stocktake_jax.randomness import Array

RULES_VERSION = 1
"""Raised whenever the same numbers and seed would give another episode."""

EVERGREEN = np.int32(2**31 - 1)
"""End week of a contract without end."""


class VoyageParams(Params):
    """How long ships sail, and what holds them up (docs/rules.md 2.1)."""

    lead: Array = number((3, 4), "weeks from dispatch to arrival by Suez and by the Cape", unit="weeks", least=3)
    recovery_delay: Array = number(1, "extra weeks by Suez while the canal recovers", unit="weeks")
    cape_delay: Array = number(1, "extra weeks by the Cape when it is congested or Suez shut for long", unit="weeks")
    release: Array = number(1, "weeks from release at Suez to arrival", unit="weeks", least=1)
    diversion: Array = number(3, "weeks from diversion at Suez to arrival", unit="weeks", least=1)


class CostParams(Params):
    """What things cost (docs/rules.md 2 and 2.1)."""

    base_rate: Array = number((4.0, 6.0), "freight at multiplier 1 by Suez and by the Cape", unit="$/unit")
    supplier_delta: Array = number(
        (1.00, -1.50, 0.30), "added to freight for qualified, spot and backup", unit="$/unit", least=-np.inf
    )
    surcharge: Array = number(2.0, "diversion around the Cape", unit="$/unit")
    holding: Array = number(1.0, "stock after sales", unit="$/unit/week")
    in_transit: Array = number(1.0, "units afloat after arrivals", unit="$/unit/week")
    stockout: Array = number(20.0, "unmet demand", unit="$/unit")
    couple: Array = number(60.0, "units a supplier falls short by while the canal is tense", unit="$/unit")
    demurrage: Array = number(2.0, "units held at a blocked port", unit="$/unit/week")
    rework: Array = number(15.0, "defective units landed", unit="$/unit")
    briefing: Array = number(30.0, "a canal briefing", unit="$")
    audit: Array = number(25.0, "a supplier audit", unit="$")
    air: Array = number(15.0, "air freight", unit="$/unit")
    inspect: Array = number(40.0, "an inspection", unit="$")
    dual_source: Array = number(4.0, "live contracts with two or more suppliers", unit="$/week")


class DeskParams(Params):
    """Limits, terms and what a week starts from (docs/rules.md 2)."""

    initial_stock: Array = number(80, "stock in week 0", unit="units", most=10_000)
    most_order: Array = number(100, "largest order", unit="units", most=1000)
    most_air: Array = number(20, "units that one week's air freight can carry", unit="units", most=1000)
    inspection_factor: Array = number(0.3, "share of defects that an inspection lets through", most=1.0)
    term_weeks: Array = number(
        (8, 4, 12, 8, 8), "length of a spot or backup contract by terms", unit="weeks", least=1, most=1000
    )
    unit_price: Array = number(4.0, "displayed price without terms", unit="$/unit")
    price_factor: Array = number((1.0, 0.97, 1.06, 1.03, 0.95), "displayed price by terms, as a share")
    otif_floor: Array = number((85, 80, 85, 92, 70), "displayed on-time-in-full floor by terms", unit="%", most=100)
    listed_otif: Array = number((99, 95), "shown for qualified and backup", unit="%", most=100)
    listed_lead: Array = number((14, 16), "lead time shown for qualified and backup", unit="days")
    onboard_lead: Array = number((0, 0, 1), "shown for qualified, spot and backup", unit="weeks")
    break_fee: Array = number((10.0, 5.0, 20.0, 10.0, 10.0), "displayed break fee by terms", unit="$")


class WorldParams(Params):
    """The world's numbers; the defaults are the paper's.

    ``replace`` turns what it is given into the field's type; ``validate`` refuses what cannot be.
    """

    canal: CanalParams = struct.field(default_factory=CanalParams)
    demand: DemandParams = struct.field(default_factory=DemandParams)
    freight: FreightParams = struct.field(default_factory=FreightParams)
    port: PortParams = struct.field(default_factory=PortParams)
    quality: QualityParams = struct.field(default_factory=QualityParams)
    supplier: SupplierParams = struct.field(default_factory=SupplierParams)
    voyage: VoyageParams = struct.field(default_factory=VoyageParams)
    costs: CostParams = struct.field(default_factory=CostParams)
    desk: DeskParams = struct.field(default_factory=DeskParams)
    horizon: int = struct.field(default=26, pytree_node=False)

    @property
    def slots(self) -> int:
        """Length of the books' arrays: weeks 0..horizon, rounded up to eight, the lanes of a vector register."""
        return -(-(self.horizon + 1) // 8) * 8

    def validate(self) -> Self:
        """The same parameters, checked on the host.

        Raises:
            ValueError: one sentence for each number that cannot be.
        """
        found = []
        if not isinstance(self.horizon, int) or isinstance(self.horizon, bool) or self.horizon < 1:
            found.append(f"WorldParams.horizon is {self.horizon!r}; it must be a whole number of weeks, at least 1.")
        found += problems(self, "WorldParams")
        off = np.abs(np.asarray(self.quality.aql, np.float64).sum(axis=-1) - 1.0) > 1e-6
        if np.any(off):
            sums = np.asarray(self.quality.aql).sum(axis=-1).tolist()
            found.append(f"WorldParams.quality.aql has rows that sum to {sums}; each must sum to 1.")
        if found:
            raise ValueError(" ".join(found))
        return self


@functools.cache
def default_params() -> WorldParams:
    """The paper's world, made once."""
    return WorldParams()


@functools.cache
def _default_in_force(precision: str) -> WorldParams:
    return default_params().in_force()


def or_default(params: WorldParams | None) -> WorldParams:
    """``params``, or the paper's world if None, ready for a compiled function in the precision in force."""
    if params is None:
        return _default_in_force(jax.dtypes.canonicalize_dtype(np.float64).name)
    return params.in_force()


def world_hash(params: WorldParams | None = None) -> str:
    """Twelve hexadecimal digits that name a world: its rules' version, every number and every chain's layout."""
    params = default_params() if params is None else params
    digest = hashlib.sha256(f"rules {RULES_VERSION} horizon {params.horizon}".encode())
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        leaf = np.asarray(leaf)
        kind = "<f8" if leaf.dtype.kind == "f" else "<i8"
        digest.update(f"{jax.tree_util.keystr(path)}{leaf.shape}".encode() + leaf.astype(kind).tobytes())
    for field in dataclasses.fields(params):
        chain = getattr(getattr(params, field.name), "chain", None)
        if chain is not None:
            digest.update(repr((chain.layout.labels, chain.layout.successors)).encode())
    return digest.hexdigest()[:12]


def whole(value: int, name: str, least: int, most: int) -> int:
    """``value`` as an int, if it is a whole number within bounds.

    Raises:
        ValueError: it is not; the sentence says what would be right.
    """
    try:
        checked = None if isinstance(value, bool | np.bool_) else operator.index(value)
    except TypeError:
        checked = None
    if checked is None or not least <= checked <= most:
        raise ValueError(f"{name} is {value!r}; it must be a whole number from {least} to {most}.")
    return checked
