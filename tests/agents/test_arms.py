"""Arms: what an agent is told and shown, and that nothing hidden is among it where it must not be."""

import copy
import json
import re
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import stocktake_jax as st
from stocktake_agents import AGENTS, TOOLS, Agent, Outcome, UsageError, load_rows, parse_seeds
from stocktake_agents.arm_names import ARM_NAMES, arm_of_run, make_arm
from stocktake_agents.arms import Arm, Lens
from stocktake_agents.arms.belief_track import with_beliefs, with_statements
from stocktake_agents.arms.posterior import marginals
from stocktake_agents.arms.prompts import FORBIDDEN_SLOTS, OPEN_SLOTS, fill, shipped, template_slots
from stocktake_agents.arms.renaming import Renaming
from stocktake_agents.conversation import Conversation, Message
from stocktake_agents.log import read_events
from stocktake_agents.manifest import read_manifest
from stocktake_agents.policy import policy_agent
from stocktake_agents.provider import ToolCall, Turn
from stocktake_agents.schema import ArgumentError, check_arguments
from stocktake_agents.scripted import ScriptedProvider, as_turn
from stocktake_agents.simple import floor, planner
from stocktake_agents.tools import Desk
from stocktake_agents.verify import verify_run
from stocktake_jax.factors import MODULES, canal

PlayPlan = Callable[..., Outcome]
WORDS = Path(__file__).parents[2] / "agents" / "stocktake_agents"
TEMPLATES = sorted([*WORDS.glob("arms/words/*.md"), *WORDS.glob("privileged/*.md")])
PARAMS = st.WorldParams()


