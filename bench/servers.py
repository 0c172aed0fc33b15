"""The two processes that are measured: fairlead as anybody would start it, and the ceiling beside it.

Both print one line of JSON when they are ready, both end on SIGTERM, and both are ended here whatever happens.
"""

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson

from bench.failure import Failure

READY_SECONDS = 30.0
END_SECONDS = 15.0
LOG_LINES = 20


@dataclass(frozen=True, slots=True)
class Server:
    """A server that answers. Requests to both carry the same headers, so that both have the same to read."""

    name: str
    pid: int
    host: str
    port: int
    ca_file: Path
    headers: Mapping[str, str]

    @property
    def url(self) -> str:
        return f"https://{self.host}:{self.port}"

    def memory(self) -> int:
        """Resident memory in bytes."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        (line,) = [line for line in status.splitlines() if line.startswith("VmRSS:")]
        return int(line.split()[1]) * 1024

    def cpu_seconds(self) -> float:
        """Processor time used so far, by all threads."""
        # The command's name is in parentheses and may hold spaces; what follows it does not.
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@asynccontextmanager
async def fairlead(folder: Path) -> AsyncIterator[Server]:
    """A new server with its data in the folder. The environment's settings are left out: they would be measured."""
    command = ("fairlead", "up", "--data", str(folder / "data"), "--port", "0", "--json")
    async with _running(command, folder / "fairlead.log") as (pid, told):
        headers = {"authorization": f"Bearer {told['accessKey']}"}
        yield _server("fairlead", pid, told["url"], Path(told["caFile"]), headers)


@asynccontextmanager
async def ceiling(beside: Server, folder: Path) -> AsyncIterator[Server]:
    """The bare server, with the certificate of the real one."""
    tls = beside.ca_file.parent
    async with _running(("bench.ceiling", str(tls)), folder / "ceiling.log") as (pid, told):
        yield _server("the ceiling", pid, told["url"], beside.ca_file, beside.headers)


def _server(name: str, pid: int, url: str, ca_file: Path, headers: Mapping[str, str]) -> Server:
    parts = urlsplit(url)
    if parts.hostname is None or parts.port is None:
        raise Failure(f"{name} says that it listens at {url}, which names no host and port")
    return Server(name, pid, parts.hostname, parts.port, ca_file, headers)


@asynccontextmanager
async def _running(command: tuple[str, ...], log: Path) -> AsyncIterator[tuple[int, dict[str, Any]]]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("FAIRLEAD_")}
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", *command, stdin=DEVNULL, stdout=PIPE, stderr=errors, env=environment
        )
    try:
        yield process.pid, await _told(process)
    except Failure as failure:
        raise Failure(f"{failure}{_last_lines(log)}") from None
    finally:
        await _end(process)


async def _told(process: Process) -> dict[str, Any]:
    if process.stdout is None:
        raise RuntimeError("started without a pipe to read from")
    try:
        line = await asyncio.wait_for(process.stdout.readline(), READY_SECONDS)
    except TimeoutError:
        raise Failure(f"a server was not ready within {READY_SECONDS:.0f} seconds") from None
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
