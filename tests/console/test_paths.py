"""Paths of requests for objects whose names come from a cluster, as a module of the console builds them, in Node.js."""

import subprocess
from collections.abc import Callable
from pathlib import Path

from fairlead.console.build import STATIC_FOLDER

SCRIPT = Path(__file__).parent / "paths.mjs"


def test_names_and_kinds_of_a_hostile_cluster_do_not_lead_out_of_its_gateway(component: Callable[[str], Path]) -> None:
    command = [str(component("node")), str(SCRIPT), str(STATIC_FOLDER)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip() == "ok", done.stderr