def leaves() -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """Every number of the world: its group, its field and its place in the field."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(PARAMS):
        names = [key.name for key in path]
        for place in np.ndindex(np.shape(leaf)):
            yield names[0], ".".join(names[1:]), place
    yield "horizon", "", ()


def changed(group: str, field: str, place: tuple[int, ...]) -> st.WorldParams:
    """The world with one number changed."""
    if group == "horizon":
        return PARAMS.replace(horizon=PARAMS.horizon + 1)
    part = getattr(PARAMS, group)
    value = np.array(getattr(part, field), np.float64)
    share = field in ("inspection_factor", "price_factor")
    value[place] = value[place] / 2 if share else value[place] * 1.5 + 1
    return PARAMS.replace(**{group: part.replace(**{field: value})})


def all_parts() -> str:
    return "".join(path.read_text(encoding="utf-8") for path in TEMPLATES)


def test_every_number_of_the_world_may_be_told_or_may_not() -> None:
    groups = {group for group, _, _ in leaves()}
    assert groups == set(OPEN_SLOTS) | set(FORBIDDEN_SLOTS)
    assert not set(OPEN_SLOTS) & set(FORBIDDEN_SLOTS)


def test_the_rules_tell_every_number_that_may_be_told_and_none_that_may_not() -> None:
    rules = shipped("faithful.md")
    told = fill(rules)
    for group, field, place in leaves():
        if group in OPEN_SLOTS:
            assert fill(rules, changed(group, field, place)) != told, f"{group}.{field}{place} is not told"
    for group, field, place in leaves():
        if group in FORBIDDEN_SLOTS and "." not in field and field != "chain":
            assert fill(all_parts(), changed(group, field, place)) == fill(all_parts())


def test_every_digit_of_a_template_comes_from_a_slot() -> None:
    for path in TEMPLATES:
        text = path.read_text(encoding="utf-8")
        between = "".join(literal for literal, *_ in string.Formatter().parse(text))
        assert not re.search(r"\d", between), path.name
        assert {slot.partition(".")[0] for slot in template_slots(text)} <= {*OPEN_SLOTS, "last_week", "chokepoint"}


@pytest.mark.parametrize("group", FORBIDDEN_SLOTS)
def test_a_hidden_number_cannot_be_a_slot(group: str) -> None:
    for _, field, place in (leaf for leaf in leaves() if leaf[0] == group):
        slot = f"{group}.{field}" + "".join(f"[{i}]" for i in place)
        with pytest.raises(UsageError, match="drives a hidden process"):
            fill(f"At {{{slot}}}.")


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{desk.most_orders}", "names no single number"),
        ("{costs.base_rate}", "names no single number"),
        ("{costs.base_rate[2]}", "names no single number"),
        ("{costs}", "names no single number"),
        ("{costs.replace}", "names no single number"),
        ("{horizon.__class__}", "names no single number"),
        ("{}", "names no single number"),
        ("{weather}", "names no single number"),
        ("an open { brace", "written|cannot be filled"),
        ("{desk.most_order:%Q}", "cannot be filled"),
    ],
)
def test_a_bad_slot_is_named(template: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        fill(template)


def test_the_rules_speak_of_all_that_there_is() -> None:
    text = make_arm("faithful").system
    for name in (*st.ROUTES, *st.SUPPLIERS, *st.CONTRACT_ACTIONS[1:], *st.TERMS, *(tool["name"] for tool in TOOLS)):
        assert name in text
    desk = st.Episode(st.published_tape(25))
    report = desk.place_order("r", 20, "suez", "spot")
    for field in (*report, "freight_lock", "realized_fill", "briefing", "audit"):
        assert field in text or field == "cost_breakdown"
    for cost in st.COSTS:
        assert cost.replace("_", " ") in text.lower() or cost in ("surcharge", "briefing", "audit", "air", "inspect")
    for factor, module in MODULES.items():
        for regime in set(module.LAYOUT.regimes):
            said = {"structural_decline": "structural decline", "promo_spike": "promotion", "seasonal_lift": "seasonal"}
            said |= {"building": "building up", "customs_hold": "customs hold", "watch": "raised alert"}
            said |= {"short": "brief closure", "long": "lasting closure", "recovery": "recovering", "spike": "spike"}
            word = said.get(regime, regime.replace("_", " "))
            assert word in text, f"{factor} {regime}"


def test_no_strategy_stands_in_the_rules_and_some_in_the_playbook() -> None:
    advice = re.compile(r"\b(should|recommend|advice|consider|prefer|better|best|wise|strategy)\b", re.IGNORECASE)
    assert not advice.search(make_arm("faithful").system)
    assert advice.search(make_arm("coached").system)
    assert make_arm("coached").system.startswith(make_arm("faithful").system)


@pytest.mark.parametrize("name", ARM_NAMES)
def test_every_arm_is_its_own_and_the_same_each_time(name: str) -> None:
    arm = make_arm(name)
    again = make_arm(name)
    assert (arm.system, arm.tools, arm.details) == (again.system, again.tools, again.details)
    assert json.loads(json.dumps(dict(arm.details))) == dict(arm.details)
    assert arm.standard
    assert arm.privileged == (name == "revealed")
    others = [make_arm(other) for other in ARM_NAMES if other != name]
    assert all((other.system, other.tools) != (arm.system, arm.tools) for other in others)


# What is shown.


def shown(arm: Arm, tape: st.Tape, orders: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The reports that an agent under an arm reads when a desk gets these orders."""
    episode, lens = st.Episode(tape), arm.open(tape)
    reports = [lens.report(episode.report(), episode)]
    for order in orders:
        if order.get("briefing"):
            episode.buy_briefing()
            episode.buy_audit()
        episode.place_order("r", **{key: value for key, value in order.items() if key != "briefing"})
        reports.append(lens.report(episode.report(), episode))
    return reports


ORDERS = [
    {"qty": 30, "route": "suez", "supplier": "spot", "briefing": week % 4 == 0} if week % 3 else {"qty": 0}
    for week in range(26)
]
ADDED = {"posterior": "posterior", "advice": "advice", "revealed": "revealed"}


