"""The desk: one episode on the host, every call checked, every refusal a sentence (docs/rules.md 2)."""

import functools
import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from stocktake_jax import env, logistics
from stocktake_jax.actions import CONTRACT_ACTIONS, ROUTES, SENTENCES, SUPPLIERS, TERMS, Action, Refusal
from stocktake_jax.env import Observation
from stocktake_jax.factors import canal, freight, supplier
from stocktake_jax.logistics import State, WeekResult
from stocktake_jax.params import WorldParams, default_params
from stocktake_jax.reporting import breakdown, report
from stocktake_jax.tape import Row, Tape

_MOST_INT32 = 2**31 - 1


class Refused(ValueError):
    """A call that was refused and changed nothing.

    Attributes:
        code: why, a ``Refusal``.
    """

    def __init__(self, code: Refusal, message: str) -> None:
        super().__init__(message)
        self.code = code


# Fetching an array from a device, or sending one, has its price whatever its size. So a week goes to the device as one
# vector and comes back as two; the tape and the parameters stay there.
Packed = tuple[jax.Array, jax.Array]


def _pack(tree: Any) -> Packed:
    """All leaves in two vectors: whole numbers and truth values, and floats."""
    leaves = jax.tree.leaves(tree)
    return (
        jnp.concatenate([jnp.ravel(leaf).astype(jnp.int32) for leaf in leaves if not _is_float(leaf)]),
        jnp.concatenate([jnp.ravel(leaf) for leaf in leaves if _is_float(leaf)]),
    )


class _Unpack:
    """Undoes ``_pack`` on the host, given a tree of shapes and types."""

    def __init__(self, shapes: Any) -> None:
        leaves, self._structure = jax.tree.flatten(shapes)
        ends = {True: 0, False: 0}
        self._parts = []
        for leaf in leaves:
            floating = _is_float(leaf)
            start = ends[floating]
            ends[floating] = start + math.prod(leaf.shape)
            self._parts.append((floating, slice(start, ends[floating]), leaf.shape, leaf.dtype))

    def __call__(self, packed: Packed) -> Any:
        whole, floats = map(np.asarray, packed)
        return jax.tree.unflatten(
            self._structure,
            [
                (floats if floating else whole)[part].reshape(shape).astype(dtype)[()]
                for floating, part, shape, dtype in self._parts
            ],
        )


def _is_float(leaf: Any) -> bool:
    return bool(jnp.issubdtype(leaf.dtype, jnp.floating))


def _first(params: WorldParams, rows: Row) -> tuple[State, Observation]:
    state = logistics.initial_state(params)
    return state, env.observe_row(params, state, _row(rows, 0))


@jax.jit
def _next(
    params: WorldParams, state: State, action: jax.Array, rows: Row, week: jax.Array
) -> tuple[State, tuple[WeekResult, Observation]]:
    row = _row(rows, week + 1)
    following, result = logistics.transition(params, state, Action(*action), _row(rows, week), row)
    return following, (result, env.observe_row(params, following, row))


def _row(rows: Row, week: Any) -> Row:
    return jax.tree.map(lambda column: column[week], rows)


@jax.jit
def _open(params: WorldParams, rows: Row) -> tuple[State, Packed]:
    state, observation = _first(params, rows)
    return state, _pack(observation)


@jax.jit
def _commit(params: WorldParams, state: State, action: jax.Array, rows: Row, week: jax.Array) -> tuple[State, Packed]:
    following, seen = _next(params, state, action, rows, week)
    return following, _pack(seen)


