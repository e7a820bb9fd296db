"""The advice arm: each report carries the oracle's menu with what each action is expected to cost."""

import functools
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

import stocktake_jax as st
from stocktake_agents.arms.arm import Lens
from stocktake_jax.randomness import fold_in

# No other use of randomness shares this stream, so that advice cannot be the world's own dice, nor the oracle's runs'.
STREAM = 0x4144_5600


@functools.cache
def _explain() -> Any:
    return jax.jit(st.oracle.policy().explain)


class AdviceLens(Lens):
    """Adds the menu; believes and plans as the paper's oracle does, on dice of (tape id, week)."""

    def __init__(self, tape_id: int) -> None:
        self._params = st.WorldParams()
        self._key = fold_in(jax.random.key(STREAM), np.uint32(tape_id))
        with jax.enable_x64(True):
            self._beliefs = st.oracle.policy().init(self._params)

    def report(self, report: Mapping[str, Any], desk: st.Episode) -> dict[str, Any]:
        """See ``Lens``."""
        if desk.done:
            return dict(report)
        with jax.enable_x64(True):
            key = fold_in(self._key, np.uint32(desk.week))
            decision = _explain()(self._params.in_force(), self._beliefs, desk.observation, key)
            self._beliefs = decision.beliefs
            candidates, mean, error = jax.device_get((decision.candidates, decision.mean_cost, decision.standard_error))
        # The menu has twins (an order of nothing, once for each supplier): they are one action. It is not sorted by
        # cost, so that whoever takes the best has compared.
        menu: dict[tuple[Any, ...], dict[str, Any]] = {}
        for i in np.flatnonzero(candidates.live):
            action = _action(jax.tree.map(lambda column, i=i: column[i], candidates))
            costs = {"expected_cost": round(float(mean[i]), 1), "standard_error": round(float(error[i]), 1)}
            menu.setdefault(tuple(action.items()), action | costs)
        return {**report, "advice": list(menu.values())}


def _action(candidate: Any) -> dict[str, Any]:
    qty = int(candidate.qty)
    action: dict[str, Any] = {"qty": qty}
    if qty:
        action |= {"route": st.ROUTES[int(candidate.route)], "supplier": st.SUPPLIERS[int(candidate.supplier)]}
        action |= {"sign": bool(candidate.sign)}
    levers = {"lock_weeks": int(candidate.lock_weeks), "air": int(candidate.air), "inspect": bool(candidate.inspect)}
    return action | levers