@pytest.mark.parametrize("name", ["faithful", "coached", "beliefs", "posterior", "advice", "revealed"])
def test_reports_carry_what_the_arm_adds_and_nothing_else(name: str) -> None:
    tape = st.published_tape(99)
    plain = shown(make_arm("faithful"), tape, ORDERS[:8])
    for before, report in zip(plain, shown(make_arm(name), tape, ORDERS[:8]), strict=True):
        extra = {key: value for key, value in report.items() if key not in before}
        assert {key: value for key, value in report.items() if key in before} == before
        assert set(extra) == ({ADDED[name]} if name in ADDED else set())
        if extra:
            assert ADDED[name] in make_arm(name).system


@pytest.mark.parametrize("name", ["posterior", "advice", "revealed"])
def test_a_lens_is_a_function_of_tape_and_calls(name: str) -> None:
    tape = st.mint(np.uint32(7))
    weeks = 26 if name != "advice" else 6
    assert shown(make_arm(name), tape, ORDERS[:weeks]) == shown(make_arm(name), tape, ORDERS[:weeks])


def test_the_posterior_is_the_exact_filter_s() -> None:
    tape = st.published_tape(99)
    passive = shown(make_arm("posterior"), tape, [{"qty": 0}] * 26)
    with jax.enable_x64(True):
        beliefs = st.oracle.filter_tape(tape, "exact")
    for week, report in enumerate(passive):
        for factor in st.FACTORS:
            expected = marginals(factor, np.asarray(beliefs[factor][week]))
            assert report["posterior"][factor] == pytest.approx(expected, abs=2e-4)
            regimes = {name: mass for name, mass in report["posterior"][factor].items() if name != "stress"}
            assert sum(regimes.values()) == pytest.approx(1.0, abs=1e-3)
    bought = shown(make_arm("posterior"), tape, [{"qty": 0, "briefing": True}] * 26)
    assert bought != passive


def test_the_posterior_of_the_canal_is_bayes_rule_by_hand() -> None:
    """From last week's state, where its band and a bought briefing leave a single one.

    The next report would tell as much without the briefing: whatever can follow a crash names its cause, or is common
    to both closures. So a briefing is worth something in the week in which it is bought, and no longer.
    """
    checked = set()
    for seed in (21, 25, 99):
        tape = st.published_tape(seed)
        reports = shown(make_arm("posterior"), tape, [{"qty": 0, "briefing": True}] * 26)
        for last, now, report in zip(tape.rows.canal[:-1], tape.rows.canal[1:], reports[1:], strict=True):
            regimes = np.array(canal.LAYOUT.regimes)
            possible = (regimes == regimes[last]) & (canal.BAND[last] == canal.BAND)
            if possible.sum() > 1:
                continue  # weeks of recovery, whose ages look alike
            following = np.zeros(len(regimes))
            listed = list(canal.LAYOUT.successors[last])
            following[listed] = canal.CHAIN.probabilities[last][: len(listed)]
            following *= canal.BAND[now] == canal.BAND
            following /= following.sum()
            for regime, mass in report["posterior"]["canal"].items():
                at = canal.STRESS if regime == "stress" else regimes == regime
                assert mass == pytest.approx(following[at].sum(), abs=6e-5)
            checked.add(canal.LAYOUT.labels[last])
    assert {"calm", "watch"} <= checked
    assert {"short:0", "long:0"} & checked


def test_advice_holds_actions_that_can_be_taken_and_the_oracle_s_choice() -> None:
    tape = st.published_tape(1)
    arm = make_arm("advice")
    episode, lens = st.Episode(tape), arm.open(tape)
    report = lens.report(episode.report(), episode)
    for _ in range(5):
        menu = report["advice"]
        assert len(
            {tuple(v for k, v in action.items() if "cost" not in k and "error" not in k) for action in menu}
        ) == len(menu)
        best = min(menu, key=lambda action: action["expected_cost"])
        assert any(action["expected_cost"] > best["expected_cost"] for action in menu)
        assert all(action["standard_error"] > 0 for action in menu)
        contract = {"action": "sign", "supplier": best["supplier"]} if best.get("sign") else None
        episode.place_order("As advised.", best["qty"], best.get("route"), best.get("supplier"), contract)
        report = lens.report(episode.report(), episode)


