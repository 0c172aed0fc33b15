"""Processes of the fork server behave as those of `subprocess` do."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.harness.fork_server import ForkedProcess, fork_program

PROGRAM = "tests.harness.echo_program"


def start(tmp_path: Path, *arguments: str, **variables: str) -> ForkedProcess:
    with (tmp_path / "errors").open("ab") as errors:
        return fork_program(PROGRAM, arguments, {**os.environ, **variables}, errors)


def test_a_process_gets_its_arguments_environment_and_streams(tmp_path: Path) -> None:
    process = start(tmp_path, "exit", "3", GREETING="hello")
    assert process.stdout.read() == f"['exit', '3'] hello {process.pid}\n".encode()
    assert process.wait(20) == process.poll() == process.returncode == 3
    assert (tmp_path / "errors").read_text() == "to the log\n"
    process.close()


def test_an_exception_is_the_exit_code_1_and_its_traceback(tmp_path: Path) -> None:
    process = start(tmp_path, "raise")
    assert process.wait(20) == 1
    assert "RuntimeError: as asked" in (tmp_path / "errors").read_text()
    process.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_signals_reach_the_process_and_are_its_exit_code(tmp_path: Path, number: signal.Signals) -> None:
    process, other = start(tmp_path, "wait"), start(tmp_path, "wait")
    process.stdout.readline()
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    assert process.poll() is None
    process.send_signal(number)
    assert process.wait(20) == -number
    process.send_signal(number)  # of no effect
    process.close()
    assert other.poll() is None
    other.close()
    assert other.returncode == -signal.SIGKILL
