"""The agent's own cluster: its endpoint and credential, reloaded periodically because credentials are rotated.

The operator of the agent chooses the cluster with a local file, so there is no address policy here.
"""

import asyncio
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import structlog

from fairlead.core.files import FileProblem, read_file
from fairlead.upstream.access import Access
from fairlead.upstream.errors import Unreachable
from fairlead.upstream.kubeconfig import BadKubeconfig, parse
from fairlead.upstream.upstream import Limits, Upstream

LOOK_SECONDS = 30.0
POD_FILES = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where pods find their service account token and the cluster's CA certificate."""
LIMITS = Limits(requests=1024, sockets=1024, waiting=1024)

log = structlog.get_logger(__name__)

Reading = Callable[[], Access]
"""Reads the current endpoint and credential of the cluster. Raises FileProblem."""


def from_kubeconfig(path: Path) -> Reading:
    def read_endpoint() -> Access:
        content = read_file(path)
        if content is None:
            raise FileProblem(f"{path}: no such file; specify the cluster's kubeconfig with --kubeconfig")
        try:
            return parse(content)
        except BadKubeconfig as error:
            raise FileProblem("\n".join(f"{path}: {problem}" for problem in error.problems)) from None

    return read_endpoint


def from_pod(folder: Path = POD_FILES) -> Reading:
    """In-cluster configuration: the cluster that this process runs in, with its pod's service account."""

    def read_endpoint() -> Access:
        host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        token, authority = read_file(folder / "token"), read_file(folder / "ca.crt")
        if not host or not port.isdecimal() or not token or not authority:
            advice = "run the agent in a pod with a service account, or specify a kubeconfig with --kubeconfig"
            raise FileProblem(f"{folder}: not running in a pod; {advice}")
        return Access(host, int(port), "", host, authority.decode(), token.decode().strip())

    return read_endpoint


class Nearby:
    """The Upstream of the agent's cluster. The constructor raises FileProblem if its endpoint cannot be read."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._access = reading()
        self._upstream = Upstream(self._access, resolve, LIMITS)
        self._leaving: list[Upstream] = []

    def __call__(self) -> Upstream:
        return self._upstream

    async def run(self) -> None:
        """Reloads the credential periodically, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self.look()

    async def look(self) -> None:
        """Switches to a new Upstream if the credential has changed. Open requests finish on the old one."""
        try:
            endpoint = self._reading()
        except FileProblem as error:
            log.warning("cannot read the cluster's credential; the old one stays in use", reason=str(error))
            return
        if endpoint != self._access:
            self._leaving.append(self._upstream)
            self._access, self._upstream = endpoint, Upstream(endpoint, resolve, LIMITS)
        for each in [each for each in self._leaving if not each.in_use]:
            self._leaving.remove(each)
            await each.close()

    async def close(self) -> None:
        for each in (*self._leaving, self._upstream):
            await each.close()


async def resolve(host: str, port: int) -> str:
    """Resolves a host name to its first address. Raises Unreachable."""
    with suppress(OSError, UnicodeError):
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        if found:
            return str(found[0][4][0])
    raise Unreachable("the cluster's host name does not resolve; check the agent's kubeconfig and DNS")