def twisted(tape: st.Tape, week: int) -> st.Tape:
    """The tape with everything after ``week`` from another one."""
    other = st.mint(np.uint32(123))
    rows = jax.tree.map(lambda mine, theirs: np.where(np.arange(27) > week, theirs, mine), tape.rows, other.rows)
    return tape.replace(rows=rows)


@pytest.mark.parametrize("name", [name for name in ARM_NAMES if name != "revealed"])
def test_no_fair_arm_shows_the_future(name: str) -> None:
    tape, week = st.published_tape(99), 5
    one, other = (shown(make_arm(name), t, ORDERS[:week]) for t in (tape, twisted(tape, week)))
    assert one == other


def same_reports(tape: st.Tape) -> tuple[st.Tape, int]:
    """A tape and a week in which the canal crashes, hidden state altered so that no report shows it until then."""
    states = np.array(tape.rows.canal)
    [crash, *_] = np.flatnonzero(np.isin(states, [canal.LAYOUT.index(s) for s in ("false_alarm", "short:0", "long:0")]))
    now = canal.LAYOUT.labels[states[crash]]
    states[crash] = canal.LAYOUT.index("long:0" if now != "long:0" else "false_alarm")
    quality = np.array(tape.rows.quality)
    quality[:] = (quality + 1) % 27
    return tape.replace(rows=tape.rows.replace(canal=states, quality=quality)), int(crash)


@pytest.mark.parametrize("name", ARM_NAMES)
def test_hidden_state_behind_equal_reports_shows_in_the_privileged_arm_alone(name: str) -> None:
    tape = st.published_tape(25)
    altered, week = same_reports(tape)
    orders = [{"qty": 0}] * week
    assert shown(make_arm("faithful"), tape, orders) == shown(make_arm("faithful"), altered, orders)
    same = shown(make_arm(name), tape, orders) == shown(make_arm(name), altered, orders)
    assert same == (name != "revealed")


def test_the_revealed_arm_tells_the_truth() -> None:
    tape = st.published_tape(99)
    for week, report in enumerate(shown(make_arm("revealed"), tape, ORDERS)):
        for factor, regime in report["revealed"].items():
            assert MODULES[factor].LAYOUT.regimes[int(getattr(tape.rows, factor)[week])] == regime


# Renaming.

ANON = json.loads(shipped("anon.json"))
RENAMING = Renaming(ANON["words"], ANON["texts"])
ORIGINAL = re.compile(rf"(?<![A-Za-z])({'|'.join([*ANON['words'], 'mandeb', 'red sea'])})(?![A-Za-z])", re.IGNORECASE)


