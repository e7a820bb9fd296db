"""What the docs show is true: links lead somewhere, Python code runs, docstring examples give what they say.

Code that cannot run here (it needs a network, a key or a GPU) is fenced as ```python no-run.
"""

import doctest
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
MODULES = sorted(
    path.relative_to(source).with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__")
    for source in (ROOT, ROOT / "agents")
    for path in source.glob("stocktake_*/**/*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def code(page: Path) -> str:
    """The page's Python blocks in order, as one program that keeps the page's line numbers."""
    lines = []
    running = False
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            running = line.strip() == "```python"
            line = ""
        lines.append(line if running else "")
    return "\n".join(lines)


def anchors(page: Path) -> set[str]:
    """The link targets of a page: its own ids, and those that code hosts make of headings."""
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ +(.+)$", text, re.MULTILINE)
    made = {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
    return made | set(re.findall(r'<a (?:id|name)="([^"]+)"', text))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)", text):
        if re.match(r"[a-z]+:", link):
            continue  # other sites are not ours to check
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{name(page)} links to {link}, which is not there."
        assert not anchor or anchor in anchors(target), f"{name(page)} links to {link}, a heading that is not there."


@pytest.mark.parametrize("page", [page for page in PAGES if code(page).strip()], ids=name)
def test_code_runs(page: Path, tmp_path: Path) -> None:
    program = tmp_path / page.with_suffix(".py").name
    program.write_text(code(page), encoding="utf-8")
    run = subprocess.run([sys.executable, program], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, f"the code of {name(page)} fails (line numbers are the page's):\n{run.stderr}"


def test_every_promise_of_the_harness_has_its_tests() -> None:
    page = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
    promised = re.findall(r"^\| (H\d+) \|.*\| (.+) \|$", page, re.MULTILINE)
    assert [number for number, _ in promised] == [f"H{i}" for i in (*range(1, 29), *range(35, 41))]
    for number, tests in promised:
        named = re.findall(r"`(test_\w+\.py)::(test_\w+)`", tests)
        assert named, f"{number} names no test."
        for file, test in named:
            text = (ROOT / "tests" / "agents" / file).read_text(encoding="utf-8")
            assert f"def {test}(" in text, f"{number} names {file}::{test}, which is not there."


@pytest.mark.parametrize("module", MODULES)
def test_docstring_examples_hold(module: str) -> None:
    results = doctest.testmod(importlib.import_module(module), optionflags=doctest.ELLIPSIS)
    assert results.attempted
    assert not results.failed
