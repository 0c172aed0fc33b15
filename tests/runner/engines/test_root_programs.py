"""Tests of `tests/runner/harness/root_programs.py`, which watches all tests with real containers."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.harness.eventually import wait_until
from tests.runner.harness.root_programs import HARNESS_VARIABLE, Watch, watch_root_programs


@contextmanager
def running(program: Path, environment: dict[str, str], *before: str) -> Iterator[None]:
    """A program that sleeps under another name, and has begun to."""
    if not program.exists():
        shutil.copy(shutil.which("sleep") or "", program)
        program.chmod(0o755)
    command = [*before, "/bin/sh", "-c", "echo started; exec $0 60", str(program)]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stdout.readline()
        name = Path(f"/proc/{process.pid}/comm")
        wait_until(lambda: name.read_text() == f"{program.name}\n")
        yield
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("name", "environment", "is_found"),
    [("git", {}, True), ("git", {HARNESS_VARIABLE: "1"}, False), ("other", {}, False)],
)
def test_a_program_of_the_list_that_is_root_is_found(
    name: str, environment: dict[str, str], is_found: bool, tmp_path: Path
) -> None:
    with running(tmp_path / name, environment):
        watch = Watch(os.getpid())
        watch.sample()
        assert any(str(tmp_path) in each for each in watch.found) == is_found


def test_a_program_that_is_not_root_is_seen_and_no_fault(tmp_path: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents[:-2]):
        folder.chmod(folder.stat().st_mode | 0o011)
    with running(tmp_path / "podman", {}, "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"):
        watch = Watch(os.getpid())
        watch.sample()
        assert "podman" in watch.seen
        assert not any(str(tmp_path) in each for each in watch.found)


def test_the_program_of_another_tree_is_not_looked_at(tmp_path: Path) -> None:
    with running(tmp_path / "git", {}), subprocess.Popen(["sleep", "60"]) as other:
        watch = Watch(other.pid)
        watch.sample()
        other.kill()
    assert not any(str(tmp_path) in each for each in watch.found)


def test_what_was_found_fails_at_the_end(tmp_path: Path) -> None:
    with (
        pytest.raises(AssertionError, match="ran as root"),
        watch_root_programs(os.getpid()) as watch,
        running(tmp_path / "git", {}),
    ):
        wait_until(lambda: bool(watch.found))