class Decoding:
    """A script that reads a renamed report through the inverse map, and answers in renamed words."""

    def __init__(self, tape: st.Tape) -> None:
        self._inner = ScriptedProvider(planner, tape)
        self.read: list[str] = []

    async def turn(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> Turn:
        self.read += [json.dumps(messages), json.dumps(tools)]
        bands = {text: band for band, text in ANON["bulletins"].items()}

        def decoded(text: str) -> str:
            report = RENAMING.json_to_desk(json.loads(text))
            band = bands[json.loads(text)["bulletin"]]
            return json.dumps(report | {"bulletin": canal.BULLETINS[canal.BANDS.index(band)]})

        plain = copy.deepcopy(list(messages))
        plain[1]["content"] = decoded(plain[1]["content"])
        for message in plain:
            if message["role"] == "tool" and message["name"] == "place_order" and not message["error"]:
                message["content"] = decoded(message["content"])
        turn = await self._inner.turn(plain, tools)
        calls = [
            ToolCall(c.id, RENAMING.to_agent(c.name), json.dumps(RENAMING.json_to_agent(json.loads(c.arguments))))
            for c in turn.calls
        ]
        return replace(turn, calls=tuple(calls))


def test_the_renamed_world_plays_the_same_and_names_nothing(play_plan: PlayPlan, tmp_path: Path) -> None:
    seats: list[Decoding] = []

    def seat(tape: st.Tape, repeat: int) -> Decoding:
        seats.append(Decoding(tape))
        return seats[-1]

    names = parse_seeds("25,143,mint:7")
    play_plan(Agent("planner", seat, reads=True), "25,143,mint:7", "anon", arm=make_arm("anon"))
    play_plan("planner", "25,143,mint:7", "plain", arm=make_arm("faithful"))
    anon, plain = (load_rows(tmp_path / folder, names) for folder in ("anon", "plain"))
    assert [row.cost for row in anon] == [row.cost for row in plain]
    assert all(row.counts["errors"] == 0 for row in anon)
    for text in (text for seated in seats for text in seated.read):
        assert not ORIGINAL.search(text), ORIGINAL.search(text)
    for name in ("published-25.jsonl", "minted-7.jsonl"):
        weeks = [
            [event for event in read_events(tmp_path / folder / name)[0] if event["event"] == "week"]
            for folder in ("anon", "plain")
        ]
        assert weeks[0] == weeks[1]  # calls are on record in the desk's words, rationales too


def test_refusals_and_bought_answers_are_renamed_too() -> None:
    tape = st.published_tape(25)
    arm = make_arm("anon")
    desk = Desk(st.Episode(tape), arm.open(tape), arm.tools)
    order = {"rationale": "r", "qty": 5, "route": "alder", "supplier": "hickory"}
    results = desk.execute(
        as_turn(
            [
                ("place_order", order), ("place_order", order | {"supplier": "spot"}), ("buy_briefing", {}),
                ("buy_audit", {}), ("lock_hazel", {"weeks": 3}), ("lock_freight", {"weeks": 3}),
                ("place_order", order | {"contract": {"action": "sign", "supplier": "hickory"}}),
            ],
            0,
        ).calls
    )  # fmt: skip
    assert [result.error for result in results] == [True, True, False, False, False, True, False]
    for result in results[:5]:
        assert not ORIGINAL.search(result.content.replace("'spot'", "").replace('"spot"', "")), result.content
    assert json.loads(results[-1].content)["hazel_lock"]["weeks_left"] == 2


@pytest.mark.parametrize("text", ["Suez", "suez_count", "SUEZ", "spotted", "report", "diverted_via_cape", "escape"])
def test_renaming_goes_by_whole_words_and_back(text: str) -> None:
    there = RENAMING.to_agent(text)
    assert RENAMING.to_desk(there) == text
    assert (there == text) == (text in ("spotted", "report", "escape"))


def test_renaming_is_one_to_one() -> None:
    with pytest.raises(ValueError, match="one to one"):
        Renaming({"a": "x", "b": "x"}, {})
    with pytest.raises(ValueError, match="one to one"):
        Renaming({"a": "b", "b": "c"}, {})
    everything = make_arm("faithful").system + json.dumps(TOOLS) + "".join(canal.BULLETINS)
    assert not re.search(rf"\b({'|'.join(ANON['words'].values())})\b", everything, re.IGNORECASE)


# Beliefs.

STATED = {
    "rationale": "r", "qty": 0, "beliefs": dict.fromkeys(st.FACTORS, 0.25),
    "plan": {"stance": "hold", "target_position": 93, "main_concern": "none", "next_qty": 20},
}  # fmt: skip
[ORDER_SCHEMA] = [tool["parameters"] for tool in with_beliefs() if tool["name"] == "place_order"]


def test_beliefs_and_plan_are_demanded_and_kept(play_plan: PlayPlan, tmp_path: Path) -> None:
    class Believer:
        async def turn(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> Turn:
            return as_turn([("place_order", STATED)], len(messages))

    arm = make_arm("beliefs")
    play_plan(Agent("believer", lambda tape, repeat: Believer(), reads=True), "25", arm=arm)
    events, _ = read_events(tmp_path / "out" / "published-25.jsonl")
    weeks = [event for event in events if event["event"] == "week"]
    assert len(weeks) == 26
    assert all(week["stated"] == {"beliefs": STATED["beliefs"], "plan": STATED["plan"]} for week in weeks)
    desk = Desk(st.Episode(st.published_tape(25)), tools=arm.tools)
    [result] = desk.execute(as_turn([("place_order", {"rationale": "r", "qty": 0})], 0).calls)
    assert "beliefs, plan are missing" in result.content


@pytest.mark.parametrize("agent", ["planner", "random", policy_agent("policy", st.policies.floor(), 0)])
def test_agents_that_believe_nothing_play_the_belief_arm_all_the_same(
    agent: str | Agent, play_plan: PlayPlan, tmp_path: Path
) -> None:
    play_plan(agent, "25", "plain")
    play_plan(agent, "25", "beliefs", arm=make_arm("beliefs"))
    plain, beliefs = (read_events(tmp_path / folder / "published-25.jsonl")[0] for folder in ("plain", "beliefs"))
    assert plain[-1]["total"] == beliefs[-1]["total"]
    assert beliefs[-1]["counts"]["errors"] == 0
    stated = [event["stated"]["beliefs"] for event in beliefs if event["event"] == "week"]
    assert stated == [dict.fromkeys(st.FACTORS, 0.5)] * 26


@pytest.mark.parametrize("order", [{}, {"qty": "20"}, {"qty": 3.5}, {"qty": -4}, {"qty": 10**9}, {"qty": [1]}])
def test_a_script_s_bad_order_is_refused_in_the_belief_arm_too(order: dict[str, Any]) -> None:
    episode, tools = st.Episode(st.published_tape(25)), make_arm("beliefs").tools
    turn = with_statements(as_turn([("place_order", {"rationale": "r", **order})], 0), tools, episode.report())
    [result] = Desk(episode, tools=tools).execute(turn.calls)
    assert result.error
    assert result.content.startswith("Error: qty ")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"beliefs": {**STATED["beliefs"], "canal": 1.01}}, r"beliefs.canal must be a number from 0 to 1, got 1.01"),
        ({"beliefs": {**STATED["beliefs"], "canal": -0.1}}, r"beliefs.canal must be a number"),
        ({"beliefs": {**STATED["beliefs"], "canal": True}}, r"beliefs.canal must be a number from 0 to 1, got true"),
        ({"beliefs": {**STATED["beliefs"], "canal": "0.5"}}, r"beliefs.canal must be a number"),
        ({"beliefs": {**STATED["beliefs"], "canal": None}}, r"beliefs.canal must be a number"),
        ({"beliefs": {**STATED["beliefs"], "weather": 0.5}}, r"unknown field beliefs.weather"),
        ({"beliefs": {"canal": 0.5}}, r"beliefs.demand, .*beliefs.supplier are missing: each must be a number"),
        ({"beliefs": [0.5] * 6}, r"beliefs must be an object with canal, demand"),
        ({"plan": {**STATED["plan"], "stance": "wait"}}, r"plan.stance must be \"build\" or \"hold\" or \"run_down\""),
        ({"plan": {**STATED["plan"], "next_qty": 20.0}}, r"plan.next_qty must be a whole number from 0 to 100"),
        ({"plan": {**STATED["plan"], "main_concern": "weather"}}, r"plan.main_concern must be"),
        ({"plan": None}, r"plan must be an object"),
    ],
)
def test_statements_that_do_not_fit_are_told_field_and_range(change: dict[str, Any], message: str) -> None:
    check_arguments(json.dumps(STATED), ORDER_SCHEMA)
    with pytest.raises(ArgumentError, match=message):
        check_arguments(json.dumps(STATED | change), ORDER_SCHEMA)


