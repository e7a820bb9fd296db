"""The repository agrees with itself, speaks of nothing but the project, and installs what it declares."""

import fnmatch
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

# Put together from pieces, so that this file passes its own test.
REGISTRIES = re.compile("|".join(re.escape(".".join(host)) for host in (
    ("pypi", "org"), ("files", "pythonhosted"), ("registry", "npmjs"), ("deb", "debian"), ("conda", "anaconda"),
)))  # fmt: skip
MACHINE_PATHS = re.compile(r"(?<![\w.~-])/(?:" + "|".join(("work", "root", "tmp", "home")) + r")/\w")


def ignored(path: Path, patterns: list[str]) -> bool:
    """The part of .gitignore's language that ours uses: `/` in front anchors, `/` at the end means a folder."""
    name = path.relative_to(ROOT).as_posix()
    for pattern in patterns:
        if pattern.endswith("/") and not path.is_dir():
            continue
        text = name if pattern.startswith("/") else path.name
        if fnmatch.fnmatch(text, pattern.strip("/")):
            return True
    return False


def text_files(folder: Path = ROOT) -> Iterator[tuple[Path, str]]:
    lines = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    patterns = [".git", *(line for line in lines if line and not line.startswith("#"))]
    for path in sorted(folder.iterdir()):
        if ignored(path, patterns) or path.is_symlink():
            continue
        if path.is_dir():
            yield from text_files(path)
        else:
            data = path.read_bytes()
            if b"\0" not in data:
                yield path, data.decode("utf-8", errors="replace")


def pins(lock: str) -> dict[str, str]:
    """Package -> version; every line must be an exact pin, with a marker or without."""
    found = {}
    for line in (ROOT / lock).read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            continue
        match = re.fullmatch(r"([a-z0-9-]+)==([0-9][\w.]*)(?: ; .+)?", line)
        assert match, f"{lock}: {line!r} is not an exact pin: run `make lock`."
        found[match[1]] = match[2]
    return found


def name_of(requirement: str) -> str:
    return re.match(r"[\w-]+", requirement)[0]


def test_walk_sees_the_tree() -> None:
    names = {path.relative_to(ROOT).as_posix() for path, _ in text_files()}
    assert {"Makefile", ".ci/run", "tests/test_repository.py", "stocktake_jax/__init__.py"} <= names
    assert not any(name.startswith((".git/", ".venv/")) or "__pycache__" in name for name in names)


@pytest.mark.parametrize("pattern", [REGISTRIES, MACHINE_PATHS], ids=["registry hosts", "machine paths"])
def test_no_file_names_a_place_outside(pattern: re.Pattern[str]) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path, text in text_files()
        for number, line in enumerate(text.splitlines(), start=1)
        if pattern.search(line)
    ]
    assert found == []


def test_patterns_match_what_they_should() -> None:
    assert REGISTRIES.search("https://" + "pypi" + ".org/simple")
    assert MACHINE_PATHS.search("see " + "/work" + "/main/x")
    assert MACHINE_PATHS.search("'" + "/tmp" + "/x'")
    assert not MACHINE_PATHS.search("docs/work/main")
    assert not MACHINE_PATHS.search("runs/tmp/x and ~/work/x and https://example.com/tmp/x")


def test_version_is_one() -> None:
    import stocktake_jax

    newest = re.search(r"^## \[?(\d[^\]\s]*)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)[1]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["version"]
    assert stocktake_jax.__version__ == PROJECT["version"] == newest == citation


def test_citation_names_the_paper() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= citation.keys()
    paper = citation["preferred-citation"]
    title = "STOCKTAKE: Measuring the Gap Between Perception and Action in LLM Agents with a Fair Oracle"
    assert paper["title"] == title
    assert str(paper["date-published"]) == "2026-07-15"


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-dev.lock"])
def test_lock_pins_all_that_is_declared(lock: str) -> None:
    wanted = {*map(name_of, PROJECT["dependencies"]), "hatchling"}
    if "dev" in lock:
        extras = PROJECT["optional-dependencies"]
        wanted |= {*map(name_of, extras["dev"] + extras["llm"])} - {PROJECT["name"]}
    assert wanted <= pins(lock).keys(), "run `make lock`"


def test_locks_agree() -> None:
    core = pins("requirements.lock")
    assert core.items() <= pins("requirements-dev.lock").items(), "run `make lock`"


def test_make_targets_in_the_docs_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    command = re.compile(r"(?:`|^|\$ )(?:[A-Z]+=\S+ )*make ([a-z][a-z-]*)", re.MULTILINE)
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / ".ci" / "run"]
    mentioned = {page.name: set(command.findall(page.read_text(encoding="utf-8"))) for page in pages}
    assert "setup" in mentioned["README.md"]
    assert {name: unknown for name, named in mentioned.items() if (unknown := named - targets)} == {}
