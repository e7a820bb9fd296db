"""Imports point down only, fair code never reads hidden state, and importing the packages leaves JAX alone.

Every module is parsed, not run, so that an import inside a function counts as well.
"""

import ast
import itertools
import re
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# stocktake_jax from bottom to top. A module may import its own layer and those below it, never one above.
LAYERS = (
    ("devices", "randomness", "rounding", "fields", "chain", "symptoms"),
    ("factors",),
    ("params",),
    ("tape", "published", "actions", "logistics"),
    ("env", "reporting"),
    ("episode", "policies"),
    ("oracle", "metrics", "privileged", "bounds"),
    ("pools", "sweep", "tables", "learn", "envs"),
)
HEIGHT = {module: height for height, layer in enumerate(LAYERS) for module in layer}

# These read hidden state; nothing that plays or scores fairly may import them. `bounds` is their public face.
PRIVILEGED = {"privileged", "bounds"}

# The one module of the harness that names the privileged arm beside the fair ones.
COMPOSITION = ("stocktake_agents", "arm_names")

EXTRAS = ("openai", "anthropic", "polars", "gymnasium", "inspect_ai", "mcp", "matplotlib", "numba")


def imports(path: Path, package: str) -> Iterator[tuple[int, str]]:
    """Yields (line, dotted name) for all that a file imports: relative names made absolute, `from a import b` as a.b.

    What is read off an imported `stocktake_jax` counts as imported from it: `st.bounds` is `stocktake_jax.bounds`.
    """
    faces = set()
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
                if alias.name == "stocktake_jax" or (alias.name.startswith("stocktake_jax.") and not alias.asname):
                    faces.add(alias.asname or "stocktake_jax")
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) + 1 - node.level] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                yield node.lineno, f"{base}.{alias.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in faces:
            yield node.lineno, f"stocktake_jax.{node.attr}"


def reads_hidden_state(name: str) -> bool:
    parts = name.split(".")
    return parts[1] in PRIVILEGED or "privileged" in parts


def violations(root: Path) -> list[str]:
    """One sentence for each import under `root` that breaks a rule."""
    found = []
    simulator = root / "stocktake_jax"
    modules = {path.stem for path in simulator.iterdir()}
    for path in sorted(simulator.rglob("*.py")):
        parts = path.relative_to(simulator).with_suffix("").parts
        module = parts[0]
        if module == "__init__":  # the public face sits above everything and re-exports it
            module, height = "the public face", len(LAYERS)
        elif module in HEIGHT:
            height = HEIGHT[module]
        else:
            found.append(f"{path.relative_to(root)} has no layer: add {module} to LAYERS in tests/test_layers.py.")
            continue
        for line, name in imports(path, ".".join(["stocktake_jax", *parts[:-1]])):
            where = f"{path.relative_to(root)}:{line}"
            package, _, rest = name.partition(".")
            target = rest.partition(".")[0]
            if package == "stocktake_agents":
                found.append(f"{where}: stocktake_jax must not import stocktake_agents.")
            elif package == "stocktake_jax" and height < len(LAYERS):
                if target not in HEIGHT:
                    if target not in modules:  # else its own file is reported, once
                        found.append(f"{where}: import {name} from the module that defines it, not the public face.")
                elif reads_hidden_state(name) and not PRIVILEGED & set(parts):
                    found.append(f"{where}: fair code must not import {name}, which reads hidden state.")
                elif HEIGHT[target] > height:
                    found.append(f"{where}: {module} must not import {target}, which is in a layer above it.")
    agents = root / "agents"
    for path in sorted((agents / "stocktake_agents").rglob("*.py")):
        parts = path.relative_to(agents).with_suffix("").parts
        if parts == COMPOSITION or "privileged" in parts:
            continue
        for line, name in imports(path, ".".join(parts[:-1])):
            hidden = name.startswith(("stocktake_jax.", "stocktake_agents.")) and reads_hidden_state(name)
            if hidden or name.startswith(".".join(COMPOSITION)):
                where = f"{path.relative_to(root)}:{line}"
                found.append(f"{where}: fair code must not import {name}, which reads hidden state.")
    return found


def test_imports_point_down() -> None:
    assert (ROOT / "stocktake_jax" / "__init__.py").is_file()
    assert (ROOT / "agents" / "stocktake_agents" / "__init__.py").is_file()
    assert violations(ROOT) == []


