"""tests.harness.skips: in CI a skipped test fails with its reason; elsewhere it is skipped."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HOOKS = "from tests.harness.skips import pytest_make_collect_report, pytest_runtest_makereport\n"
IN_A_FIXTURE = """
@pytest.fixture
def database():
    pytest.skip("no database here")
def test_it(database): pass
"""
WAYS = {
    "body": "def test_it(): pytest.skip('no database here')",
    "fixture": IN_A_FIXTURE,
    "mark": "@pytest.mark.skipif(True, reason='no database here')\ndef test_it(): pass",
    "file": "pytest.skip('no database here', allow_module_level=True)",
}


def run(folder: Path, body: str, ci: str) -> "subprocess.CompletedProcess[str]":
    (folder / "pytest.ini").write_text(f"[pytest]\npythonpath = {ROOT}\n")
    (folder / "conftest.py").write_text(HOOKS)
    (folder / "test_one.py").write_text(f"import pytest\n{body}\n")
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", str(folder)]
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        command, cwd=folder, env=variables | {"CI": ci}, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("way", WAYS)
def test_a_skip_fails_in_ci_and_says_why(way: str, tmp_path: Path) -> None:
    ended = run(tmp_path, WAYS[way], "true")
    assert ended.returncode != 0
    assert "under CI=true nothing may be: no database here" in ended.stdout, ended.stdout


@pytest.mark.parametrize("way", WAYS)
def test_a_skip_stays_one_elsewhere(way: str, tmp_path: Path) -> None:
    ended = run(tmp_path, WAYS[way], "")
    assert "1 skipped" in ended.stdout and "no database here" in ended.stdout, ended.stdout


def test_an_expected_failure_is_no_skip(tmp_path: Path) -> None:
    ended = run(tmp_path, "@pytest.mark.xfail(reason='known')\ndef test_it(): assert False", "true")
    assert (ended.returncode, "1 xfailed" in ended.stdout) == (0, True), ended.stdout
