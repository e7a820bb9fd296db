"""Measures what each piece of evidence is worth to the exact filter: how much worse it knows the true state without."""

import functools
import json

import click
import jax
import jax.numpy as jnp
import numpy as np

import stocktake_jax as st
from stocktake_jax.env import observe_row
from stocktake_jax.logistics import initial_state, transition
from stocktake_jax.oracle.filters import EVIDENCE, prior, update

EPILOG = """
\b
Example:
  python scripts/filter_evidence.py --tapes 8192
"""
# What is weighed given other evidence goes with it.
GIVEN = {"transits": ("cape_ships",), "freight_index": ("freight_bill", "freight_lock")}
CHUNK = 1024


@functools.partial(jax.jit, static_argnames=("kind", "ignored"))
def log_scores(seeds, kind: str, ignored: tuple[str, ...] = ()):
    """Mean log probability of the true state, float ``[tapes, 6]``, over the weeks 1..25 of random legal episodes."""
    policy, params = st.policies.random_legal(), st.WorldParams().arrays()

    def one(seed):
        tape, key = st.mint(seed), jax.random.key(seed)

        def week(loop, row):
            state, memory, now = loop
            observation = observe_row(params, state, now)
            memory = update(params, memory, observation)
            action, _ = policy.act(params, (), observation, jax.random.fold_in(key, state.week))
            state, _ = transition(params, state, action, now, row)
            beliefs = memory.beliefs.as_dict()
            true = jnp.stack([belief[getattr(now, name)] for name, belief in beliefs.items()])
            return (state, memory, row), jnp.log(jnp.maximum(true, 1e-30))

        memory = prior(params, kind, ignored) if kind == "exact" else prior(params)
        loop = (initial_state(params), memory, jax.tree.map(lambda column: column[0], tape.rows))
        _, scores = jax.lax.scan(week, loop, jax.tree.map(lambda column: column[1:], tape.rows))
        return scores[1:].mean(axis=0)

    return jax.vmap(one)(seeds)


def measure(tapes: int, kind: str, ignored: tuple[str, ...] = ()) -> np.ndarray:
    """``log_scores`` of the tapes 0, 1, ..., float64 ``[tapes, 6]``."""
    chunks = [np.arange(first, min(first + CHUNK, tapes), dtype=np.uint32) for first in range(0, tapes, CHUNK)]
    return np.concatenate([np.asarray(log_scores(seeds, kind, ignored), np.float64) for seeds in chunks])


@click.command(
    help=__doc__, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"], "show_default": True}
)
@click.option("--tapes", type=click.IntRange(2), default=8192, help="Minted tapes to play, with random legal actions.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON and nothing else on stdout.")
@click.option("--quiet", is_flag=True, help="No progress on stderr.")
def main(tapes: int, as_json: bool, quiet: bool) -> None:
    # The factors are independent: one run leaves out the n-th piece of each.
    rounds = range(max(map(len, EVIDENCE.values())))
    full = measure(tapes, "exact")
    rows = []
    with click.progressbar(rounds, label="Leaving out", file=click.get_text_stream("stderr"), hidden=quiet) as bar:
        for n in bar:
            left_out = {factor: names[n] for factor, names in EVIDENCE.items() if n < len(names)}
            ignored = [name for first in left_out.values() for name in (first, *GIVEN.get(first, ()))]
            losses = full - measure(tapes, "exact", tuple(ignored))
            rows += [_row(factor, "all but " + name, losses, tapes) for factor, name in left_out.items()]
    losses = full - measure(tapes, "published")
    rows += [_row(factor, "published filter", losses, tapes) for factor in st.FACTORS]
    rows += [_row(factor, "all", -full, tapes) for factor in st.FACTORS]
    rows.sort(key=lambda row: st.FACTORS.index(row["factor"]))
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    click.echo("| factor | read | log loss, nats a week | standard error |\n|---|---|---|---|")
    for row in rows:
        sign = "" if row["read"] == "all" else "+"
        click.echo(
            f"| {row['factor']} | {row['read']} | {round(row['loss'], 4) + 0.0:{sign}.4f} | {row['error']:.4f} |"
        )


def _row(factor: str, read: str, losses: np.ndarray, tapes: int) -> dict:
    column = losses[:, st.FACTORS.index(factor)]
    return {"factor": factor, "read": read, "loss": column.mean(), "error": column.std() / tapes**0.5}


if __name__ == "__main__":
    main()
