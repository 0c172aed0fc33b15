"""The processes that are measured: fairlead as anybody would start it, and the ceiling beside it. And the peers, which
somebody else has started.

Ours print one line of JSON when they are ready, end on SIGTERM, and are ended here whatever happens.
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

OURS, CEILING = "fairlead", "ceiling"
ROOT = "/kubernetes/management"
READY_SECONDS = 30.0
END_SECONDS = 15.0
LOG_LINES = 20
SETTINGS = {"FAIRLEAD_WATCHES_PER_USER": "10000"}
"""All watches of a run belong to one user, and are more than the default allows."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server that answers. Requests to all carry headers of the same size, so that all have the same to read."""

    name: str
    host: str
    port: int
    headers: Mapping[str, str]
    root: str = ROOT
    """What stands before `/apis` in every path, as in the address in a kubeconfig."""
    ca_file: Path | None = None
    """None for a server whose certificate is not looked at."""
    pid: int | None = None
    """None for a server that somebody else has started: its memory and its work are not known."""
    start_seconds: float = 0.0

    @property
    def url(self) -> str:
        return f"https://{self.host}:{self.port}"

    def trusting(self) -> ssl.SSLContext:
        if self.ca_file is not None:
            return ssl.create_default_context(cafile=self.ca_file)
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context

    def memory(self) -> int:
        """Resident memory in bytes."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        (line,) = [line for line in status.splitlines() if line.startswith("VmRSS:")]
        return int(line.split()[1]) * 1024

    def cpu_seconds(self) -> float | None:
        """Processor time used so far, by all threads."""
        if self.pid is None:
            return None
        # The command's name is in parentheses and may hold spaces; what follows it does not.
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def cpu_us_since(self, before: float | None, answers: int) -> float | None:
        """Processor time for each answer since then, in microseconds."""
        now = self.cpu_seconds()
        return None if now is None or before is None else (now - before) / answers * 1e6


def peer(text: str) -> Server:
    """`NAME=ROOT_URL,TOKEN` -> the server. ValueError, in words for people, where that is not its form."""
    name, equals, rest = text.partition("=")
    url, comma, token = rest.partition(",")
    parts = urlsplit(url)
    if not (name and equals and comma and token) or parts.scheme != "https" or parts.hostname is None:
        raise ValueError("write NAME=https://HOST:PORT,TOKEN, with the address as a kubeconfig has it under `server`")
    if name in (OURS, CEILING):
        raise ValueError(f"{name} is the name of a server of the benchmark's own; choose another")
    headers = {"authorization": f"Bearer {token}"}
    return Server(name, parts.hostname, parts.port or 443, headers, root=parts.path.rstrip("/"))


@asynccontextmanager
async def fairlead(folder: Path, patience: float = READY_SECONDS, store: str = "") -> AsyncIterator[Server]:
    """A server with its data in the folder, or in another store.

    The environment's settings are left out: they would be measured.
    """
    command = ("fairlead", "up", "--data", str(folder / "data"), "--port", "0", "--json")
    begun = time.monotonic()
    settings = SETTINGS | ({"FAIRLEAD_STORE": store} if store else {})
    async with _running(command, folder / "fairlead.log", patience, settings) as (pid, told):
        taken = time.monotonic() - begun
        headers = {"authorization": f"Bearer {told['accessKey']}"}
        host, port = _place(OURS, told["url"])
        yield Server(OURS, host, port, headers, ca_file=Path(told["caFile"]), pid=pid, start_seconds=taken)


@asynccontextmanager
async def ceiling(beside: Server, folder: Path) -> AsyncIterator[Server]:
    """The bare server, with the certificate of the real one."""
    if beside.ca_file is None:
        raise RuntimeError("the ceiling uses the certificate of a server of ours")
    command = ("bench.ceiling", str(beside.ca_file.parent))
    async with _running(command, folder / "ceiling.log", READY_SECONDS) as (pid, told):
        host, port = _place(CEILING, told["url"])
        yield Server(CEILING, host, port, beside.headers, ca_file=beside.ca_file, pid=pid)


def _place(name: str, url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    if parts.hostname is None or parts.port is None:
        raise Failure(f"{name} says that it listens at {url}, which names no host and port")
    return parts.hostname, parts.port


@asynccontextmanager
async def _running(
    command: tuple[str, ...], log: Path, patience: float, settings: Mapping[str, str] = SETTINGS
) -> AsyncIterator[tuple[int, dict[str, Any]]]:
    # Whoever starts a server a second time has compiled files, unless this variable keeps Python from leaving any.
    left_out = ("FAIRLEAD_", "PYTHONDONTWRITEBYTECODE")
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(left_out)}
    environment = {**inherited, **settings}
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", *command, stdin=DEVNULL, stdout=PIPE, stderr=errors, env=environment
        )
    try:
        yield process.pid, await _told(process, patience)
    except Failure as failure:
        raise Failure(f"{failure}{_last_lines(log)}") from None
    finally:
        await _end(process)


async def _told(process: Process, patience: float) -> dict[str, Any]:
    if process.stdout is None:
        raise RuntimeError("started without a pipe to read from")
    try:
        line = await asyncio.wait_for(process.stdout.readline(), patience)
    except TimeoutError:
        raise Failure(f"a server was not ready within {patience:.0f} seconds") from None
    if not line:
        raise Failure("a server ended before it was ready")
    told: dict[str, Any] = orjson.loads(line)
    return told


async def _end(process: Process) -> None:
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
