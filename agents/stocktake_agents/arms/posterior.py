"""The posterior arm: each report carries what the exact filter believes, so that nothing is left to infer."""

import functools
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

import stocktake_jax as st
from stocktake_agents.arms.arm import Lens
from stocktake_jax.factors import MODULES
from stocktake_jax.oracle import filters

DECIMALS = 4


@functools.cache
def _prior() -> Any:
    return jax.jit(lambda params: filters.prior(params, "exact"))


@functools.cache
def _update() -> Any:
    return jax.jit(filters.update)


class PosteriorLens(Lens):
    """Adds the exact posterior; reads what the agent reads, and nothing else."""

    def __init__(self) -> None:
        self._params = st.WorldParams()
        with jax.enable_x64(True):
            self._memory = _prior()(self._params.in_force())

    def report(self, report: Mapping[str, Any], desk: st.Episode) -> dict[str, Any]:
        """See ``Lens``."""
        with jax.enable_x64(True):
            self._memory = _update()(self._params.in_force(), self._memory, desk.observation)
            beliefs = jax.device_get(self._memory.beliefs.as_dict())
        return {**report, "posterior": {name: marginals(name, belief) for name, belief in beliefs.items()}}


def marginals(factor: str, belief: np.ndarray) -> dict[str, float]:
    """Probabilities of a factor's regimes, ages summed over, and of stress, rounded to four decimals.

    Args:
        factor: its name.
        belief: float ``[states]``, in canonical order.
    """
    module = MODULES[factor]
    regimes: dict[str, float] = {}
    for regime, mass in zip(module.LAYOUT.regimes, belief, strict=True):
        regimes[regime] = regimes.get(regime, 0.0) + float(mass)
    stress = float(belief[np.asarray(module.STRESS)].sum())
    return {name: round(mass, DECIMALS) for name, mass in (regimes | {"stress": stress}).items()}
