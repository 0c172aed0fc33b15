"""Checks the import source of a virtual cluster: whether its kubeconfig is the one that the chart wrote in the cluster.

The result is recorded in `status.importedFrom`, which lets the server reach the virtual cluster through the connected
cluster. It counts for that kubeconfig, as long as the Secret in the cluster is the same object, and as long as the user
who has set the source may use that cluster. All of it is checked again from time to time.
"""

from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Callable

from fairlead.controllers.instances.cluster_access import ClusterAccess
from fairlead.controllers.instances.remote_errors import ERROR, WARNING, InstanceError, translate_errors
from fairlead.controllers.instances.remote_namespace import NAMESPACES_PATH, url_segment
from fairlead.core.objects import Object, get_path, metadata
from fairlead.domain.import_sources import (
    IMPORT_SOURCE_ANNOTATION,
    ImportSource,
    import_source_text,
    import_writer,
    parse_import_source,
)
from fairlead.domain.typed_objects import VirtualClusterInstance
from fairlead.registry.codec import decode
from fairlead.registry.registry import Registry
from fairlead.upstream.clusters import DEFAULT_KUBECONFIG_KEY, kubeconfig_digest, virtual_cluster_kubeconfig_ref
from fairlead.upstream.kube_client import get_or_none
from fairlead.upstream.kubeconfig import InvalidKubeconfig, parse_kubeconfig

RECHECK_SECONDS = 240.0
"""After this time, the next full reconcile reads the Secret in the cluster again; there is one in five minutes."""


MayUseCluster = Callable[[str, str], bool]
"""Whether a user, as recorded with the source of an import, may use a cluster."""


class ImportSources:
    def __init__(self, registry: Registry, clusters: ClusterAccess, may_use: MayUseCluster) -> None:
        self._may_use = may_use
        self._clock = registry.clock
        self._secrets = registry.resource("", "secrets")
        self._clusters = clusters
        self._due: dict[tuple[str, str], float] = {}

    def forget(self, key: tuple[str, str]) -> None:
        """The instance is gone."""
        self._due.pop(key, None)

    async def check(self, instance: VirtualClusterInstance) -> Object | None:
        """The value of `status.importedFrom`; None for an instance without a source. Raises InstanceError."""
        text = import_source_text(instance.raw)
        if not text:
            return None
        source = parse_import_source(text)
        if source is None:
            message = f"the annotation {IMPORT_SOURCE_ANNOTATION} must be CLUSTER/NAMESPACE/RELEASE; fix or remove it"
            raise InstanceError("InvalidImportSource", message, ERROR)
        self._require_use(instance, source)
        content = self._read_own(instance)
        known = instance.status.get("importedFrom") or {}
        wanted: Object = {
            "cluster": source.cluster,
            "namespace": source.namespace,
            "name": source.release,
            "kubeconfigDigest": kubeconfig_digest(content),
        }
        is_known = {field: known.get(field) for field in wanted} == wanted
        if is_known and self._clock.monotonic() < self._due.get(instance.key, 0.0):
            return dict(known)
        secret = await self._find_source(source)
        if secret is None and is_known:
            message = (
                f'cluster "{source.cluster}" has no secret "{source.secret_name}" in namespace "{source.namespace}" '
                "any more, in which a chart stored the kubeconfig of a virtual cluster; delete this instance if it is "
                "gone"
            )
            raise InstanceError("SourceNotFound", message, WARNING)
        uid = str(metadata(secret).get("uid") or "") if secret is not None else ""
        if not is_known or uid != known.get("secretUID"):
            _require_same(source, content, secret)
        self._due[instance.key] = self._clock.monotonic() + RECHECK_SECONDS
        return {**wanted, "secretUID": uid}

    def _require_use(self, instance: VirtualClusterInstance, source: ImportSource) -> None:
        writer = import_writer(instance.raw)
        if writer and self._may_use(writer, source.cluster):
            return
        who = (
            f'user "{writer}", who has set it, may not use that cluster' if writer else "it is not known who has set it"
        )
        message = (
            f'the annotation {IMPORT_SOURCE_ANNOTATION} names the cluster "{source.cluster}", but {who}; have a user '
            "with the verb use on the cluster remove it and set it again"
        )
        raise InstanceError("SourceNotAllowed", message, ERROR)

    def _read_own(self, instance: VirtualClusterInstance) -> bytes:
        """The kubeconfig that `spec.config` names; empty if there is none, which the probe reports."""
        reference = virtual_cluster_kubeconfig_ref(instance.raw)
        entry = self._secrets.get_cached(reference.namespace, reference.name)
        return _read_key(decode(entry), reference.key) if entry is not None else b""

    async def _find_source(self, source: ImportSource) -> Object | None:
        with translate_errors(source.cluster, f'read secret "{source.secret_name}"'):
            path = f"{NAMESPACES_PATH}/{url_segment(source.namespace)}/secrets/{url_segment(source.secret_name)}"
            return await get_or_none(self._clusters.cluster_api(source.cluster), path)


def _require_same(source: ImportSource, content: bytes, secret: Object | None) -> None:
    """Raises InstanceError unless the kubeconfigs lead to the same API server with the same credential. Those who do
    not have the kubeconfig are not told whether the Secret exists: the server can read those of all namespaces."""
    stored = _read_key(secret, DEFAULT_KUBECONFIG_KEY) if secret is not None else b""
    try:
        is_same = parse_kubeconfig(content) == parse_kubeconfig(stored)
    except InvalidKubeconfig:
        is_same = False
    if not is_same:
        message = (
            f'the kubeconfig in spec.config is not that of secret "{source.secret_name}" in namespace '
            f'"{source.namespace}" of cluster "{source.cluster}", or there is no such secret; see whether the virtual '
            "cluster runs there, and import it again"
        )
        raise InstanceError("SourceMismatch", message, ERROR)


def _read_key(secret: Object, key: str) -> bytes:
    data = get_path(secret, "data")
    try:
        return b64decode(data[key], validate=True) if isinstance(data, dict) else b""
    except (KeyError, TypeError, ValueError, NotBase64):
        return b""
