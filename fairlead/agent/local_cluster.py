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
from fairlead.upstream.access import ClusterEndpoint
from fairlead.upstream.errors import Unreachable
from fairlead.upstream.kubeconfig import InvalidKubeconfig, parse_kubeconfig
from fairlead.upstream.upstream import Limits, Upstream

RELOAD_SECONDS = 30.0
SERVICE_ACCOUNT_DIR = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where pods find their service account token and the cluster's CA certificate."""
LIMITS = Limits(max_requests=1024, max_websockets=1024, max_queued=1024)

log = structlog.get_logger(__name__)

ClusterEndpointSource = Callable[[], ClusterEndpoint]
"""Reads the current endpoint and credential of the cluster. Raises FileProblem."""


def kubeconfig_source(path: Path) -> ClusterEndpointSource:
    def read_endpoint() -> ClusterEndpoint:
        content = read_file(path)
        if content is None:
            raise FileProblem(f"{path}: no such file; specify the cluster's kubeconfig with --kubeconfig")
        try:
            return parse_kubeconfig(content)
        except InvalidKubeconfig as error:
            raise FileProblem("\n".join(f"{path}: {problem}" for problem in error.problems)) from None

    return read_endpoint


def in_cluster_source(folder: Path = SERVICE_ACCOUNT_DIR) -> ClusterEndpointSource:
    """In-cluster configuration: the cluster that this process runs in, with its pod's service account."""

    def read_endpoint() -> ClusterEndpoint:
        host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        token, authority = read_file(folder / "token"), read_file(folder / "ca.crt")
        if not host or not port.isdecimal() or not token or not authority:
            advice = "run the agent in a pod with a service account, or specify a kubeconfig with --kubeconfig"
            raise FileProblem(f"{folder}: not running in a pod; {advice}")
        return ClusterEndpoint(host, int(port), "", host, authority.decode(), token.decode().strip())

    return read_endpoint


class LocalCluster:
    """The Upstream of the agent's cluster. The constructor raises FileProblem if its endpoint cannot be read."""

    def __init__(self, source: ClusterEndpointSource) -> None:
        self._source = source
        self._endpoint = source()
        self._upstream = Upstream(self._endpoint, resolve_host, LIMITS)
        self._draining: list[Upstream] = []

    def __call__(self) -> Upstream:
        return self._upstream

    async def run(self) -> None:
        """Reloads the credential periodically, until cancelled."""
        while True:
            await asyncio.sleep(RELOAD_SECONDS)
            await self.reload_credentials()

    async def reload_credentials(self) -> None:
        """Switches to a new Upstream if the credential has changed. Open requests finish on the old one."""
        try:
            endpoint = self._source()
        except FileProblem as error:
            log.warning("cannot read the cluster's credential; the old one stays in use", reason=str(error))
            return
        if endpoint != self._endpoint:
            self._draining.append(self._upstream)
            self._endpoint, self._upstream = endpoint, Upstream(endpoint, resolve_host, LIMITS)
        for each in [each for each in self._draining if not each.in_use]:
            self._draining.remove(each)
            await each.close()

    async def close(self) -> None:
        for each in (*self._draining, self._upstream):
            await each.close()


async def resolve_host(host: str, port: int) -> str:
    """Resolves a host name to its first address. Raises Unreachable."""
    with suppress(OSError, UnicodeError):
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        if found:
            return str(found[0][4][0])
    raise Unreachable("the cluster's host name does not resolve; check the agent's kubeconfig and DNS")
