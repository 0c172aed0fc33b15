"""Connects the cluster that the server runs in, as the setting `local_cluster` asks for.

The leader writes address, CA and token of its pod's service account into a kubeconfig Secret and creates the Cluster
that names it. The kubelet rotates the token about hourly, and a token ends with its pod, so the Secret is compared
with the pod's files every few seconds: the gateways and the controllers of all replicas follow it as they follow any
other Secret. Everything else of the Cluster belongs to the administrators.
"""

import asyncio
import base64

import structlog
import yaml

from fairlead.core.errors import AlreadyExists, ApiError
from fairlead.core.files import FileProblem
from fairlead.core.objects import Object, get_path
from fairlead.registry.codec import decode
from fairlead.registry.registry import Registry
from fairlead.registry.resource import Resource
from fairlead.registry.write_options import server_write_options
from fairlead.upstream.access import ClusterEndpoint
from fairlead.upstream.clusters import CLUSTERS, DEFAULT_KUBECONFIG_KEY
from fairlead.upstream.local_cluster import ClusterEndpointSource

SECRET_NAME = "local-cluster"
INTERVAL_SECONDS = 10.0

log = structlog.get_logger(__name__)


class ForeignCluster(Exception):
    """Another Cluster has the name. The message says what to do."""


class LocalClusterConnector:
    """Keeps the Cluster called `name`, and its Secret in `namespace`, in line with what `source` reads."""

    def __init__(
        self, registry: Registry, api_group: str, name: str, namespace: str, source: ClusterEndpointSource
    ) -> None:
        self._clusters = registry.resource(api_group, CLUSTERS)
        self._secrets = registry.resource("", "secrets")
        self._name = name
        self._namespace = namespace
        self._source = source
        self._reported = ""

    async def run(self) -> None:
        """Connects the cluster, and follows its credential until cancelled."""
        while True:
            try:
                await self.connect()
                self._reported = ""
            except (FileProblem, ApiError, ForeignCluster) as error:
                self._report(error.message if isinstance(error, ApiError) else str(error))
            await asyncio.sleep(INTERVAL_SECONDS)

    async def connect(self) -> None:
        """Writes the Secret and the Cluster if they are missing or outdated.

        Raises FileProblem, ApiError or ForeignCluster.
        """
        endpoint = self._source()
        cluster = _cached_object(self._clusters, "", self._name)
        if cluster is not None and not self._is_ours(cluster):
            raise ForeignCluster(
                f'the Cluster "{self._name}" is another one; delete it, or change the setting local_cluster'
            )
        await self._write_secret(_encode_kubeconfig(endpoint))
        if cluster is None:
            await self._create_cluster()

    def _is_ours(self, cluster: Object) -> bool:
        """Whether it is local and names the Secret that is written here, and not one of another namespace."""
        config = get_path(cluster, "spec.config") or {}
        is_our_secret = (config.get("secretName"), config.get("secretNamespace")) == (SECRET_NAME, self._namespace)
        return bool(get_path(cluster, "spec.local")) and is_our_secret

    async def _write_secret(self, kubeconfig: bytes) -> None:
        data = {DEFAULT_KUBECONFIG_KEY: base64.b64encode(kubeconfig).decode()}
        secret = _cached_object(self._secrets, self._namespace, SECRET_NAME)
        if secret is None:
            body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET_NAME}, "data": data}
            await _create(self._secrets, body, self._namespace)
        elif secret.get("data") != data:
            await self._secrets.modify(
                self._namespace, SECRET_NAME, lambda stored: {**stored, "data": data}, server_write_options()
            )

    async def _create_cluster(self) -> None:
        spec = {"local": True, "config": {"secretName": SECRET_NAME, "secretNamespace": self._namespace}}
        await _create(self._clusters, self._clusters.kind.build({"name": self._name}, spec=spec), "")

    def _report(self, reason: str) -> None:
        """Logs a problem once, not in every round."""
        if reason != self._reported:
            log.warning("the local cluster is not connected", cluster=self._name, reason=reason)
        self._reported = reason


def _cached_object(resource: Resource, namespace: str, name: str) -> Object | None:
    entry = resource.get_cached(namespace, name)
    return decode(entry) if entry is not None else None


async def _create(resource: Resource, body: Object, namespace: str) -> None:
    try:
        await resource.create(body, namespace, server_write_options())
    except AlreadyExists:  # the view is a moment behind; the next round compares
        return


def _encode_kubeconfig(endpoint: ClusterEndpoint) -> bytes:
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    authority = base64.b64encode(endpoint.ca_data.encode()).decode()
    cluster = {"server": f"https://{host}:{endpoint.port}", "certificate-authority-data": authority}
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "local", "cluster": cluster}],
            "users": [{"name": "local", "user": {"token": endpoint.token}}],
            "contexts": [{"name": "local", "context": {"cluster": "local", "user": "local"}}],
            "current-context": "local",
        }
    ).encode()