@pytest.mark.parametrize("text", ["NaN", "Infinity", "1e999", "-1e-999x"])
def test_a_belief_is_a_finite_number(text: str) -> None:
    with pytest.raises(ArgumentError):
        check_arguments(json.dumps(STATED).replace("0.25", text, 1), ORDER_SCHEMA)


def test_a_whole_number_is_a_number() -> None:
    checked, _ = check_arguments(json.dumps(STATED | {"beliefs": dict.fromkeys(st.FACTORS, 1)}), ORDER_SCHEMA)
    assert checked["beliefs"]["canal"] == 1


# Own words.


def test_own_words_are_filled_marked_and_verified(play_plan: PlayPlan, tmp_path: Path) -> None:
    prompt, bulletins = tmp_path / "prompt.md", tmp_path / "bulletins.json"
    prompt.write_text("Order at most {desk.most_order} units. {{braces}}", encoding="utf-8-sig")
    texts = {band: f"News of {band}." for band in canal.BANDS}
    bulletins.write_text(json.dumps(texts), encoding="utf-8")
    arm = make_arm("posterior", prompt, bulletins)
    assert arm.system == "Order at most 100 units. {braces}"
    assert not arm.standard
    assert not make_arm("faithful", bulletins=bulletins).standard
    seen = shown(arm, st.published_tape(99), [{"qty": 0}] * 26)
    assert {report["bulletin"] for report in seen} <= set(texts.values())
    assert len({report["bulletin"] for report in seen}) > 2
    play_plan("planner", "25", arm=arm)
    manifest = read_manifest(tmp_path / "out")
    prompt.unlink()
    bulletins.unlink()
    [finding] = verify_run(tmp_path / "out", manifest, arm_of_run(manifest["settings"], manifest["texts"]))
    assert finding.status == "same"
    with pytest.raises(UsageError, match="was made with arm_details"):
        play_plan("planner", "25", arm=make_arm("posterior"))


