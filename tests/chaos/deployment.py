"""A store and the replicas on it: real processes that can be killed, stopped and started again where they were."""

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

from fairlead.cli.server.admin_kubeconfig import read_key
from tests.harness.etcd_server import free_ports
from tests.harness.replicas import new_secrets
from tests.harness.server_process import ROOT, environment, trusting

START_SECONDS = 120.0
ANSWER_SECONDS = 3.0
"""Clients have less patience than faults last: they leave, and what they asked for may still be done."""
HISTORY = {"history_seconds": "300"}


@dataclass
class Replica:
    folder: Path
    port: int
    variables: Mapping[str, str]
    around: Mapping[str, str] = field(default_factory=dict)
    """What its process finds in the environment beside the settings."""
    process: "subprocess.Popen[bytes] | None" = None
    logged: int = 0
    """How much was in the log when the process was started."""

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        return self.folder.parent / f"{self.folder.name}.log"

    def start(self) -> None:
        command = [sys.executable, "-m", "fairlead", "serve", "--data", str(self.folder), "--port", str(self.port)]
        around = {**environment(**self.variables), **self.around}
        with self.log.open("ab") as log:
            self.logged = log.tell()
            self.process = subprocess.Popen(
                command, cwd=ROOT, env=around, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        """At once, with what it was doing half done. Also ends one that stands still."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


@dataclass
class World:
    replicas: list[Replica]
    clients: list[httpx.AsyncClient] = field(default_factory=list)
    odd: list[str] = field(default_factory=list)
    """What whoever breaks things has seen and should not have."""

    async def ready(self) -> None:
        """Returns once every replica answers and says that all is well."""
        for replica, client in zip(self.replicas, self.clients, strict=True):
            await _ready(replica, client)


async def _ready(replica: Replica, client: httpx.AsyncClient) -> None:
    deadline = time.monotonic() + START_SECONDS
    said = ""
    while True:
        try:
            answer = await client.get("/readyz", timeout=2.0)
            said = answer.text
            if answer.status_code == 200:
                return
        except httpx.HTTPError as error:
            said = repr(error)
        ended = replica.process is None or replica.process.poll() is not None
        if ended or time.monotonic() > deadline:
            raise AssertionError(f"{replica.url} is not ready: {said}\n{replica.log.read_text()[-3000:]}")
        await asyncio.sleep(0.02)


@asynccontextmanager
async def world(
    folder: Path, stores: list[str], settings: Mapping[str, str] | None = None, around: Sequence[Mapping[str, str]] = ()
) -> AsyncIterator[World]:
    """A replica for each address of the store; several addresses may lead to the same one."""
    variables = {**HISTORY, "log_level": "warning", "audit_path": "off", **new_secrets(), **(settings or {})}
    ports = free_ports(len(stores))
    replicas = [
        Replica(folder / f"replica{number}", port, {**variables, "store": store}, surroundings)
        for number, (store, port, surroundings) in enumerate(
            zip(stores, ports, around or [{}] * len(stores), strict=True)
        )
    ]
    made = World(replicas)
    try:
        headers = {"Authorization": f"Bearer {await _first_start(replicas[0])}"}
        certificate = replicas[0].folder / "tls"
        for replica in replicas[1:]:
            shutil.copytree(certificate, replica.folder / "tls")
            replica.folder.chmod(0o700)
            replica.start()
        trust = trusting(str(certificate / "ca.crt"))
        made.clients += [
            httpx.AsyncClient(base_url=replica.url, headers=headers, verify=trust, timeout=ANSWER_SECONDS)
            for replica in replicas
        ]
        await made.ready()
        yield made
    finally:
        for replica in replicas:
            replica.kill()
        for client in made.clients:
            await client.aclose()


async def _first_start(replica: Replica) -> str:
    """On an empty store: it makes the certificate that all replicas show, and the administrator's key."""
    replica.start()
    deadline = time.monotonic() + START_SECONDS
    while (key := read_key(replica.folder / "admin.kubeconfig")) is None:
        assert time.monotonic() < deadline, replica.log.read_text()
        await asyncio.sleep(0.05)
    return key
