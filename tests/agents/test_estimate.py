"""A dry run bounds what a real one takes."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import stocktake_jax as st
from stocktake_agents import TOOLS, Outcome, load_rows, parse_seeds
from stocktake_agents.arms import Arm, Lens
from stocktake_agents.errors import UsageError
from stocktake_agents.estimate import estimate
from stocktake_agents.prices import Price, load_prices
from stocktake_agents.usage import Usage
from stocktake_agents.wires import api_agent
from tests.agents.loopback import Loopback

PLAIN = Arm("plain", "These are the rules. " * 400, TOOLS, lambda tape: Lens(), {})
PRICE = Price(input=3.0, output=15.0, cache_read=0.3, cache_write_5m=3.75, cache_write_1h=6.0, as_of="2026-11-30")
PlayPlan = Callable[..., Outcome]


def test_a_dry_run_bounds_what_a_run_takes(
    play_plan: PlayPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary-0123456789abcdef")
    with Loopback() as server:
        agent = api_agent("openai/fake", base_url=server.url("openai"), prices={"openai/fake": PRICE})
        expected = estimate(PLAIN, st.published_tape(1), 2, 2, agent.service)
        assert server.requests == []
        outcome = play_plan(agent, "25,112", arm=PLAIN)
    rows = load_rows(tmp_path / "out", parse_seeds("25,112"), agent.service)
    calls = sum(row.counts["turns"] for row in rows)
    usage = sum((row.usage for row in rows), Usage())
    assert expected.calls[0] <= calls <= expected.calls[1]
    assert expected.prompt_tokens[0] <= usage.prompt <= expected.prompt_tokens[1]
    assert usage.output <= expected.output_tokens[1]
    assert expected.usd is not None
    assert outcome.spent is not None
    assert outcome.spent <= expected.usd[1]
    assert 0 < expected.usd[0] < expected.usd[1]


def test_the_range_grows_with_the_plan_and_knows_what_is_free() -> None:
    tape = st.published_tape(1)
    one = estimate(PLAIN, tape, 1, 1, None)
    many = estimate(PLAIN, tape, 50, 1, None)
    assert many.calls == (50 * one.calls[0], 50 * one.calls[1])
    assert many.hours[0] == pytest.approx(50 * one.hours[0])
    assert estimate(PLAIN, tape, 50, 50, None).hours == pytest.approx(one.hours)
    assert one.usd is None
    longer = estimate(replace(PLAIN, system=PLAIN.system * 2), tape, 1, 1, None)
    assert longer.prompt_tokens[0] == pytest.approx(one.prompt_tokens[0] + 26 * len(PLAIN.system) / 4, rel=0.01)


def test_prices_are_read_and_bad_ones_are_told(tmp_path: Path) -> None:
    path = tmp_path / "prices.json"
    path.write_text('{"a/b": {"input": 1, "output": 2, "cache_read": 0.1, "as_of": "2026-11-30"}}', encoding="utf-8")
    [price] = load_prices(path).values()
    assert (price.input, price.cache_read, price.cache_write_1h, price.as_of) == (1.0, 0.1, 1.0, "2026-11-30")
    bad = {
        "[": "cannot be read", "[]": "holds no object",
        '{"a": 3}': "must have input", '{"a": {"input": 1}}': "must have",
        '{"a": {"input": -1, "output": 1, "as_of": "x"}}': "input of a in .* is -1",
        '{"a": {"input": true, "output": 1, "as_of": "x"}}': "input of a in .* is True",
        '{"a": {"input": NaN, "output": 1, "as_of": "x"}}': "input of a in .* is nan",
        '{"a": {"input": 1, "output": 1, "as_of": "x", "tax": 1}}': "must have",
    }  # fmt: skip
    for text, message in bad.items():
        path.write_text(text, encoding="utf-8")
        with pytest.raises(UsageError, match=message):
            load_prices(path)
    with pytest.raises(UsageError, match="cannot be read"):
        load_prices(tmp_path / "none.json")
