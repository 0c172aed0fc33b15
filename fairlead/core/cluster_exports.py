"""What GitOps tools read to reach a cluster through its gateway: cluster Secrets of Argo CD, and ClusterProfiles of the
Cluster Inventory API.

`fairlead cluster export` prints these objects, and `controllers/clusters/exports.py` keeps them in the cluster in which
the tool runs. Neither contains a credential of the exported cluster: a Secret has an access key of this server that is
good for the gateway of that cluster alone, and a ClusterProfile has none.
"""

import json
from base64 import b64encode
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from urllib.parse import quote

from fairlead.core.clock import timestamp
from fairlead.core.objects import Object, get_path, metadata, name_of
from fairlead.core.truncation import truncate_with_hash

EXPORT_LABEL = "service.sh/export"
"""Label on exported objects and on their access keys: the format."""
EXPORT_CLUSTER_LABEL = "service.sh/export-cluster"
"""Label on the same: the exported cluster."""
EXPORT_FOR_LABEL = "service.sh/export-for"
"""Label on access keys that the command line made: for which tool."""
CLUSTER_UID_ANNOTATION = "service.sh/export-cluster-uid"
"""Annotation on access keys. The server deletes a key when no Cluster has this uid."""
KEY_NAME_ANNOTATION = "service.sh/access-key"
"""Annotation on exported Secrets: the access key whose value is in it."""
EXPIRY_ANNOTATION = "service.sh/access-key-expires"
INSTALLATION_ANNOTATION = "service.sh/installation"
"""Annotation on exported objects: the installation of Fairlead that writes them. Others are never overwritten."""
ARGOCD_ANNOTATION = "service.sh/export-argocd"
"""Annotation of the Cluster in which Argo CD runs: the namespace in which the server keeps cluster Secrets."""
USER_ANNOTATION = "service.sh/export-user"
"""Annotation of that Cluster: the user that Argo CD acts as."""
SELECTOR_ANNOTATION = "service.sh/export-selector"
"""Annotation of that Cluster: a label selector of the Clusters to export. All of them without it."""
EXPORT_ANNOTATIONS = (ARGOCD_ANNOTATION, USER_ANNOTATION, SELECTOR_ANNOTATION)
DESTINATION_LABEL = "service.sh/export-destination"
"""Label on access keys that the server made: the Cluster in which their Secrets are."""
NAMESPACE_ANNOTATION = "service.sh/export-namespace"
"""Annotation on these access keys: the namespace of the Secret."""
MANAGED_BY_LABEL, MANAGED_BY = "app.kubernetes.io/managed-by", "fairlead"

SECRET_TYPE_LABEL = "argocd.argoproj.io/secret-type"
PROFILE_API, PROFILE_VERSION = "multicluster.x-k8s.io", "v1alpha1"
CLUSTER_MANAGER_LABEL = "x-k8s.io/cluster-manager"
ACCESS_PROVIDER = "fairlead"
"""Name of the access provider. The provider file of the consumer has the same."""
EXEC_EXTENSION = "client.authentication.k8s.io/exec"
"""Reserved extension of a cluster: it becomes `spec.cluster.config` of what a credential plugin is given."""
CLUSTER_FIELD = "clusterName"

_MAX_NAME = 253
_OWN_LABEL_DOMAINS = ("service.sh/", "argoproj.io/", "x-k8s.io/", "app.kubernetes.io/")
"""Labels of a Cluster that are not copied: those that say what an exported object is, and whose. Argo CD takes one with
`app.kubernetes.io/instance` for a part of the application of that name, and may delete it with that."""


class ExportFormat(StrEnum):
    ARGOCD = "argocd"
    CLUSTERPROFILE = "clusterprofile"


@dataclass(frozen=True, slots=True)
class Gateways:
    """Where a tool reaches the gateways: the URL of the server, and its CA as PEM, empty for a public one."""

    url: str
    authority: str = ""
    installation: str = ""

    def server(self, cluster: str) -> str:
        return f"{self.url.rstrip('/')}{gateway_path(cluster)}"


@dataclass(frozen=True, slots=True)
class ExportKey:
    """The access key of one exported Secret."""

    name: str
    value: str = field(repr=False)
    expires: datetime | None = None


@dataclass(frozen=True, slots=True)
class DeclaredExport:
    """What the annotations of a Cluster declare."""

    namespace: str
    user: str
    selector: str

    @staticmethod
    def of(cluster: Object) -> "DeclaredExport | None":
        """None if the Cluster declares no export. A Cluster that is being deleted keeps none."""
        annotations = metadata(cluster).get("annotations") or {}
        namespace = annotations.get(ARGOCD_ANNOTATION)
        if not namespace or "deletionTimestamp" in metadata(cluster):
            return None
        return DeclaredExport(
            namespace, annotations.get(USER_ANNOTATION) or "", annotations.get(SELECTOR_ANNOTATION) or ""
        )


def find_connection_problem(cluster: Object, system_namespace: str) -> str:
    """Why the server writes no keys into a cluster that is connected as it is; empty if it does.

    Who writes the kubeconfig Secret leads the Cluster elsewhere. In the system namespace, only administrators do.
    """
    namespace = get_path(cluster, "spec.config.secretNamespace") or system_namespace
    if get_path(cluster, "spec.networkPeer") or namespace == system_namespace:
        return ""
    return (
        f'its kubeconfig is in the namespace "{namespace}", where others than administrators may replace it and so get '
        f"the access keys; move the Secret to {system_namespace}, or connect an agent"
    )


def is_due(end: datetime | None, ttl: int, now: datetime) -> bool:
    """Whether an exported key is to be replaced: at half of its life."""
    return end is None or end - now <= timedelta(seconds=ttl / 2)


