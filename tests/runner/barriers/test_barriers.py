"""Tests of the isolation of workspaces fail on a runner without the barrier that they test.

Each row runs one test with real containers, with barriers switched off (`switches.py`), and expects that it fails, with
a message that shows the attack. `make test-barriers` runs them.
"""

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.runner.barriers import switches
from tests.runner.barriers.rows import ROWS, Row
from tests.runner.harness.podman import require_podman

ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True, slots=True)
class Outcome:
    test: str
    phase: str
    outcome: str
    message: str


def run_without(barriers: Sequence[str], tests: Sequence[str], folder: Path) -> list[Outcome]:
    """The outcome of each phase of these tests, with the barriers off."""
    report = folder / "report"
    options = [f"--without={each}" for each in barriers]
    command = [
        *(sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", "--timeout=300"),
        *("-p", switches.__name__, *options, f"--barriers-report={report}", *tests),
    ]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert report.exists(), result.stdout + result.stderr
    return [Outcome(*json.loads(line)) for line in report.read_text().splitlines()]


def find_problem(row: Row, outcomes: Sequence[Outcome]) -> str:
    """Why it was not seen that a test needs its barrier; empty if it was."""
    found = [each for each in outcomes if each.test == row.test and each.phase == row.phase]
    if not found:
        return f"{row.name} was not run: {[each for each in outcomes if each.outcome == 'failed']}"
    if found[0].outcome != "failed":
        return f"{row.name} does not fail without its barrier"
    return (
        ""
        if re.search(row.says, found[0].message)
        else f"{row.name} fails for another reason: {found[0].message[-2000:]}"
    )


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("without", dict.fromkeys(row.without for row in ROWS), ids=" and ".join)
def test_without_a_barrier_its_tests_fail(without: tuple[str, ...], tmp_path: Path) -> None:
    require_podman()
    rows = [row for row in ROWS if row.without == without]
    outcomes = run_without(without, list(dict.fromkeys(row.test for row in rows)), tmp_path)
    problems = [problem for row in rows if (problem := find_problem(row, outcomes))]
    assert problems == []


@pytest.mark.parametrize("name", switches.SWITCHES)
def test_a_switch_fits_what_it_switches_off(name: str, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        altered = switches.Alterations(patch)
        switches.SWITCHES[name](altered)
        altered.write_programs(tmp_path)


def test_a_switch_whose_place_has_changed_is_an_error(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        altered = switches.Alterations(patch)
        altered.replace("namespaces.py", "what is not there", "")
        with pytest.raises(pytest.UsageError, match="what is not there"):
            altered.write_programs(tmp_path)