@pytest.fixture
def fake_tree(tmp_path: Path) -> Path:
    """A small tree that keeps all rules; the tests below break one at a time."""
    files = {
        "stocktake_jax/__init__.py": "from stocktake_jax import bounds, chain\nfrom .env import step",
        "stocktake_jax/chain.py": "import numpy as np",
        "stocktake_jax/factors/__init__.py": "from . import canal",
        "stocktake_jax/factors/canal.py": "from ..chain import Chain\nfrom .. import randomness",
        "stocktake_jax/env.py": "import stocktake_jax.tape\nfrom stocktake_jax import logistics",
        "stocktake_jax/bounds.py": "from stocktake_jax.privileged.clairvoyant import clairvoyant",
        "stocktake_jax/privileged/clairvoyant.py": "from stocktake_jax.env import step",
        "agents/stocktake_agents/__init__.py": "",
        "agents/stocktake_agents/desk.py": "import stocktake_jax as st\nfrom . import log\nst.reset",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_checker_accepts_a_clean_tree(fake_tree: Path) -> None:
    assert violations(fake_tree) == []


@pytest.mark.parametrize(
    ("file", "line", "complaint"),
    [
        ("stocktake_jax/chain.py", "from stocktake_jax.env import step", "chain must not import env"),
        ("stocktake_jax/chain.py", "import stocktake_jax.oracle.filters", "chain must not import oracle"),
        ("stocktake_jax/factors/canal.py", "from ..env import step", "factors must not import env"),
        ("stocktake_jax/factors/canal.py", "def late():\n    from .. import sweep", "factors must not import sweep"),
        ("stocktake_jax/env.py", "import stocktake_agents", "must not import stocktake_agents"),
        ("stocktake_jax/env.py", "from stocktake_agents.desk import Desk", "must not import stocktake_agents"),
        ("stocktake_jax/env.py", "import stocktake_jax as st", "not the public face"),
        ("stocktake_jax/env.py", "from . import FACTORS", "not the public face"),
        ("stocktake_jax/sweep.py", "from stocktake_jax.privileged import clairvoyant", "reads hidden state"),
        ("stocktake_jax/sweep.py", "from stocktake_jax.policies import privileged", "reads hidden state"),
        ("stocktake_jax/sweep.py", "from . import bounds", "reads hidden state"),
        ("stocktake_jax/novelty.py", "", "novelty.py has no layer: add novelty to LAYERS"),
        ("agents/stocktake_agents/desk.py", "from stocktake_jax import privileged", "reads hidden state"),
        ("agents/stocktake_agents/desk.py", "import stocktake_jax.privileged.clairvoyant", "reads hidden state"),
        ("agents/stocktake_agents/desk.py", "st.bounds.clairvoyant(tape)", "reads hidden state"),
        ("agents/stocktake_agents/desk.py", "from stocktake_agents.privileged import revealed", "reads hidden state"),
        ("agents/stocktake_agents/desk.py", "from .privileged.revealed import RevealedLens", "reads hidden state"),
        ("agents/stocktake_agents/desk.py", "from stocktake_agents.arm_names import make_arm", "reads hidden state"),
    ],
)
def test_checker_sees_a_violation(fake_tree: Path, file: str, line: str, complaint: str) -> None:
    with (fake_tree / file).open("a") as source:
        source.write("\n" + line)
    found = violations(fake_tree)
    assert len(found) == 1
    assert complaint in found[0]


def test_imports_are_declared() -> None:
    """What the packages import is in the standard library, or a dependency or an extra of pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = list(itertools.chain(project["dependencies"], *project["optional-dependencies"].values()))
    known = {re.match(r"[\w-]+", requirement)[0].replace("-", "_") for requirement in declared}
    known |= {"stocktake_jax", "stocktake_agents", *sys.stdlib_module_names}
    for source in (ROOT, ROOT / "agents"):
        for path in sorted(source.glob("stocktake_*/**/*.py")):
            package = ".".join(path.relative_to(source).parts[:-1])
            for line, name in imports(path, package):
                where = f"{path.relative_to(ROOT)}:{line}"
                assert name.partition(".")[0] in known, f"{where}: {name} is not in pyproject.toml: add its package."


def test_importing_leaves_jax_alone() -> None:
    """In a fresh process: no backend started, no setting changed, no extra loaded."""
    program = f"""
        import sys
        import chex, flax, jax, optax  # what our own dependencies set is not ours to answer for
        before = dict(jax.config.values)

        import stocktake_jax, stocktake_agents

        changed = {{name for name, value in jax.config.values.items() if value != before.get(name, value)}}
        assert not changed, f"import changes jax settings: {{changed}}"
        loaded = set({EXTRAS}) & set(sys.modules)
        assert not loaded, f"import loads extras: {{loaded}}"
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_num_cpu_devices", 3)  # raises once a backend has started
        assert len(jax.devices()) == 3
    """
    run = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