class Episode:
    """An episode at the desk: five levers within a week, and ``place_order``, which commits it.

    Always in float64, whatever the process uses. A refused call raises ``Refused`` and changes nothing: no week
    passes, no contract is touched, no fee is charged, and levers already pulled this week stay pulled.

    Args:
        tape: the hidden world of this episode; nothing of it is shown but through reports and bought reveals.
        params: the world's numbers; the paper's if None.

    Attributes:
        total_cost: $ of all committed weeks, a running sum.
        history: one dict for each committed week: ``week`` (of the decision), ``report`` (that was read), ``calls``
            (accepted ones, each with name, arguments and result), ``costs`` (lines by name) and ``cost``.
    """

    def __init__(self, tape: Tape, params: WorldParams | None = None) -> None:
        self._params = jax.tree.map(_as_float64, default_params() if params is None else params.validate())
        self._tape = jax.tree.map(np.asarray, tape)
        weeks = self._tape.rows.pos_units.shape
        if weeks != (self._params.horizon + 1,):
            raise ValueError(
                f"The tape's columns have shape {list(weeks)}; an episode of this world takes a single tape with "
                f"{self._params.horizon + 1} weeks."
            )
        with jax.enable_x64(True):
            numbers, rows = jax.device_put((self._params, self._tape.rows))
            state, observation = _open(numbers, rows)
            # Compiles the week before it is needed, so that no agent ever waits for a compiler.
            idle = np.zeros(len(fields(Action)), np.int32)
            jax.block_until_ready(_commit(numbers, state, idle, rows, np.int32(0)))
            _, seen = _next.eval_shape(numbers, state, idle, rows, np.int32(0))
            self.observation: Observation = _Unpack(seen[1])(observation)
        self._unpack = _Unpack(seen)
        self._device_params, self._device_rows, self._state = numbers, rows, state
        self.total_cost = 0.0
        self.history: list[dict] = []
        self._levers: dict[str, int] = {}
        self._calls: list[dict] = []
        self._report = report(self.observation)

    @property
    def week(self) -> int:
        """Weeks committed so far."""
        return int(self.observation.week)

    @property
    def done(self) -> bool:
        """Whether the episode is over."""
        return self.week >= self._params.horizon

    def report(self) -> dict:
        """This week's report, as it was at the start of the week (docs/rules.md 2.2). A copy."""
        return report(self.observation)

    def lock_freight(self, weeks: int) -> float:
        """Fixes the freight multiplier at this week's for the next ``weeks`` commits; returns the multiplier.

        Raises:
            Refused: ``weeks`` is not a whole number of at least 1, or the episode is over.
        """
        self._refuse_if_over()
        if not _is_whole(weeks) or not 1 <= weeks <= _MOST_INT32:
            raise self._refused(Refusal.LOCK_WEEKS, weeks)
        rate = int(self._now.freight_multiplier) / freight.STEPS
        return self._pull("lock_freight", {"weeks": int(weeks)}, {"lock_weeks": int(weeks)}, rate)

    def expedite_air(self, qty: int) -> int:
        """Flies in ``qty`` units, or as many as the week's capacity allows; returns how many.

        Raises:
            Refused: ``qty`` is not a whole number of at least 1, or the episode is over.
        """
        self._refuse_if_over()
        if not _is_whole(qty) or qty < 1:
            raise self._refused(Refusal.AIR, qty)
        flown = min(int(qty), int(self._params.desk.most_air))
        return self._pull("expedite_air", {"qty": int(qty)}, {"air": flown}, flown)

    def inspect_batch(self) -> None:
        """Has what lands in the coming week inspected.

        Raises:
            Refused: the episode is over.
        """
        self._refuse_if_over()
        self._pull("inspect_batch", {}, {"inspect": 1}, None)

    def buy_briefing(self) -> str:
        """Reveals the canal's present regime, one of ``canal.BRIEFINGS``.

        Raises:
            Refused: the episode is over.
        """
        self._refuse_if_over()
        revealed = canal.BRIEFINGS[canal.BRIEFING[self._now.canal]]
        return self._pull("buy_briefing", {}, {"briefing": 1}, revealed)

    def buy_audit(self) -> str:
        """Reveals the spot supplier's true band, one of ``supplier.BANDS``.

        Raises:
            Refused: the episode is over.
        """
        self._refuse_if_over()
        revealed = supplier.BANDS[supplier.TRUE_BAND[self._now.supplier]]
        return self._pull("buy_audit", {}, {"audit": 1}, revealed)

    def place_order(
        self,
        rationale: str,
        qty: int,
        route: str | None = None,
        supplier: str | None = None,
        contract: Mapping[str, str | None] | None = None,
    ) -> dict:
        """Commits the week and returns the next report.

        Args:
            rationale: what is believed this week and why this is done; never blank.
            qty: whole units, 0 to 100.
            route: ``suez`` or ``cape``; needed when ``qty`` > 0, ignored at 0.
            supplier: one with a live contract; needed when ``qty`` > 0, ignored at 0.
            contract: ``{"action": sign | switch | renew | lapse, "supplier": ..., "terms": short | long | strict |
                lenient | None}``, resolved before the order.

        Raises:
            Refused: any of it is wrong; the message says what, and what would be right.
        """
        self._refuse_if_over()
        if not isinstance(rationale, str) or not rationale.strip():
            raise self._refused(Refusal.RATIONALE, rationale)
        ordered = self._contract_indices(contract)
        if not _is_whole(qty) or not 0 <= qty <= int(self._params.desk.most_order):
            raise self._refused(Refusal.QTY, qty)
        ordered["qty"] = int(qty)
        if qty > 0:
            ordered["route"] = self._index(route, ROUTES, Refusal.ROUTE)
            ordered["supplier"] = self._index(supplier, SUPPLIERS, Refusal.SUPPLIER)
        asked = ordered | self._levers
        action = np.array([asked.get(field.name, 0) for field in fields(Action)], np.int32)
        with jax.enable_x64(True):
            following, seen = _commit(self._device_params, self._state, action, self._device_rows, np.int32(self.week))
        result, observation = self._unpack(seen)
        if result.refusal:
            raise self._refused(Refusal(int(result.refusal)), supplier)
        arguments = {
            "rationale": rationale,
            "qty": int(qty),
            "route": route,
            "supplier": supplier,
            "contract": None if contract is None else dict(contract),
        }
        self.history.append(
            {
                "week": self.week,
                "report": self._report,
                "calls": [*self._calls, {"name": "place_order", "arguments": arguments, "result": None}],
                "costs": breakdown(result.costs),
                "cost": float(result.cost),
            }
        )
        self.total_cost += float(result.cost)
        self._state, self.observation = following, observation
        self._levers, self._calls, self._report = {}, [], report(observation)
        return self.report()

    @functools.cached_property
    def _rows(self) -> list[Row]:
        return [self._tape.week(week) for week in range(self._params.horizon + 1)]

    @property
    def _now(self) -> Row:
        return self._rows[self.week]

    def _pull(self, name: str, arguments: dict, levers: dict[str, int], outcome: Any) -> Any:
        self._levers |= levers
        self._calls.append({"name": name, "arguments": arguments, "result": outcome})
        return outcome

    def _contract_indices(self, contract: Mapping[str, str | None] | None) -> dict[str, int]:
        if contract is None:
            return {}
        if not isinstance(contract, Mapping) or not set(contract) <= {"action", "supplier", "terms"}:
            raise self._refused(Refusal.CONTRACT, contract)
        action = self._index(contract.get("action"), CONTRACT_ACTIONS, Refusal.CONTRACT_ACTION)
        if action == 0:
            return {}
        terms = contract.get("terms")
        return {
            "contract_action": action,
            "contract_supplier": self._index(contract.get("supplier"), SUPPLIERS, Refusal.CONTRACT_SUPPLIER),
            "contract_terms": 0 if terms is None else self._index(terms, TERMS, Refusal.CONTRACT_TERMS),
        }

    def _index(self, name: Any, names: tuple[str, ...], refusal: Refusal) -> int:
        if not isinstance(name, str) or name not in names:
            raise self._refused(refusal, name)
        return names.index(name)

    def _refuse_if_over(self) -> None:
        if self.done:
            raise self._refused(Refusal.OVER, None)

    def _refused(self, code: Refusal, value: Any) -> Refused:
        live = [name for name, alive in zip(SUPPLIERS, self.observation.live, strict=True) if alive]
        return Refused(
            code,
            SENTENCES[code].format(
                value=_quoted(value),
                horizon=self._params.horizon,
                most_order=int(self._params.desk.most_order),
                most_air=int(self._params.desk.most_air),
                most_int=_MOST_INT32,
                live=" or ".join(live) if live else "nobody",
            ),
        )


def _as_float64(leaf: Any) -> np.ndarray | np.generic:
    leaf = np.asarray(leaf)
    return leaf.astype(np.float64 if leaf.dtype.kind == "f" else np.int32)[()]


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _quoted(value: Any, most: int = 60) -> str:
    text = "missing" if value is None else repr(value)
    return text if len(text) <= most else text[: most - 3] + "..."
