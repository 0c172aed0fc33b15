"""The cluster of a local kubeconfig, or of the service account of the pod that this process runs in.

The credential is read again, because it is rotated.

The agent has one, and so has a server behind a kube-apiserver. Their operator chooses the cluster with a local file, so
there is no address policy here.
"""

import asyncio
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import structlog

from fairlead.core.files import FileProblem, read_file
from fairlead.upstream.access import CONTROLLER_AGENT, ClusterEndpoint
from fairlead.upstream.dial import DirectDialer, resolve_host
from fairlead.upstream.kubeconfig import InvalidKubeconfig, parse_kubeconfig
from fairlead.upstream.upstream import DialledExchanges, Limits, Upstream, dialled_exchanges

SERVICE_ACCOUNT_DIR = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where pods find their service account token and the cluster's CA certificate."""

ClusterEndpointSource = Callable[[], ClusterEndpoint]
"""Reads the current endpoint and credential of the cluster. Raises FileProblem."""


def api_server_address(environment: Mapping[str, str] = os.environ) -> tuple[str, int] | None:
    """Host and port of the API server from a pod's environment; None outside of a pod."""
    host = environment.get("KUBERNETES_SERVICE_HOST", "")
    port = environment.get("KUBERNETES_SERVICE_PORT", "443")
    return (host, int(port)) if host and port.isdecimal() else None


def in_cluster_source(advice: str, folder: Path = SERVICE_ACCOUNT_DIR) -> ClusterEndpointSource:
    """`advice` says what to do if the process does not run in a pod with a service account."""

    def read_endpoint() -> ClusterEndpoint:
        address = api_server_address()
        token = read_file(folder / "token")
        authority = read_file(folder / "ca.crt")
        if address is None or not token or not authority:
            raise FileProblem(f"{folder}: not running in a pod; {advice}")
        return ClusterEndpoint(*address, "", address[0], authority.decode(), token.decode().strip())

    return read_endpoint


RELOAD_SECONDS = 30.0
LIMITS = Limits(max_requests=1024, max_websockets=1024, max_queued=1024)

log = structlog.get_logger(__name__)


def kubeconfig_source(path: Path, advice: str) -> ClusterEndpointSource:
    """`advice` says what to do if there is no such file."""

    def read_endpoint() -> ClusterEndpoint:
        content = read_file(path)
        if content is None:
            raise FileProblem(f"{path}: no such file; {advice}")
        try:
            return parse_kubeconfig(content)
        except InvalidKubeconfig as error:
            raise FileProblem("\n".join(f"{path}: {problem}" for problem in error.problems)) from None

    return read_endpoint


class LocalCluster:
    """The Upstream of the cluster. The constructor raises FileProblem if its endpoint cannot be read."""

    def __init__(self, source: ClusterEndpointSource, limits: Limits = LIMITS) -> None:
        self._source = source
        self._limits = limits
        self._endpoint = source()
        self.exchanges = self._connect(self._endpoint)
        """For the agent, which passes on what others have sent."""
        self._upstream = Upstream(self.exchanges, limits)
        self._draining: list[Upstream] = []

    def __call__(self) -> Upstream:
        return self._upstream

    def _connect(self, endpoint: ClusterEndpoint) -> DialledExchanges:
        dialer = DirectDialer(endpoint, resolve_host)
        return dialled_exchanges(endpoint, dialer, self._limits, CONTROLLER_AGENT)

    async def run(self) -> None:
        """Reloads the credential periodically, until cancelled."""
        while True:
            await asyncio.sleep(RELOAD_SECONDS)
            try:
                await self.reload_credentials()
            except Exception:  # the next attempt may succeed; without one, the credential would expire
                log.exception("cannot use the cluster's credential; the old one stays in use")

    async def reload_credentials(self) -> None:
        """Switches to a new Upstream if the credential has changed. Open requests finish on the old one."""
        try:
            endpoint = self._source()
        except FileProblem as error:
            log.warning("cannot read the cluster's credential; the old one stays in use", reason=str(error))
            return
        if endpoint != self._endpoint:
            renewed = self._connect(endpoint)  # may fail: then nothing has changed
            upstream = Upstream(renewed, self._limits)
            self._draining.append(self._upstream)
            self._endpoint = endpoint
            self.exchanges = renewed
            self._upstream = upstream
        for each in [each for each in self._draining if not each.in_use]:
            self._draining.remove(each)
            await each.close()

    async def close(self) -> None:
        for each in (*self._draining, self._upstream):
            await each.close()
