"""The paper's oracle as a policy: filter, sample futures, score the menu, take the cheapest (docs/rules.md 3)."""

import dataclasses

import jax
import jax.numpy as jnp
from flax import struct

from stocktake_jax.actions import Action
from stocktake_jax.env import Observation
from stocktake_jax.oracle.filters import Beliefs, prior, update
from stocktake_jax.oracle.futures import DRAW_ORDER, Futures, describe, sample_states
from stocktake_jax.oracle.menu import Candidates, menu, to_action
from stocktake_jax.oracle.surrogate import Books, Pipeline, Z, books, pipeline, rollout_costs
from stocktake_jax.params import WorldParams
from stocktake_jax.randomness import Array

FUTURES = 200
"""Joint futures that a decision is scored on; the paper's runs used 191 to 210."""


class Decision(struct.PyTreeNode):
    """One decision of the oracle, explained.

    Attributes:
        beliefs: what it believed.
        candidates: the menu, ``[192]`` with a mask.
        mean_cost: float ``[192]``, mean cost to the horizon over the futures, $; infinite off the menu.
        standard_error: float ``[192]``, of that mean.
        choice: int32, index of the candidate taken.
        action: the ordinary action that carries it out.
    """

    beliefs: Beliefs
    candidates: Candidates
    mean_cost: Array
    standard_error: Array
    choice: Array
    action: Action


def prepare(params: WorldParams, known: Books, beliefs: Beliefs, uniforms: Array) -> tuple[Futures, Pipeline]:
    """Futures drawn from uniforms ``[6, 1 + weeks, k]``, and what the ships afloat bring on each of them."""
    states = sample_states(params, beliefs, uniforms, known.weeks_left)
    futures = describe(params, states, known.weeks_left, Z)
    return futures, pipeline(params, known, futures)


@dataclasses.dataclass(frozen=True)
class PaperOracle:
    """Exact belief, heuristic control: the paper's fair reference under the policy protocol.

    Attributes:
        futures: joint futures for each decision.
    """

    futures: int = FUTURES

    def __post_init__(self) -> None:
        if isinstance(self.futures, bool) or not isinstance(self.futures, int) or self.futures < 1:
            raise ValueError(f"futures is {self.futures!r}; a rollout needs a whole number of them, at least 1.")

    def init(self, params: WorldParams) -> Beliefs:
        """The belief before the first report."""
        return prior(params)

    def explain(self, params: WorldParams, beliefs: Beliefs, observation: Observation, key: Array) -> Decision:
        """The decision of one week with all that it rests on; arguments as for ``act``."""
        params = params.arrays()
        beliefs = update(params, beliefs, observation)
        known = books(observation)
        shape = (len(DRAW_ORDER), 1 + params.horizon, self.futures)
        futures, afloat = prepare(params, known, beliefs, jax.random.uniform(key, shape, params.costs.holding.dtype))
        candidates = menu(params, beliefs, observation)
        costs = rollout_costs(params, known, afloat, candidates, futures)
        mean = jnp.where(candidates.live, costs.mean(axis=1), jnp.inf)
        choice = jnp.argmin(mean).astype(jnp.int32)
        chosen = jax.tree.map(lambda column: column[choice], candidates)
        deviation = costs.std(axis=1, ddof=1) if self.futures > 1 else jnp.full_like(mean, jnp.nan)
        return Decision(
            beliefs=beliefs,
            candidates=candidates,
            mean_cost=mean,
            standard_error=deviation / self.futures**0.5,
            choice=choice,
            action=to_action(chosen),
        )

    def act(self, params: WorldParams, carry: Beliefs, observation: Observation, key: Array) -> tuple[Action, Beliefs]:
        """The cheapest candidate on the futures drawn, and the beliefs after this week's report."""
        decision = self.explain(params, carry, observation, key)
        return decision.action, decision.beliefs


def policy(kind: str = "paper", futures: int | None = None) -> PaperOracle:
    """The oracle of a kind, a policy that can be swept and seated.

    Args:
        kind: ``paper``, the only one so far.
        futures: joint futures for each decision; the kind's own number if None.

    Raises:
        ValueError: there is no such kind, or ``futures`` is no whole number of at least 1.
    """
    if kind != "paper":
        raise ValueError(f"kind is {kind!r}; the oracle there is so far is 'paper'.")
    return PaperOracle() if futures is None else PaperOracle(futures)
