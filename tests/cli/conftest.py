"""Real `fairlead` processes: started by a test, and surely ended with it."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

Fairlead = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def fairlead() -> Iterator[Fairlead]:
    """`fairlead("up", "--json", FAIRLEAD_LOG_LEVEL="debug")` starts the command; its output is there to be read."""
    started: list[subprocess.Popen[str]] = []
    ours = {key: value for key, value in os.environ.items() if not key.startswith("FAIRLEAD_")}

    def start(*arguments: str, **variables: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, "-m", "fairlead", *arguments],
            cwd=ROOT,
            env=ours | variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()
