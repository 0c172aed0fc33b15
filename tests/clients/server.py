"""A real server for real clients: one `fairlead up` process with a data folder and a port of its own.

The server's log is read when it stops. A client may get all that it asked for and the server still have stumbled: a
traceback in the log fails the module.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parents[2]
GROUP = "management.service.sh"
VERSION = f"{GROUP}/v1"

STOP_SECONDS = 20


@dataclass(frozen=True, slots=True)
class Server:
    """What `fairlead up --json` prints."""

    url: str
    key: str
    kubeconfig: Path
    ca_file: Path

    @property
    def api_root(self) -> str:
        """Where the kinds of the management group are."""
        return f"{self.url}/kubernetes/management/apis/{VERSION}"


@contextmanager
def running(folder: Path) -> Iterator[Server]:
    """A server that answers, and that has ended without a stumble afterwards."""
    log_file = folder / "server.log"
    with log_file.open("w") as log:
        process = start("--data", str(folder / "data"), "--port", "0", "--json", stderr=log)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, log_file.read_text()
        told = json.loads(line)
        yield Server(told["url"], told["accessKey"], Path(told["kubeconfig"]), Path(told["caFile"]))
    finally:
        stop(process)
    trouble = log_file.read_text()
    assert process.returncode == 0, trouble
    assert "Traceback" not in trouble, trouble


def start(*arguments: str, stdout: int = subprocess.PIPE, stderr: IO[str] | None = None) -> "subprocess.Popen[str]":
    """`fairlead up` in the project's folder, untouched by settings of whoever runs the tests."""
    return subprocess.Popen(
        [sys.executable, "-m", "fairlead", "up", *arguments],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if not name.startswith("FAIRLEAD_")},
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        text=True,
    )


def stop(process: "subprocess.Popen[str]") -> None:
    """Asks it to end, and ends it if it does not."""
    process.terminate()
    try:
        process.communicate(timeout=STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
