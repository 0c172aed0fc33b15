"""A server process for tests with real clients: one `fairlead up` with its own data folder and port.

The server's log is read when the server stops: a traceback in it fails the module, even if all clients succeeded.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tests.harness.fork_server import fork_program

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
        """The URL of the management group's resources."""
        return f"{self.url}/kubernetes/management/apis/{VERSION}"


@contextmanager
def run_server(folder: Path) -> Iterator[Server]:
    """Runs a server, and checks afterwards that it exited without an error."""
    log_file = folder / "server.log"
    arguments = ("up", "--data", str(folder / "data"), "--port", "0", "--json")
    with log_file.open("wb") as log:
        process = fork_program("fairlead", arguments, environment_without_settings(), log)
    try:
        line = process.stdout.readline()
        assert line, log_file.read_text()
        ready = json.loads(line)
        yield Server(ready["url"], ready["accessKey"], Path(ready["kubeconfig"]), Path(ready["caFile"]))
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
        process.close()
    log_text = log_file.read_text()
    assert process.returncode == 0, log_text
    assert "Traceback" not in log_text, log_text


def start_server(
    *arguments: str, stdout: int = subprocess.PIPE, stderr: IO[str] | None = None, **variables: str
) -> "subprocess.Popen[str]":
    """Starts `fairlead up` in the repository's root, without the FAIRLEAD_ variables of the environment."""
    return subprocess.Popen(
        [sys.executable, "-m", "fairlead", "up", *arguments],
        cwd=ROOT,
        env=environment_without_settings() | variables,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        text=True,
    )


def environment_without_settings() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("FAIRLEAD_")}


def stop_process(process: "subprocess.Popen[str]") -> None:
    """Terminates the process, and kills it after a timeout."""
    process.terminate()
    try:
        process.communicate(timeout=STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
