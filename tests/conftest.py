"""What every test shares: a strict JAX, bounded property tests, and the golden files.

The configuration is set on import, before any test can start a JAX backend.
"""

import csv
import functools
import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

# A default, not an order: `JAX_PLATFORMS=cuda make test` runs the same tests on a GPU.
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import hypothesis
import jax
import pytest

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_num_cpu_devices", 2)  # several devices, so that sharding is exercised everywhere

# No deadlines: the first example of a jitted function pays for its compilation.
hypothesis.settings.register_profile("default", derandomize=True, max_examples=25, deadline=None)
hypothesis.settings.register_profile("thorough", max_examples=500, deadline=None, print_blob=True)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture(scope="session")
def golden() -> Path:
    """The folder of golden files. Unset means not at hand; set but missing is a mistake, so it fails."""
    folder = os.environ.get("STOCKTAKE_GOLDEN")
    if not folder:
        pytest.skip("STOCKTAKE_GOLDEN is not set: point it at the folder of golden files to run this test.")
    if not Path(folder).is_dir():
        pytest.fail(f"STOCKTAKE_GOLDEN is {folder!r}, which is not a folder: correct it or unset it.", pytrace=False)
    return Path(folder)


@pytest.fixture(scope="session")
def load_golden(golden: Path) -> Callable[[str], Any]:
    """Reads one golden file by name, once: JSON as it stands, CSV as a list of dicts of strings.

    Tests share what it returns, so they must not change it.
    """

    @functools.cache
    def load(name: str) -> Any:
        path = golden / name
        if name.endswith(".json.gz"):
            return json.loads(gzip.decompress(path.read_bytes()))
        if name.endswith(".json"):
            return json.loads(path.read_text(encoding="utf-8"))
        if name.endswith(".csv"):
            with path.open(newline="", encoding="utf-8") as file:
                return list(csv.DictReader(file))
        raise ValueError(f"{name!r} is no golden file: name a .json, .json.gz or .csv file with its ending.")

    return load
