"""Warnings are errors in all tests, on every supported Python; what is exempt has a reason."""

import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"


def test_a_warning_is_an_error() -> None:
    with pytest.raises(DeprecationWarning):
        warnings.warn("about something old", DeprecationWarning, stacklevel=1)


FAULTS = """
import gc
import socket
import threading

async def wait():
    pass

def test_coroutine():
    wait()
    gc.collect()

def test_socket():
    socket.socket()
    gc.collect()

def test_thread():
    thread = threading.Thread(target=lambda: 1 / 0)
    thread.start()
    thread.join()

def test_without_fault():
    pass
"""


def test_what_is_not_awaited_or_closed_or_fails_in_a_thread_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "test_faults.py").write_text(FAULTS)
    command = [sys.executable, "-m", "pytest", "-vv", "-c", str(PROJECT), "-p", "no:cacheprovider", str(tmp_path)]
    output = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    assert re.findall(r"test_(\w+) (PASSED|FAILED)", output) == [
        ("coroutine", "FAILED"),
        ("socket", "FAILED"),
        ("thread", "FAILED"),
        ("without_fault", "PASSED"),
    ], output


def test_each_exception_has_a_reason() -> None:
    lines = [line.strip() for line in PROJECT.read_text().splitlines()]
    start = lines.index("filterwarnings = [")
    assert lines[start - 1].startswith("#") and lines[start + 1] == '"error",'
    exceptions = lines[start + 2 : lines.index("]", start)]
    assert all("  # " in each or each.startswith("#") for each in exceptions)
