"""How controllers access connected clusters and virtual clusters. Created by the composition root."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Protocol

from fairlead.controllers.instances.remote_namespace import Api
from fairlead.core.objects import Object
from fairlead.registry.codec import decode
from fairlead.registry.registry import Registry
from fairlead.upstream.access import Access
from fairlead.upstream.clusters import CLUSTERS, Connected, NotConnected, cluster_reference
from fairlead.upstream.kube_client import ClusterApi, Sender
from fairlead.upstream.kubeconfig import BadKubeconfig, parse

PROBE_SECONDS = 4.0
"""Timeout of each request to a virtual cluster. Its owner controls how slowly it answers."""
VERSION_LIMIT = 8 * 1024


class Reach(Protocol):
    """All methods raise UpstreamError, and so do the returned objects."""

    def cluster(self, name: str, acting_as: str = "") -> Api:
        """The API of a cluster. With `impersonate_user`, requests impersonate that user of the cluster."""

    def watching(self, name: str) -> Sender:
        """The connection to a cluster for watches, which are long-lived."""

    def virtual_cluster(self, namespace: str, name: str) -> Api:
        """The API of a virtual cluster, with a short timeout."""

    def leaving_virtual_cluster(self, namespace: str, name: str) -> AbstractAsyncContextManager[Api]:
        """The API of a virtual cluster whose instance is being deleted, for the cleanup inside. Closed on exit."""

    async def version(self, namespace: str, name: str) -> Object:
        """The `/version` response of a virtual cluster. Raises RemoteApiError, too."""

    def forget_virtual_cluster(self, namespace: str, name: str) -> None:
        """Closes all connections to a virtual cluster that is deleted or being deleted."""

    async def access(self, cluster: str) -> Access:
        """How another program connects to the cluster, with an address that the address policy has allowed."""

    async def resolve(self, host: str, port: int) -> str:
        """Resolves a host to an address that the address policy allows."""


@dataclass(frozen=True, slots=True)
class ConnectedReach:
    registry: Registry
    api_group: str
    system_namespace: str
    connected: Connected
    judge: Callable[[str, int], Awaitable[str]]
    """`resolve` of the address policy (`upstream/address_policy.py`)."""

    def cluster(self, name: str, acting_as: str = "") -> Api:
        return ClusterApi(self.connected.probing(name), acting_as=acting_as)

    def watching(self, name: str) -> Sender:
        return self.connected.watching(name)

    def virtual_cluster(self, namespace: str, name: str) -> Api:
        return ClusterApi(self.connected.probing_virtual_cluster(namespace, name), PROBE_SECONDS)

    @asynccontextmanager
    async def leaving_virtual_cluster(self, namespace: str, name: str) -> AsyncIterator[Api]:
        upstream = self.connected.leaving_virtual_cluster(namespace, name)
        try:
            yield ClusterApi(upstream, PROBE_SECONDS)
        finally:
            await upstream.close()

    async def version(self, namespace: str, name: str) -> Object:
        upstream = self.connected.probing_virtual_cluster(namespace, name)
        upstream.close_idle()  # a pooled connection would not check the current certificate
        return await ClusterApi(upstream, PROBE_SECONDS, VERSION_LIMIT).get("/version")

    def forget_virtual_cluster(self, namespace: str, name: str) -> None:
        self.connected.forget_virtual_cluster(namespace, name)

    async def access(self, cluster: str) -> Access:
        entry = self.registry.resource(self.api_group, CLUSTERS).peek("", cluster)
        reference = cluster_reference(decode(entry), self.system_namespace) if entry is not None else None
        if reference is None:
            raise NotConnected("NoConfig", f'cluster "{cluster}" is not connected; name a secret in its spec.config')
        try:
            endpoint = parse(self.connected.kubeconfig(reference))
        except BadKubeconfig as error:
            raise NotConnected(
                "BadKubeconfig", f"the kubeconfig cannot be used: {'; '.join(error.problems)}"
            ) from error
        # Pin the checked address: the program would resolve the name again, and might get a different one.
        return replace(endpoint, host=await self.judge(endpoint.host, endpoint.port))

    async def resolve(self, host: str, port: int) -> str:
        return await self.judge(host, port)