@pytest.mark.parametrize("name", ARM_NAMES)
def test_every_arm_is_verified_from_its_folder_alone(name: str, play_plan: PlayPlan, tmp_path: Path) -> None:
    agent: str | Agent = "planner"
    if name == "anon":
        agent = Agent("planner", lambda tape, repeat: Decoding(tape), reads=True)
    play_plan(agent, "25", arm=make_arm(name))
    manifest = read_manifest(tmp_path / "out")
    [finding] = verify_run(tmp_path / "out", manifest, arm_of_run(manifest["settings"], manifest["texts"]))
    assert finding.status == "same", finding.detail


@pytest.mark.parametrize(
    ("text", "message"),
    [("[1]", "must map each of"), ("{", "cannot be read"), ('{"calm": "x"}', "must map each of calm, watch, crash")],
)
def test_bad_bulletins_are_told(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "bulletins.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=message):
        make_arm("faithful", bulletins=path)


def test_bad_files_and_names_are_told(tmp_path: Path, play_plan: PlayPlan) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        make_arm("faithful", tmp_path / "none.md")
    (tmp_path / "empty.md").write_text(" \n", encoding="utf-8")
    with pytest.raises(UsageError, match="is empty"):
        make_arm("faithful", tmp_path / "empty.md")
    with pytest.raises(UsageError, match="the arms are faithful"):
        make_arm("blind")
    with pytest.raises(UsageError, match="knows the report by its own keys"):
        play_plan("planner", "25", arm=make_arm("anon"))
    assert not (tmp_path / "out").exists()


def test_a_plain_lens_changes_nothing() -> None:
    lens, call = Lens(), ToolCall("a", "place_order", "{}")
    desk = st.Episode(st.published_tape(25))
    assert lens.report(desk.report(), desk) == desk.report()
    assert (lens.call(call), lens.words("suez"), lens.understood("suez")) == (call, "suez", "suez")
    talk = Conversation("s", TOOLS, desk.report())
    assert AGENTS["floor"].open is not None
    assert floor(json.loads(talk.messages[1]["content"]), None) == floor(desk.report(), None)  # type: ignore[arg-type]
