"""Exact forward filters, one for each factor (docs/rules.md 3, Filters).

A belief is a distribution over a chain's states in canonical order. A week's update predicts with the transition
table and corrects with the likelihood of the week's symptoms, scaled by the largest likelihood so that nothing
underflows. Evidence that no believed state can produce leaves the prediction as it is and raises a flag.
"""

from typing import Literal

import jax
import jax.numpy as jnp
from flax import struct

from stocktake_jax.chain import Chain
from stocktake_jax.env import Observation, observe_row
from stocktake_jax.factors import FACTORS, MODULES
from stocktake_jax.logistics import initial_state
from stocktake_jax.params import WorldParams, default_params
from stocktake_jax.randomness import Array
from stocktake_jax.tape import Row, Tape

Kind = Literal["published"]


class Beliefs(struct.PyTreeNode):
    """What a filter believes of each factor, given the reports so far.

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


def prior(params: WorldParams, kind: Kind = "published") -> Beliefs:
    """The belief before the report of week 0; the published filter starts from a uniform one."""
    _check_kind(kind)
    dtype = params.arrays().costs.holding.dtype
    sizes = {name: len(getattr(params, name).chain.layout.labels) for name in FACTORS}
    uniform = {name: jnp.full(size, 1 / size, dtype) for name, size in sizes.items()}
    return Beliefs(**uniform, impossible=jnp.zeros(len(FACTORS), bool))


def update(params: WorldParams, beliefs: Beliefs, observation: Observation, kind: Kind = "published") -> Beliefs:
    """The beliefs a week later, having read its report.

    Args:
        params: the world as the filter knows it.
        beliefs: of the week before, or the prior for week 0's report, which the published filter predicts for as well.
        observation: the report, of one episode.
        kind: which filter; ``published`` weighs readings by their density, as the paper's figures do.
    """
    _check_kind(kind)
    params = params.arrays()
    posteriors, flags = {}, []
    for name, module in MODULES.items():
        numbers = getattr(params, name)
        log_likelihood = module.published_log_likelihood(numbers, observation)
        posteriors[name], impossible = filter_step(numbers.chain, getattr(beliefs, name), log_likelihood)
        flags.append(impossible)
    return Beliefs(**posteriors, impossible=jnp.stack(flags))


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
    prediction = chain.predict(belief)
    support = jnp.where(prediction > 0, log_likelihood, -jnp.inf)
    largest = support.max()
    possible = largest > -jnp.inf
    weight = prediction * jnp.exp(support - jnp.where(possible, largest, 0))
    posterior = weight / jnp.where(possible, weight.sum(), 1)
    return jnp.where(possible, posterior, prediction), ~possible


@jax.jit
def _filter_tape(tape: Tape, params: WorldParams) -> dict[str, Array]:
    books = initial_state(params)

    def week(beliefs: Beliefs, row: Row) -> tuple[Beliefs, Beliefs]:
        beliefs = update(params, beliefs, observe_row(params, books, row))
        return beliefs, beliefs

    return jax.lax.scan(week, prior(params), tape.rows)[1].as_dict()


def filter_tape(tape: Tape, kind: Kind = "published", params: WorldParams | None = None) -> dict[str, Array]:
    """Posteriors of every week under the symptoms that need no action, float ``[27, states]`` by factor.

    Args:
        tape: one tape; ``jax.vmap`` for more.
        kind: which filter.
        params: the world as the filter knows it; the paper's if None.
    """
    _check_kind(kind)
    return _filter_tape(tape, default_params() if params is None else params)


def _check_kind(kind: str) -> None:
    if kind != "published":
        raise ValueError(f"kind is {kind!r}; the filter there is so far is 'published'.")
