"""Replicas on a store: real processes that can be killed, frozen and restarted at the same address."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from fairlead.client.admin_kubeconfig import read_key
from tests.harness.fork_server import ForkedProcess, fork_program
from tests.harness.free_ports import free_ports
from tests.harness.replicas import new_secrets
from tests.harness.server_process import ROOT, build_tls_context, server_environment

START_SECONDS = 120.0
RESPONSE_SECONDS = 3.0
"""Shorter than some faults, so that clients give up on requests that may still be applied."""
HISTORY = {"history_seconds": "300"}


@dataclass
class Replica:
    folder: Path
    port: int
    variables: Mapping[str, str]
    extra_environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of its process beside the settings."""
    process: "subprocess.Popen[bytes] | ForkedProcess | None" = None
    log_offset: int = 0
    """The size of the log when the process was started."""

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        return self.folder.parent / f"{self.folder.name}.log"

    def start(self) -> None:
        """As a fork, unless it has variables such as those of the dynamic linker, which only a new program reads."""
        arguments = ["serve", "--data", str(self.folder), "--port", str(self.port)]
        environment = server_environment(**self.variables)
        with self.log.open("ab") as log:
            self.log_offset = log.tell()
            if not self.extra_environment:
                self.process = fork_program("fairlead", arguments, environment, stderr=log, stdout=log)
                return
            self.process = subprocess.Popen(
                [sys.executable, "-m", "fairlead", *arguments],
                cwd=ROOT,
                env={**environment, **self.extra_environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None
        os.kill(self.process.pid, number)

    def find_children(self, name: str) -> list[int]:
        """The processes of this name that belong to a server with several workers."""
        assert self.process is not None
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [int(pid) for pid in children if Path(f"/proc/{pid}/comm").read_text().strip() == name]

    def kill(self) -> None:
        """Kills the process at once, also a frozen one."""
        if isinstance(self.process, ForkedProcess):
            self.process.close()
        elif self.process is not None:
            self.process.kill()
            self.process.wait()
        self.process = None


@dataclass
class Deployment:
    replicas: list[Replica]
    clients: list[httpx.AsyncClient] = field(default_factory=list)
    anomalies: list[str] = field(default_factory=list)
    """Unexpected observations of the faults."""

    async def wait_until_ready(self) -> None:
        """Waits until every replica is ready."""
        for replica, client in zip(self.replicas, self.clients, strict=True):
            await _wait_until_ready(replica, client)


async def _wait_until_ready(replica: Replica, client: httpx.AsyncClient) -> None:
    deadline = time.monotonic() + START_SECONDS
    last_response = ""
    while True:
        try:
            response = await client.get("/readyz", timeout=2.0)
            last_response = response.text
            if response.status_code == 200:
                return
        except httpx.HTTPError as error:
            last_response = repr(error)
        has_ended = replica.process is None or replica.process.poll() is not None
        if has_ended or time.monotonic() > deadline:
            raise AssertionError(f"{replica.url} is not ready: {last_response}\n{replica.log.read_text()[-3000:]}")
        await asyncio.sleep(0.02)


@asynccontextmanager
async def run_deployment(
    folder: Path,
    stores: list[str],
    settings: Mapping[str, str] | None = None,
    extra_environment: Sequence[Mapping[str, str]] = (),
) -> AsyncIterator[Deployment]:
    """Starts a replica for each store address. Several addresses may lead to the same store."""
    variables = {**HISTORY, "log_level": "warning", "audit_path": "off", **new_secrets(), **(settings or {})}
    ports = free_ports(len(stores))
    replicas = [
        Replica(folder / f"replica{number}", port, {**variables, "store": store}, variables_of_replica)
        for number, (store, port, variables_of_replica) in enumerate(
            zip(stores, ports, extra_environment or [{}] * len(stores), strict=True)
        )
    ]
    running = Deployment(replicas)
    try:
        headers = {"Authorization": f"Bearer {await _start_first(replicas[0])}"}
        certificate = replicas[0].folder / "tls"
        for replica in replicas[1:]:
            shutil.copytree(certificate, replica.folder / "tls")
            replica.folder.chmod(0o700)
            replica.start()
        tls_context = build_tls_context(str(certificate / "ca.crt"))
        running.clients += [
            httpx.AsyncClient(base_url=replica.url, headers=headers, verify=tls_context, timeout=RESPONSE_SECONDS)
            for replica in replicas
        ]
        await running.wait_until_ready()
        yield running
    finally:
        for replica in replicas:
            replica.kill()
        for client in running.clients:
            await client.aclose()


async def _start_first(replica: Replica) -> str:
    """Starts the first replica, which creates the certificate of all replicas and the administrator's key."""
    replica.start()
    deadline = time.monotonic() + START_SECONDS
    while (key := read_key(replica.folder / "admin.kubeconfig")) is None:
        assert time.monotonic() < deadline, replica.log.read_text()
        await asyncio.sleep(0.05)
    return key
