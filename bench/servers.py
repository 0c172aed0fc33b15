"""The measured servers: fairlead as users start it, the ceiling, and the peers, which
run already.

Our own servers print one line of JSON when they are ready, and are always stopped here.
"""

import asyncio
import os
import ssl
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson

from bench.failure import Failure
from bench.processes import cpu_seconds, list_processes, proportional_memory

OURS, CEILING = "fairlead", "ceiling"
ROOT = "/kubernetes/management"
READY_SECONDS = 30.0
END_SECONDS = 15.0
LOG_LINES = 20
SETTINGS = {
    "FAIRLEAD_WATCHES_PER_USER": "10000",
    "FAIRLEAD_STORED_OBJECTS_PER_USER": "10000000",
    "FAIRLEAD_STORED_BYTES_PER_USER": "100000000000",
}
"""All watches of a run belong to one user, and the objects of a row to one user: more than the defaults allow."""


@dataclass(frozen=True, slots=True)
class Server:
    """A running server. Requests to all servers have headers of the same size, so that they are comparable."""

    name: str
    host: str
    port: int
    headers: Mapping[str, str]
    root: str = ROOT
    """The path before `/apis`, as in the address in a kubeconfig."""
    ca_file: Path | None = None
    """None for a server whose certificate is not checked."""
    pids: tuple[int, ...] = ()
    """The processes, without their children. Empty for a peer whose memory and processor time are unknown."""
    start_seconds: float = 0.0

    @property
    def url(self) -> str:
        return f"https://{self.host}:{self.port}"

    def tls_context(self) -> ssl.SSLContext:
        if self.ca_file is not None:
            return ssl.create_default_context(cafile=self.ca_file)
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context

    def memory(self) -> int | None:
        """The resident memory of all processes in bytes."""
        return sum(map(proportional_memory, self._list_processes())) if self.pids else None

    def cpu_seconds(self) -> float | None:
        """The processor time that all processes have used so far."""
        return sum(map(cpu_seconds, self._list_processes())) if self.pids else None

    def _list_processes(self) -> list[int]:
        return [process for pid in self.pids for process in list_processes(pid)]

    def cpu_us_since(self, before: float | None, responses: int) -> float | None:
        """Processor time per response since then, in microseconds."""
        now = self.cpu_seconds()
        return None if now is None or before is None else (now - before) / responses * 1e6


def parse_peer(text: str) -> Server:
    """Parses `NAME=ROOT_URL,TOKEN[,PID[+PID...]]`. Raises ValueError with a message for users."""
    name, equals, rest = text.partition("=")
    url, comma, rest = rest.partition(",")
    token, _, pids = rest.partition(",")
    parts = urlsplit(url)
    if not (name and equals and comma and token) or parts.scheme != "https" or parts.hostname is None:
        raise ValueError("write NAME=https://HOST:PORT,TOKEN, with the address as a kubeconfig has it under `server`")
    if name in (OURS, CEILING):
        raise ValueError(f"{name} is the name of a server of the benchmark; choose another")
    headers = {"authorization": f"Bearer {token}"}
    root = parts.path.rstrip("/")
    pid_numbers = tuple(map(_parse_pid, pids.split("+") if pids else ()))
    return Server(name, parts.hostname, parts.port or 443, headers, root=root, pids=pid_numbers)


def _parse_pid(text: str) -> int:
    """Parses the id of a process whose processor time and memory can be read."""
    if not text.isdecimal():
        raise ValueError(f"{text!r} is not the id of a process; write NAME=https://HOST:PORT,TOKEN,PID+PID")
    try:
        cpu_seconds(int(text)), proportional_memory(int(text))
    except OSError as error:
        raise ValueError(f"the processor time and memory of process {text} cannot be read ({error.strerror})") from None
    return int(text)


@asynccontextmanager
async def run_fairlead(
    folder: Path, timeout_seconds: float = READY_SECONDS, store: str = "", workers: int = 1
) -> AsyncIterator[Server]:
    """Runs a server with its data in the folder, or in another store.

    The settings of the environment are ignored.
    """
    command = ("fairlead", "up", "--data", str(folder / "data"), "--port", "0", "--json")
    start = time.monotonic()
    settings = SETTINGS | {"FAIRLEAD_WORKERS": str(workers)} | ({"FAIRLEAD_STORE": store} if store else {})
    async with _run_process(command, folder / "fairlead.log", timeout_seconds, settings) as (pid, output):
        start_seconds = time.monotonic() - start
        headers = {"authorization": f"Bearer {output['accessKey']}"}
        host, port = _parse_address(OURS, output["url"])
        yield Server(
            OURS, host, port, headers, ca_file=Path(output["caFile"]), pids=(pid,), start_seconds=start_seconds
        )


@asynccontextmanager
async def run_ceiling(real_server: Server, folder: Path) -> AsyncIterator[Server]:
    """Runs the bare server, with the certificate of the real one."""
    if real_server.ca_file is None:
        raise RuntimeError("the ceiling uses the certificate of a server of ours")
    command = ("bench.ceiling", str(real_server.ca_file.parent))
    async with _run_process(command, folder / "ceiling.log", READY_SECONDS) as (pid, output):
        host, port = _parse_address(CEILING, output["url"])
        yield Server(CEILING, host, port, real_server.headers, ca_file=real_server.ca_file, pids=(pid,))


def _parse_address(name: str, url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    if parts.hostname is None or parts.port is None:
        raise Failure(f"{name} listens at {url}, which has no host and port")
    return parts.hostname, parts.port


@asynccontextmanager
async def _run_process(
    command: tuple[str, ...], log: Path, timeout_seconds: float, settings: Mapping[str, str] = SETTINGS
) -> AsyncIterator[tuple[int, dict[str, Any]]]:
    # The second start of a server normally uses compiled files, which this variable would prevent.
    ignored = ("FAIRLEAD_", "PYTHONDONTWRITEBYTECODE")
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(ignored)}
    environment = {**inherited, **settings}
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", *command, stdin=DEVNULL, stdout=PIPE, stderr=errors, env=environment
        )
    try:
        yield process.pid, await _read_output(process, timeout_seconds)
    except Failure as failure:
        raise Failure(f"{failure}{_last_lines(log)}") from None
    finally:
        await _stop(process)


async def _read_output(process: Process, timeout_seconds: float) -> dict[str, Any]:
    if process.stdout is None:
        raise RuntimeError("started without a pipe to read from")
    try:
        line = await asyncio.wait_for(process.stdout.readline(), timeout_seconds)
    except TimeoutError:
        raise Failure(f"a server was not ready within {timeout_seconds:.0f} seconds") from None
    if not line:
        raise Failure("a server ended before it was ready")
    output: dict[str, Any] = orjson.loads(line)
    return output


async def _stop(process: Process) -> None:
    if process.returncode is None:
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), END_SECONDS)
    except TimeoutError:
        process.kill()
        await process.wait()


def _last_lines(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()[-LOG_LINES:]
    return "\n".join(["", f"{log.name} ends with:", *lines]) if lines else ""
