"""The cluster that an agent stands beside: how to reach it, read again and again, because credentials are renewed.

Whoever starts an agent chooses its cluster by a file on its own machine, so no address is off limits here.
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
"""Where every pod finds the token of its service account and the cluster's authority."""
LIMITS = Limits(requests=1024, sockets=1024, waiting=1024)

log = structlog.get_logger(__name__)

Reading = Callable[[], Access]
"""How the cluster is reached as of now. Raises FileProblem."""


def from_kubeconfig(path: Path) -> Reading:
    def reading() -> Access:
        content = read_file(path)
        if content is None:
            raise FileProblem(f"{path}: no such file; name a kubeconfig for the cluster with --kubeconfig")
        try:
            return parse(content)
        except BadKubeconfig as error:
            raise FileProblem("\n".join(f"{path}: {problem}" for problem in error.problems)) from None

    return reading


def from_pod(folder: Path = POD_FILES) -> Reading:
    """The cluster that this process runs in, by its pod's service account."""

    def reading() -> Access:
        host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        token, authority = read_file(folder / "token"), read_file(folder / "ca.crt")
        if not host or not port.isdecimal() or not token or not authority:
            advice = "run it in a pod with a service account, or name a kubeconfig with --kubeconfig"
            raise FileProblem(f"{folder}: this is no pod of a cluster; {advice}")
        return Access(host, int(port), "", host, authority.decode(), token.decode().strip())

    return reading


class Nearby:
    """The connection to the cluster. Raises FileProblem when it is made and there is no way to reach one."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._access = reading()
        self._upstream = Upstream(self._access, resolve, LIMITS)
        self._leaving: list[Upstream] = []

    def __call__(self) -> Upstream:
        return self._upstream

    async def run(self) -> None:
        """Looks again until it is cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self.look()

    async def look(self) -> None:
        """Changes over to another credential, if there is one. What is under way ends with the one that it has."""
        try:
            access = self._reading()
        except FileProblem as error:
            log.warning("the cluster's credential cannot be read; the old one is kept", reason=str(error))
            return
        if access != self._access:
            self._leaving.append(self._upstream)
            self._access, self._upstream = access, Upstream(access, resolve, LIMITS)
        for each in [each for each in self._leaving if not each.in_use]:
            self._leaving.remove(each)
            await each.close()

    async def close(self) -> None:
        for each in (*self._leaving, self._upstream):
            await each.close()


async def resolve(host: str, port: int) -> str:
    """The first address of a name."""
    with suppress(OSError, UnicodeError):
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        if found:
            return str(found[0][4][0])
    raise Unreachable("the cluster's name does not resolve; see the agent's kubeconfig and DNS")