def gateway_path(cluster: str) -> str:
    return f"/kubernetes/cluster/{quote(cluster, safe='')}"


def gateway_scope(cluster: str) -> Object:
    """The scope of a key that passes the gateway of one cluster. An entry in `clusters` would also allow reading the
    Cluster itself."""
    return {"rules": [{"requestTargets": ["Cluster"], "cluster": cluster}]}


def secret_name(cluster: str) -> str:
    return truncate_with_hash(f"fairlead-{cluster}", _MAX_NAME)


def build_key(cluster: str, format: ExportFormat, spec: Object, label: tuple[str, str] | None = None) -> Object:
    """An access key for the gateway of a cluster, to be created. `spec` has its owner and lifetime."""
    labels = {EXPORT_LABEL: format.value, EXPORT_CLUSTER_LABEL: truncate_with_hash(cluster)}
    return {
        "kind": "OwnedAccessKey",
        "metadata": {
            "generateName": f"{truncate_with_hash(f'export-{cluster}')}-",
            "labels": {**labels, **dict([label] if label else [])},
        },
        "spec": {
            "displayName": f"Gateway of cluster {cluster}",
            "type": "Other",
            "scope": gateway_scope(cluster),
            **spec,
        },
    }


def build_stored_key(cluster: Object, spec: Object, label: tuple[str, str]) -> Object:
    """The access key of an exported Secret. It ends with this Cluster, and is not good for a later one of its name."""
    key = build_key(name_of(cluster), ExportFormat.ARGOCD, spec, label)
    return {**key, "metadata": {**key["metadata"], "annotations": {CLUSTER_UID_ANNOTATION: metadata(cluster)["uid"]}}}


def build_argocd_secret(cluster: Object, gateways: Gateways, key: ExportKey, namespace: str, project: str) -> Object:
    """The Secret by which Argo CD knows a cluster. `project` restricts it to a project of Argo CD, if not empty."""
    name = name_of(cluster)
    tls: Object = {"insecure": False}
    if gateways.authority:
        tls["caData"] = b64encode(gateways.authority.encode()).decode()
    config = {"bearerToken": key.value, "tlsClientConfig": tls}
    texts = {"name": name, "server": gateways.server(name), "config": json.dumps(config, separators=(",", ":"))}
    if project:
        texts["project"] = project
    annotations = {KEY_NAME_ANNOTATION: key.name}
    if key.expires is not None:
        annotations[EXPIRY_ANNOTATION] = timestamp(key.expires)
    if gateways.installation:
        annotations[INSTALLATION_ANNOTATION] = gateways.installation
    labels = {**exported_labels(cluster, ExportFormat.ARGOCD), SECRET_TYPE_LABEL: "cluster"}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": secret_name(name),
            "namespace": namespace,
            "labels": labels,
            "annotations": annotations,
        },
        "type": "Opaque",
        "data": {field: b64encode(text.encode()).decode() for field, text in texts.items()},
    }


def build_profile(cluster: Object, gateways: Gateways, namespace: str) -> Object:
    """The ClusterProfile of a cluster, with its status, which is a subresource."""
    name = name_of(cluster)
    labels = {**exported_labels(cluster, ExportFormat.CLUSTERPROFILE), CLUSTER_MANAGER_LABEL: MANAGED_BY}
    meta: Object = {"name": name, "namespace": namespace, "labels": labels}
    if gateways.installation:
        meta["annotations"] = {INSTALLATION_ANNOTATION: gateways.installation}
    endpoint: Object = {"server": gateways.server(name)}
    if gateways.authority:
        endpoint["certificate-authority-data"] = b64encode(gateways.authority.encode()).decode()
    endpoint["extensions"] = [{"name": EXEC_EXTENSION, "extension": {CLUSTER_FIELD: name}}]
    status: Object = {"accessProviders": [{"name": ACCESS_PROVIDER, "cluster": endpoint}]}
    if condition := _healthy_condition(cluster):
        status["conditions"] = [condition]
    if version := get_path(cluster, "status.version"):
        status["version"] = {"kubernetes": version}
    return {
        "apiVersion": f"{PROFILE_API}/{PROFILE_VERSION}",
        "kind": "ClusterProfile",
        "metadata": meta,
        "spec": {
            "displayName": str(get_path(cluster, "spec.displayName") or name),
            "clusterManager": {"name": MANAGED_BY},
        },
        "status": status,
    }


def exported_labels(cluster: Object, format: ExportFormat) -> dict[str, str]:
    """The labels of the Cluster, by which tools select, and those that say where the object comes from."""
    name = name_of(cluster)
    own = metadata(cluster).get("labels") or {}
    copied = {key: value for key, value in own.items() if not any(part in key for part in _OWN_LABEL_DOMAINS)}
    return {
        **copied,
        EXPORT_LABEL: format.value,
        EXPORT_CLUSTER_LABEL: truncate_with_hash(name),
        MANAGED_BY_LABEL: MANAGED_BY,
    }


def _healthy_condition(cluster: Object) -> Object | None:
    """`ControlPlaneHealthy`, from the condition Ready. Without its times of probes, so that it changes seldom."""
    conditions: list[Any] = get_path(cluster, "status.conditions") or []
    ready = next((each for each in conditions if each.get("type") == "Ready"), None)
    if ready is None:
        return None
    return {
        "type": "ControlPlaneHealthy",
        "status": ready.get("status") or "Unknown",
        "reason": ready.get("reason") or "Unknown",
        "message": ready.get("message") or "",
        "lastTransitionTime": ready.get("lastTransitionTime"),
    }
