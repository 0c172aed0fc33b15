"""A real server: its own process, its own data folder, real TLS with the authority verified.

`running` starts one and surely ends it. What it logs goes to a file, so that no pipe can fill up and stop it.
"""

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from tests.harness.fork_server import ForkedProcess, fork_program

ROOT = Path(__file__).resolve().parents[2]
MANAGEMENT = "/kubernetes/management"
CONFIGMAPS = f"{MANAGEMENT}/api/v1/namespaces/default/configmaps"

default_settings: dict[str, str | int] = {"workers": os.environ.get("TEST_WORKERS", "1")}
"""Settings of servers for which a test does not set them."""

TIMEOUT_SECONDS = 20.0
"""Seconds after which something that should have happened counts as not happening. Nothing is measured with it."""


@dataclass(frozen=True, slots=True)
class Server:
    """A running server and what its clients need."""

    process: ForkedProcess
    url: str
    key: str
    ca_file: str
    log: Path

    def client(self, key: str | None = "", *, http2: bool = False) -> httpx.Client:
        """A client with the administrator's key, another one, or (None) without any. HTTP/2 is for one thread only."""
        return httpx.Client(headers=self._headers(key), **self._connecting(http2))

    def async_client(self, *, http2: bool = False) -> httpx.AsyncClient:
        """A client for many requests at once."""
        return httpx.AsyncClient(headers=self._headers(""), **self._connecting(http2))

    def _headers(self, key: str | None) -> dict[str, str]:
        return {} if key is None else {"Authorization": f"Bearer {key or self.key}"}

    def _connecting(self, http2: bool) -> dict[str, Any]:
        trust = build_tls_context(self.ca_file, ("h2",) if http2 else ())
        return {"base_url": self.url, "verify": trust, "http1": not http2, "http2": http2, "timeout": TIMEOUT_SECONDS}

    def connect(self, *protocols: str, timeout: float = TIMEOUT_SECONDS) -> ssl.SSLSocket:
        """Opens a TLS connection, for requests that no HTTP client would send."""
        parts = urlsplit(self.url)
        host, context = parts.hostname or "", build_tls_context(self.ca_file, protocols)
        return context.wrap_socket(socket.create_connection((host, parts.port or 0), timeout), server_hostname=host)

    def pids(self) -> list[int]:
        """The process, and those of the owner and the workers if it has several."""
        main = self.process.pid
        children = map(int, Path(f"/proc/{main}/task/{main}/children").read_text().split())
        return [main, *(pid for pid in children if Path(f"/proc/{pid}/comm").read_text().startswith("fairlead-"))]

    def resident_bytes(self) -> int:
        """Bytes of memory in use."""
        return sum(map(_resident_bytes, self.pids()))

    def count_descriptors(self) -> int:
        return sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in self.pids())

    def cpu_seconds(self) -> float:
        """Processor time used since the start."""
        return sum(map(_cpu_seconds, self.pids()))

    def stop(self) -> int:
        """Asks it to stop, and waits. The exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(TIMEOUT_SECONDS)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(TIMEOUT_SECONDS)


def _resident_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@cache
def build_tls_context(ca_file: str, protocols: tuple[str, ...] = ()) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=ca_file)
    if protocols:
        context.set_alpn_protocols(protocols)
    return context


def server_command(folder: Path, *arguments: str, module: str = "fairlead", port: str | int = 0) -> Sequence[str]:
    return sys.executable, "-m", module, "up", "--data", str(folder), "--port", str(port), *arguments


def server_environment(**variables: str | int) -> dict[str, str]:
    """This process's, with the given settings and no other ones: `request_timeout=1`."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("FAIRLEAD_")}
    settings = {**default_settings, **variables}
    return inherited | {f"FAIRLEAD_{name.upper()}": str(value) for name, value in settings.items()}


@contextmanager
def running_server(folder: Path, module: str = "fairlead", /, **variables: str | int) -> Iterator[Server]:
    """A server on the folder, which may be one that another server has left. `module` is the program that it runs."""
    log = folder.parent / f"{folder.name}.log"
    arguments = server_command(folder, "--json", module=module, port=variables.get("port", 0))[3:]
    with log.open("ab") as errors:
        process = fork_program(module, arguments, server_environment(**variables), errors)
    try:
        line = process.stdout.readline()
        assert line, log.read_text()
        ready: dict[str, Any] = json.loads(line)
        yield Server(process, ready["url"], ready["accessKey"], ready["caFile"], log)
    finally:
        process.close()


@contextmanager
def running_agent(folder: Path, server: Server, cluster: str) -> Iterator[dict[str, Any]]:
    """`fairlead agent` for a cluster: what it says when it is ready. Its key and kubeconfig are in the folder."""
    log = folder / "agent.log"
    with log.open("ab") as errors:
        arguments = [
            *("agent", "--cluster", cluster, "--server", server.url),
            *("--key-file", str(folder / "key"), "--ca-file", server.ca_file, "--port", "0", "--json"),
            *("--kubeconfig", str(folder / "kubeconfig"), "--state", str(folder / "state")),
        ]
        process = fork_program("fairlead", arguments, server_environment(), errors)
    try:
        line = process.stdout.readline()
        assert line, log.read_text()
        yield json.loads(line)
        process.terminate()
        assert process.wait(TIMEOUT_SECONDS) == 0, log.read_text()
    finally:
        process.close()


def configmap(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def expect_startup_error(folder: Path, *arguments: str, module: str = "fairlead", **variables: str | int) -> str:
    """Returns the only line that a failing start prints."""
    result = subprocess.run(
        server_command(folder, *arguments, module=module),
        cwd=ROOT,
        env=server_environment(**variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=2 * TIMEOUT_SECONDS,
        check=False,
    )
    assert (result.returncode, result.stdout) == (1, ""), result.stderr
    assert result.stderr.startswith("fairlead: ") and result.stderr.count("\n") == 1, result.stderr
    return result.stderr
