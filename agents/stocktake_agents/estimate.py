"""What a run will take, before it is paid for: calls, tokens, dollars and time, as ranges with their grounds."""

import json
import random
from dataclasses import dataclass

import stocktake_jax as st
from stocktake_agents.arms.arm import Arm
from stocktake_agents.conversation import Conversation, canonical
from stocktake_agents.provider import Service
from stocktake_agents.scripted import as_turn
from stocktake_agents.simple import floor
from stocktake_agents.tools import Result
from stocktake_agents.usage import Usage

# What differs between models: how they cut text, how much they say and think, and how often they call.
CHARACTERS_A_TOKEN = (4.0, 2.5)
CALLS_A_WEEK = (1.0, 2.0)
OUTPUT_TOKENS_A_CALL = (150, 2_000)
SECONDS_A_CALL = (3.0, 40.0)


@dataclass(frozen=True)
class Estimate:
    """Low and high ends for a whole run.

    Attributes:
        episodes: planned.
        calls: requests.
        prompt_tokens, output_tokens: of all of them.
        largest_prompt: tokens of the last request of an episode; the model's context must hold it.
        usd: dollars, the low end with every repeated prompt read from a cache; None where the price is unknown.
        hours: at the planned concurrency.
    """

    episodes: int
    calls: tuple[int, int]
    prompt_tokens: tuple[int, int]
    output_tokens: tuple[int, int]
    largest_prompt: tuple[int, int]
    usd: tuple[float, float] | None
    hours: tuple[float, float]


def estimate(arm: Arm, tape: st.Tape, episodes: int, concurrency: int, service: Service | None) -> Estimate:
    """Plays the floor policy once through ``arm`` and scales what an agent would have read.

    Args:
        arm: the arm to be run.
        tape: any tape; reports are of much the same length.
        episodes: how many are planned.
        concurrency: how many at a time.
        service: says what tokens cost; None for an agent in this process.
    """
    sizes = _request_sizes(arm, tape)
    ends = [_episode(sizes, end) for end in (0, 1)]
    price = None if service is None else service.price
    usd = None
    if service is not None and service.free:
        usd = (0.0, 0.0)
    elif price is not None:
        low, high = (price.cost(usage) * episodes for _, usage in ends)
        usd = (low, high)
    calls = [round(count * episodes) for count, _ in ends]
    waves = -(-episodes // concurrency)
    low_hours, high_hours = (count * SECONDS_A_CALL[end] * waves / 3600 for end, (count, _) in enumerate(ends))
    return Estimate(
        episodes=episodes,
        calls=(calls[0], calls[1]),
        prompt_tokens=(ends[0][1].prompt * episodes, ends[1][1].prompt * episodes),
        output_tokens=(ends[0][1].output * episodes, ends[1][1].output * episodes),
        largest_prompt=(_tokens(sizes[-1], 0), _tokens(sizes[-1], 1) + OUTPUT_TOKENS_A_CALL[1] * len(sizes)),
        usd=usd,
        hours=(low_hours, high_hours),
    )


def _request_sizes(arm: Arm, tape: st.Tape) -> list[int]:
    """Characters of each week's request; the agent's own words are no more than a short order."""
    episode, lens = st.Episode(tape), arm.open(tape)
    talk = Conversation(arm.system, arm.tools, lens.report(episode.report(), episode))
    sizes = []
    while not episode.done:
        sizes.append(len(canonical(arm.tools)) + sum(len(canonical(message)) for message in talk.messages))
        turn = as_turn(floor(episode.report(), random.Random(0)), len(talk.messages))
        [order] = turn.calls
        episode.place_order(**json.loads(order.arguments))
        report = json.dumps(lens.report(episode.report(), episode))
        talk.add_answer(turn.to_json(), [Result(order.id, order.name, report, False, False).to_json()], None)
    return sizes


def _tokens(characters: int, end: int) -> int:
    return round(characters / CHARACTERS_A_TOKEN[end])


def _episode(sizes: list[int], end: int) -> tuple[float, Usage]:
    """Calls and tokens of one episode at one end of the range."""
    calls = CALLS_A_WEEK[end] * len(sizes)
    output = round(OUTPUT_TOKENS_A_CALL[end] * calls)
    if end == 1:  # nothing cached, every word said so far read again with each call
        said = sum(OUTPUT_TOKENS_A_CALL[1] * week for week in range(len(sizes)))
        return calls, Usage(input=round(sum(_tokens(s, 1) for s in sizes) * CALLS_A_WEEK[1]) + said, output=output)
    fresh = _tokens(sizes[-1], 0)
    return calls, Usage(cache_write_5m=fresh, cache_read=sum(_tokens(s, 0) for s in sizes) - fresh, output=output)
