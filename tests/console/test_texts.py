"""Comparing, merging and reading texts of objects, as the modules of the console do it, in Node.js."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from fairlead.console.build import STATIC_FOLDER

SCRIPT = Path(__file__).parent / "texts.mjs"


@pytest.mark.parametrize("seed", [1, 20_260])
def test_diffs_are_shortest_and_merges_apply_both_sides(component: Callable[[str], Path], seed: int) -> None:
    command = [str(component("node")), str(SCRIPT), str(STATIC_FOLDER), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip() == "ok", done.stderr
