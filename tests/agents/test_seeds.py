"""The grammar of --seeds."""

from pathlib import Path

import pytest

import stocktake_jax as st
from stocktake_agents import EpisodeName, UsageError, parse_seeds
from stocktake_agents.seeds import slug


def texts(argument: str) -> list[str]:
    return [str(name) for name in parse_seeds(argument)]


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("25", ["25"]),
        ("143, 1,25", ["1", "25", "143"]),
        ("7,7,5-8", ["5", "6", "7", "8"]),
        ("3 - 3", ["3"]),
        ("mint:7,8", ["mint:7", "mint:8"]),
        ("mint:0-2", ["mint:0", "mint:1", "mint:2"]),
        ("mint:7,2,mint:9", ["mint:2", "mint:7", "mint:9"]),
        ("2,mint:2", ["2", "mint:2"]),
        ("0,4294967295", ["0", "4294967295"]),
    ],
)
def test_lists_are_sorted_and_free_of_duplicates(argument: str, expected: list[str]) -> None:
    assert texts(argument) == expected


def test_groups_are_the_published_seeds_by_profile() -> None:
    groups = {group: parse_seeds(group) for group in st.PROFILES}
    assert {group: len(names) for group, names in groups.items()} == {"isolated": 12, "persistent": 15, "compound": 23}
    assert set().union(*groups.values()) == set(parse_seeds("published"))
    assert texts("isolated,11,0")[:3] == ["0", "11", "24"]


def test_a_name_draws_its_own_tape() -> None:
    minted, published = EpisodeName("minted", 25).tape(), EpisodeName("published", 25).tape()
    assert int(minted.id) == int(published.id) == 25
    assert st.tape_digest(published) == st.tape_digest(st.published_tape(25)) != st.tape_digest(minted)


def test_a_file_holds_a_list_per_line(tmp_path: Path) -> None:
    file = tmp_path / "my seeds.txt"
    file.write_text("# a first try\n25\n\n0-1, 3  # the rest\nmint:4\n5\n", encoding="utf-8")
    assert texts(str(file)) == ["0", "1", "3", "5", "25", "mint:4"]
    assert slug(str(file)) == "myseeds"


@pytest.mark.parametrize(
    ("argument", "sentence"),
    [
        ("", "which is neither a seed (25), a range (0-19)"),
        ("1,,2", "'', which is neither"),
        ("isolatd", "'isolatd', which is neither"),
        ("-3", "seed -3 is negative: seeds are whole numbers from 0 to 4294967295."),
        ("mint:-3", "seed -3 is negative"),
        ("4294967296", "seed 4294967296 is too large"),
        ("0-99999999999", "seed 99999999999 is too large"),
        ("19-0", "the range 19-0 runs backwards: write 0-19."),
        ("0-4294967295", "has 4294967296 seeds: one run plays at most 10000."),
        ("0-6000,mint:0-6000", "names 12002 tapes: one run plays at most 10000."),
        ("1.5", "'1.5', which is neither"),
        ("\N{SUPERSCRIPT TWO}", "which is neither"),
        ("mint:", "'', which is neither"),
        ("mint:mint:3", "'mint:3', which is neither"),
        ("x" * 5000, "which is neither"),
    ],
)
def test_what_does_not_fit_is_named_in_a_sentence(argument: str, sentence: str) -> None:
    with pytest.raises(UsageError) as refusal:
        parse_seeds(argument)
    assert sentence in str(refusal.value)
    assert len(str(refusal.value)) < 400


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"1\n2,x\n", "line 2: --seeds has 'x'"),
        (b"# nothing\n", "names no seed"),
        (b"", "names no seed"),
        (b"\xff\xfe1", "cannot be read"),
    ],
)
def test_a_bad_file_is_named_with_its_line(tmp_path: Path, content: bytes, sentence: str) -> None:
    file = tmp_path / "seeds.txt"
    file.write_bytes(content)
    with pytest.raises(UsageError, match=r"seeds\.txt") as refusal:
        parse_seeds(str(file))
    assert sentence in str(refusal.value)


def test_a_folder_is_no_seed_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        parse_seeds(str(tmp_path))


@pytest.mark.parametrize("argument", ["0-19", "0,19", "mint:7,8", "mint:0-9", "1,25,143", "published"])
def test_slugs_are_harmless_and_differ(argument: str) -> None:
    assert slug(argument).replace("-", "").replace("_", "").isalnum()
    assert slug("0-19") != slug("0,19")
    assert len(slug(",".join(map(str, range(1000))))) <= 64
