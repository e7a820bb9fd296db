"""Exact forward filters, one for each factor (docs/rules.md 3, Filters).

A belief is a distribution over a chain's states in canonical order. A week's update predicts with the transition
table and corrects with the likelihood of the week's symptoms, scaled by the largest likelihood so that nothing
underflows. Evidence that no believed state can produce leaves the prediction as it is and raises a flag.

The factors never react to each other, and no report ties the state of one to that of another beyond what it shows
outright, so the joint posterior is the product of the six.
"""

from collections.abc import Collection
from types import ModuleType
from typing import Any, Literal, TypeVar, final, overload

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from stocktake_jax.chain import Chain
from stocktake_jax.devices import computed_once
from stocktake_jax.env import Observation, observe_row
from stocktake_jax.factors import FACTORS, MODULES, canal, supplier
from stocktake_jax.logistics import initial_state
from stocktake_jax.oracle.evidence import clues
from stocktake_jax.params import WorldParams, or_default
from stocktake_jax.randomness import Array
from stocktake_jax.symptoms import Clues
from stocktake_jax.tape import Row, Tape, start_row

Kind = Literal["published", "exact"]
KINDS: tuple[Kind, ...] = ("published", "exact")

EVIDENCE = {
    "canal": ("transits", "suez_ships", "cape_ships", "briefing"),
    "demand": ("pos_units", "demand_forecast"),
    "freight": ("freight_index", "freight_outlook", "freight_bill", "freight_lock"),
    "port": ("berth_wait", "wait_outlook", "arrivals"),
    "quality": ("aql_result", "defects"),
    "supplier": ("band", "scorecard", "lead_slip", "realized_fill", "audit"),
}
"""All that the exact filter reads, by factor. What is weighed *given* other evidence stands behind it."""


@final
class Beliefs(struct.PyTreeNode):
    """What a filter believes of each factor, given the reports so far; all that the published filter remembers.

    Attributes:
        canal, demand, freight, port, quality, supplier: float ``[states]`` each, summing to 1.
        impossible: bool ``[6]``, by factor, whether the last report was one that no believed state can produce.
    """

    canal: Array
    demand: Array
    freight: Array
    port: Array
    quality: Array
    supplier: Array
    impossible: Array

    def as_dict(self) -> dict[str, Array]:
        """The beliefs by factor."""
        return {name: getattr(self, name) for name in FACTORS}

    @property
    def beliefs(self) -> "Beliefs":
        """These beliefs, so that the memory of either filter is read in the same way."""
        return self


@final
class Memory(struct.PyTreeNode):
    """What the exact filter remembers.

    Attributes:
        beliefs: given the reports so far.
        last: the last report read, against which the next one is held.
        multiplier_known: bool, whether it told its week's exact freight multiplier.
        ignored: names out of ``EVIDENCE`` that are not read; empty but for studies of what each is worth.
    """

    beliefs: Beliefs
    last: Observation
    multiplier_known: Array
    ignored: frozenset[str] = struct.field(pytree_node=False, default=frozenset())


AnyMemory = TypeVar("AnyMemory", Beliefs, Memory)


@overload
def prior(params: WorldParams, kind: Literal["published"] = "published") -> Beliefs: ...
@overload
def prior(params: WorldParams, kind: Literal["exact"], ignored: Collection[str] = ()) -> Memory: ...
def prior(params: WorldParams, kind: Kind = "published", ignored: Collection[str] = ()) -> Beliefs | Memory:
    """A filter's memory before the report of week 0.

    The published filter starts from uniform beliefs. The exact one knows the states and the report that every episode
    starts from.

    Args:
        params: the world as the filter knows it.
        kind: which filter.
        ignored: evidence that the exact filter is to leave out, names out of ``EVIDENCE``.

    Raises:
        ValueError: no such kind or no such evidence.
    """
    params = params.arrays()
    dtype = params.costs.holding.dtype
    sizes = {name: len(getattr(params, name).chain.layout.labels) for name in FACTORS}
    none = jnp.zeros(len(FACTORS), bool)
    if kind == "published":
        return Beliefs(**{name: jnp.full(size, 1 / size, dtype) for name, size in sizes.items()}, impossible=none)
    if kind != "exact":
        raise ValueError(f"kind is {kind!r}; the filters there are {' and '.join(map(repr, KINDS))}.")
    names = [name for names in EVIDENCE.values() for name in names]
    if unknown := set(ignored) - set(names):
        raise ValueError(f"No evidence is called {', '.join(sorted(unknown))}; there is {', '.join(names)}.")
    start = {name: jnp.zeros(size, dtype).at[MODULES[name].START].set(1) for name, size in sizes.items()}
    first = observe_row(params, initial_state(params), jax.tree.map(jnp.asarray, start_row()))
    return Memory(Beliefs(**start, impossible=none), first, jnp.array(True), frozenset(ignored))


def update(params: WorldParams, memory: AnyMemory, observation: Observation) -> AnyMemory:
    """A filter's memory once it has read a report.

    Args:
        params: the world as the filter knows it.
        memory: of the week before, or the prior for week 0's report. The published filter predicts and corrects for
            that report as well; to the exact one it says nothing new, nor does any report that it has read before.
        observation: the report, of one episode.
    """
    params = params.arrays()
    if isinstance(memory, Beliefs):
        return _update_published(params, memory, observation)
    return _update_exact(params, memory, observation)


def _update_published(params: WorldParams, beliefs: Beliefs, observation: Observation) -> Beliefs:
    posteriors, flags = {}, []
    for name, module in MODULES.items():
        numbers = getattr(params, name)
        log_likelihood = module.published_log_likelihood(numbers, observation)
        posteriors[name], impossible = filter_step(numbers.chain, getattr(beliefs, name), log_likelihood)
        flags.append(impossible)
    return Beliefs(**posteriors, impossible=jnp.stack(flags))


