"""How controllers access connected clusters and virtual clusters. Created by the composition root."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from fairlead.core.objects import Object
from fairlead.upstream.access import ClusterEndpoint
from fairlead.upstream.clusters import NotConnected, UpstreamRegistry
from fairlead.upstream.kube_client import KubeApi, KubeClient, RequestSender
from fairlead.upstream.local_gateway import local_gateway
from fairlead.upstream.tunnel_pods import PodTarget

VIRTUAL_CLUSTER_TIMEOUT = 4.0
"""Timeout of each request to a virtual cluster. Its owner controls how slowly it answers."""
MAX_VERSION_BYTES = 8 * 1024


class ClusterAccess(Protocol):
    """All methods raise UpstreamError, and so do the returned objects."""

    def cluster_api(self, name: str, impersonate_user: str = "") -> KubeApi:
        """The API of a cluster. With `impersonate_user`, requests impersonate that user of the cluster."""

    def watch_sender(self, name: str) -> RequestSender:
        """The connection to a cluster for watches, which are long-lived."""

    def virtual_cluster_api(self, namespace: str, name: str) -> KubeApi:
        """The API of a virtual cluster, with a short timeout."""

    def virtual_cluster_cleanup_api(self, namespace: str, name: str) -> AbstractAsyncContextManager[KubeApi]:
        """The API of a virtual cluster whose instance is being deleted, for the cleanup inside. Closed on exit."""

    async def virtual_cluster_version(self, namespace: str, name: str, *, is_new_connection: bool) -> Object:
        """The `/version` response of a virtual cluster. On a new connection, its certificate is verified again. Raises
        RemoteApiError, too."""

    def close_virtual_cluster(self, namespace: str, name: str) -> None:
        """Closes all connections to a virtual cluster that is deleted or being deleted, or whose tunnel may no longer
        be used."""

    def virtual_cluster_target(self, namespace: str, name: str) -> PodTarget | None:
        """The pod that a tunnel to a virtual cluster leads to; None if it is reached directly, or not at all."""

    def open_cluster_endpoint(self, cluster: str) -> AbstractAsyncContextManager[ClusterEndpoint]:
        """How another program reaches the cluster until the exit: through this process, which has the credential."""

    def open_virtual_cluster_endpoint(self, namespace: str, name: str) -> AbstractAsyncContextManager[ClusterEndpoint]:
        """The same for a virtual cluster. `namespace` is that of the project."""


@dataclass(frozen=True, slots=True)
class RegistryClusterAccess:
    upstreams: UpstreamRegistry

    def cluster_api(self, name: str, impersonate_user: str = "") -> KubeApi:
        return KubeClient(self.upstreams.system_upstream(name), impersonate_user=impersonate_user)

    def watch_sender(self, name: str) -> RequestSender:
        return self.upstreams.watch_upstream(name)

    def virtual_cluster_api(self, namespace: str, name: str) -> KubeApi:
        return KubeClient(self.upstreams.virtual_cluster_system_upstream(namespace, name), VIRTUAL_CLUSTER_TIMEOUT)

    @asynccontextmanager
    async def virtual_cluster_cleanup_api(self, namespace: str, name: str) -> AsyncIterator[KubeApi]:
        async with self.upstreams.open_virtual_cluster_cleanup(namespace, name) as upstream:
            yield KubeClient(upstream, VIRTUAL_CLUSTER_TIMEOUT)

    async def virtual_cluster_version(self, namespace: str, name: str, *, is_new_connection: bool) -> Object:
        upstream = self.upstreams.virtual_cluster_system_upstream(namespace, name)
        if is_new_connection:
            upstream.close_idle()  # a pooled connection would not check the current certificate
        return await KubeClient(upstream, VIRTUAL_CLUSTER_TIMEOUT, MAX_VERSION_BYTES).get("/version")

    def close_virtual_cluster(self, namespace: str, name: str) -> None:
        self.upstreams.close_withdrawn_virtual_cluster(namespace, name)

    def virtual_cluster_target(self, namespace: str, name: str) -> PodTarget | None:
        try:
            tunnel = self.upstreams.virtual_cluster_tunnel(namespace, name)
        except NotConnected:
            return None
        return tunnel.target if tunnel is not None else None

    @asynccontextmanager
    async def open_cluster_endpoint(self, cluster: str) -> AsyncIterator[ClusterEndpoint]:
        async with self.upstreams.open_helm_upstream(cluster) as upstream, local_gateway(upstream) as endpoint:
            yield endpoint

    @asynccontextmanager
    async def open_virtual_cluster_endpoint(self, namespace: str, name: str) -> AsyncIterator[ClusterEndpoint]:
        async with (
            self.upstreams.open_virtual_cluster_helm_upstream(namespace, name) as upstream,
            local_gateway(upstream) as endpoint,
        ):
            yield endpoint
