"""Real etcd servers for the tests: Debian's etcd on free loopback ports, in a temporary folder, stopped by their pid.

`running_etcd` runs a cluster for one test and always ends its processes, also if the test fails or is skipped while it
starts. `open_etcd` opens a store for each folder, on one server that all tests share and that ends with them.
"""

import atexit
import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

from fairlead.storage.contract import StoreUnavailable
from fairlead.storage.etcd import EtcdStore, parse_address
from tests.harness.free_ports import free_ports

START_SECONDS = 30.0
MISSING = "no etcd on the PATH; install it (Debian: apt-get install etcd-server)"
MISSING_CLIENT = "no etcdctl on the PATH; install it (Debian: apt-get install etcd-client)"
FAST = ["--heartbeat-interval=20", "--election-timeout=200"]
"""Elects a new leader in a fraction of a second: the members are on one machine."""


def find_etcd() -> str:
    """Returns the path of etcd. Without etcd the test is skipped, or fails in CI."""
    path = shutil.which("etcd")
    if path is None and os.environ.get("CI") == "true":
        pytest.fail(MISSING)
    if path is None:
        pytest.skip(MISSING)
    return path


@dataclass
class EtcdMember:
    """One etcd process, which can be killed, stopped, and restarted on its data."""

    folder: Path
    port: int
    command: list[str]
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*self.command, f"--data-dir={self.folder}/data"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        """At once, as a power cut would. Also ends one that was stopped by SIGSTOP."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def has_ended(self) -> bool:
        """Whether the process has ended without being killed."""
        return self.process is not None and self.process.poll() is not None

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.port}"


@dataclass
class EtcdCluster:
    folder: Path
    members: list[EtcdMember] = field(default_factory=list)
    options: str = ""
    """The query string of its addresses."""
    login: str = ""

    def url(self, prefix: str = "tests", members: list[EtcdMember] | None = None) -> str:
        hosts = ",".join(member.endpoint for member in members or self.members)
        return f"//{self.login}{hosts}/{prefix}{self.options}"

    async def open(self, prefix: str = "tests", members: list[EtcdMember] | None = None) -> EtcdStore:
        return await EtcdStore.open(parse_address(self.url(prefix, members), {}))

    async def wait_until_ready(self) -> None:
        """Waits until the cluster responds."""
        end = time.monotonic() + START_SECONDS
        while True:
            try:
                await (await self.open("ready")).close()
                return
            except StoreUnavailable as error:
                if time.monotonic() > end:
                    logs = [(member.folder / "log").read_text()[-2000:] for member in self.members]
                    raise AssertionError(f"etcd did not start: {error}\n" + "\n".join(logs)) from error

    def etcdctl(self, *arguments: str) -> str:
        """Runs etcdctl. Without it, the test is skipped: Debian has it in a separate package."""
        path = shutil.which("etcdctl")
        if path is None:
            pytest.skip(MISSING_CLIENT)
        hosts = ",".join(member.endpoint for member in self.members)
        command = [path, f"--endpoints={hosts}", *arguments]
        return subprocess.run(
            command, check=True, capture_output=True, text=True, env={**os.environ, "ETCDCTL_API": "3"}
        ).stdout

    def start(self) -> None:
        """Starts the members; `ready` waits for them."""
        for member in self.members:
            member.start()

    def stop(self) -> None:
        for member in self.members:
            member.kill()


@asynccontextmanager
async def running_etcd(
    folder: Path, size: int = 1, extra: list[str] | None = None, scheme: str = "http", options: str = ""
) -> AsyncIterator[EtcdCluster]:
    """Runs a cluster for the duration of the block. `options` are the options in its addresses."""
    cluster = _build_cluster(folder, size, extra or [], scheme)
    cluster.options = options
    try:
        cluster.start()
        await cluster.wait_until_ready()
        yield cluster
    finally:
        cluster.stop()


def _build_cluster(folder: Path, size: int = 1, extra: list[str] | None = None, scheme: str = "http") -> EtcdCluster:
    """Builds a cluster that is not started yet."""
    etcd = find_etcd()
    ports = free_ports(2 * size)
    clients, peers = ports[:size], ports[size:]
    peer_urls = ",".join(f"m{number}=http://127.0.0.1:{port}" for number, port in enumerate(peers))
    cluster = EtcdCluster(folder)
    for number, (client, peer) in enumerate(zip(clients, peers, strict=True)):
        addresses = [
            f"--listen-client-urls={scheme}://127.0.0.1:{client}",
            f"--advertise-client-urls={scheme}://127.0.0.1:{client}",
            f"--listen-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
        ]
        command = [etcd, f"--name=m{number}", f"--initial-cluster={peer_urls}", *addresses, *FAST, *(extra or [])]
        cluster.members.append(EtcdMember(folder / f"m{number}", client, command))
    return cluster


@cache
def shared_cluster() -> EtcdCluster:
    """Starts the server that tests share; it ends with this process."""
    find_etcd()
    folder = Path(tempfile.mkdtemp(prefix="fairlead-etcd-"))
    cluster = _build_cluster(folder)

    def end() -> None:
        cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(end)
    cluster.start()
    return cluster


async def open_etcd(folder: Path) -> EtcdStore:
    """Opens the store that belongs to a folder, always the same one."""
    fresh = shared_cluster.cache_info().currsize == 0
    cluster = shared_cluster()
    if fresh:
        await cluster.wait_until_ready()
    return await cluster.open(f"tests/{hashlib.sha256(str(folder).encode()).hexdigest()[:16]}")