def _update_exact(params: WorldParams, memory: Memory, observation: Observation) -> Memory:
    told = clues(params, memory.last, observation, memory.multiplier_known)
    evidence = {
        name: tuple(_sum(terms, memory.ignored) for terms in _terms(module, getattr(params, name), observation, told))
        for name, module in MODULES.items()
    }
    # Bayes' rule reads a likelihood three times, and making one costs more than all the rest.
    evidence = computed_once(evidence, params.desk.most_order >= 0)
    posteriors, flags = {}, []
    for name, (late, now) in evidence.items():
        numbers, belief = getattr(params, name), getattr(memory.beliefs, name)
        # What was learnt late of the week before comes first: it bears on what is predicted from there.
        contradicted = jnp.array(False)
        if late is not None:
            belief, contradicted = correct(belief, late)
        if now is None:
            posterior, impossible = numbers.chain.predict(belief), contradicted
        else:
            posterior, impossible = filter_step(numbers.chain, belief, now)
        posteriors[name] = posterior
        flags.append(impossible | contradicted)
    known = jnp.array("freight_bill" not in memory.ignored) & (told.multiplier >= 0)
    read = memory.replace(
        beliefs=Beliefs(**posteriors, impossible=jnp.stack(flags)), last=observation, multiplier_known=known
    )
    new = observation.week > memory.last.week
    return jax.tree.map(lambda after, before: jnp.where(new, after, before), read, memory)


def _terms(module: ModuleType, numbers: object, observation: Observation, told: Clues) -> tuple[dict, dict]:
    """A factor's log likelihoods by evidence: of the week before, and of this week."""
    late = module.hindsight(numbers, observation, told) if hasattr(module, "hindsight") else {}
    return late, module.log_likelihoods(numbers, observation, told)


def _sum(terms: dict[str, Array], ignored: frozenset[str]) -> Array | None:
    """The log likelihood of all evidence that is not ignored; None if there is none."""
    total = None
    for name, term in terms.items():
        if name not in ignored:
            total = term if total is None else total + term
    return total


def reveal(beliefs: Beliefs, *, briefing: Array | int = -1, audit: Array | int = -1) -> Beliefs:
    """The beliefs once a briefing or an audit is known, in the week of its purchase.

    The desk answers at once, before the order; reading the same in the next report then changes nothing.

    Args:
        beliefs: of the week.
        briefing: index into ``canal.BRIEFINGS``, -1 for none.
        audit: index into ``supplier.BANDS``, -1 for none.
    """
    told: dict[str, tuple[np.ndarray, Array | int]] = {
        "canal": (canal.BRIEFING, briefing),
        "supplier": (supplier.TRUE_BAND, audit),
    }
    for name, (meanings, answer) in told.items():
        answer, belief = jnp.asarray(answer, jnp.int32), getattr(beliefs, name)
        likelihood = jnp.where((meanings == answer) | (answer < 0), jnp.zeros_like(belief), -jnp.inf)
        posterior, impossible = correct(belief, likelihood)
        flags = beliefs.impossible | (impossible & (np.array(FACTORS) == name))
        beliefs = beliefs.replace(**{name: posterior}, impossible=flags)
    return beliefs


def correct(belief: Array, log_likelihood: Array) -> tuple[Array, Array]:
    """Bayes' rule.

    Args:
        belief: float ``[states]``, before the evidence.
        log_likelihood: float ``[states]``, of the evidence; ``-inf`` where a state cannot produce it.

    Returns:
        The posterior ``[states]``, and whether the evidence was impossible, in which case the belief stays.
    """
    support = jnp.where(belief > 0, log_likelihood, -jnp.inf)
    largest = support.max()
    possible = largest > -jnp.inf
    weight = belief * jnp.exp(support - jnp.where(possible, largest, 0))
    posterior = weight / jnp.where(possible, weight.sum(), 1)
    return jnp.where(possible, posterior, belief), ~possible


def filter_step(chain: Chain, belief: Array, log_likelihood: Array) -> tuple[Array, Array]:
    """One week of a forward filter: predict, then correct.

    Args:
        chain: the process.
        belief: float ``[states]``, of the week before.
        log_likelihood: float ``[states]``, of the week's evidence; ``-inf`` where a state cannot produce it.

    Returns:
        The posterior ``[states]``, and whether the evidence was impossible, in which case the posterior is the
        prediction.
    """
    return correct(chain.predict(belief), log_likelihood)


def _filter_rows(tape: Tape, params: WorldParams, kind: Kind) -> dict[str, Array]:
    books = initial_state(params)

    def week(memory: Any, at: tuple[Row, Array]) -> tuple[Any, Beliefs]:
        row, number = at
        memory = update(params, memory, observe_row(params, books.replace(week=number), row))
        return memory, memory.beliefs

    weeks = jnp.arange(params.horizon + 1, dtype=jnp.int32)
    return jax.lax.scan(week, prior(params, kind), (tape.rows, weeks))[1].as_dict()


_filter_tape = jax.jit(_filter_rows, static_argnames="kind")


def filter_tape(tape: Tape, kind: Kind = "published", params: WorldParams | None = None) -> dict[str, Array]:
    """Posteriors of every week under the symptoms that need no action, float ``[27, states]`` by factor.

    Args:
        tape: one tape; ``jax.vmap`` for more.
        kind: which filter: ``published`` weighs readings by their density, as the paper's figures do; ``exact`` is
            the true posterior.
        params: the world as the filter knows it; the paper's if None.

    Raises:
        ValueError: no such kind.
    """
    return _filter_tape(tape, or_default(params), kind)
