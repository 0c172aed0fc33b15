"""The ways from controllers into connected clusters, and virtual clusters. The composition root makes it."""

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
"""For each question to a virtual cluster. Its owner may have it answer as slowly as he likes."""
VERSION_LIMIT = 8 * 1024


class Reach(Protocol):
    """All of it raises UpstreamError, and what it returns does."""

    def cluster(self, name: str, acting_as: str = "") -> Api:
        """With `acting_as`, as that user of the cluster and not as the stored credential."""

    def watching(self, name: str) -> Sender:
        """The way to a cluster for watches, which last."""

    def virtual_cluster(self, namespace: str, name: str) -> Api:
        """For our own questions, which are given up soon."""

    def leaving_virtual_cluster(self, namespace: str, name: str) -> AbstractAsyncContextManager[Api]:
        """A way to one whose instance is being deleted, to remove what was made inside. It is closed at the end."""

    async def version(self, namespace: str, name: str) -> Object:
        """What a virtual cluster answers when it is asked for its version. Raises FarError, too."""

    def forget_virtual_cluster(self, namespace: str, name: str) -> None:
        """Ends all connections to one that is gone or going."""

    async def access(self, cluster: str) -> Access:
        """How another program reaches the cluster, at an address that was judged already."""

    async def resolve(self, host: str, port: int) -> str:
        """An address of a host that this server may talk to."""


@dataclass(frozen=True, slots=True)
class ConnectedReach:
    registry: Registry
    api_group: str
    system_namespace: str
    connected: Connected
    judge: Callable[[str, int], Awaitable[str]]
    """`resolve` of the address policy."""

    def cluster(self, name: str, acting_as: str = "") -> Api:
        return ClusterApi(self.connected.probing(name), acting_as=acting_as)

    def watching(self, name: str) -> Sender:
        return self.connected.watching(name)

    def virtual_cluster(self, namespace: str, name: str) -> Api:
        return ClusterApi(self.connected.probing_virtual_cluster(namespace, name), PROBE_SECONDS)

    @asynccontextmanager
    async def leaving_virtual_cluster(self, namespace: str, name: str) -> AsyncIterator[Api]:
        way = self.connected.leaving_virtual_cluster(namespace, name)
        try:
            yield ClusterApi(way, PROBE_SECONDS)
        finally:
            await way.close()

    async def version(self, namespace: str, name: str) -> Object:
        way = self.connected.probing_virtual_cluster(namespace, name)
        way.close_idle()  # a kept connection says nothing of the certificate that is presented by now
        return await ClusterApi(way, PROBE_SECONDS, VERSION_LIMIT).get("/version")

    def forget_virtual_cluster(self, namespace: str, name: str) -> None:
        self.connected.forget_virtual_cluster(namespace, name)

    async def access(self, cluster: str) -> Access:
        entry = self.registry.resource(self.api_group, CLUSTERS).peek("", cluster)
        reference = cluster_reference(decode(entry), self.system_namespace) if entry is not None else None
        if reference is None:
            raise NotConnected("NoConfig", f'"{cluster}" is not connected; name a secret in its spec.config')
        try:
            found = parse(self.connected.kubeconfig(reference))
        except BadKubeconfig as error:
            raise NotConnected(
                "BadKubeconfig", f"the kubeconfig cannot be used: {'; '.join(error.problems)}"
            ) from error
        # The program would look the name up once more, and might get another answer than the one that was judged.
        return replace(found, host=await self.judge(found.host, found.port))

    async def resolve(self, host: str, port: int) -> str:
        return await self.judge(host, port)
