"""Objects as users write them into files, for the tests of all clients."""

from typing import Any

import yaml

from tests.clients.server import VERSION

Body = dict[str, Any]


def build_app(name: str, /, labels: dict[str, str] | None = None, **spec: Any) -> Body:
    return build_object("App", name, labels=labels, **spec)


def build_cluster(name: str, /, **spec: Any) -> Body:
    return build_object("Cluster", name, **spec)


def build_project(name: str, /, **spec: Any) -> Body:
    return build_object("Project", name, **spec)


def build_workspace(name: str, /, namespace: str, **spec: Any) -> Body:
    return build_object("DevPodWorkspaceInstance", name, namespace=namespace, **spec)


def build_object(
    kind: str, name: str, /, *, namespace: str = "", labels: dict[str, str] | None = None, **spec: Any
) -> Body:
    """Returns an object of the management group with minimal metadata."""
    metadata: Body = {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    if labels:
        metadata["labels"] = labels
    return {"apiVersion": VERSION, "kind": kind, "metadata": metadata, "spec": spec}


def build_core_object(kind: str, name: str, /, namespace: str = "", **fields: Any) -> Body:
    metadata = {"name": name, "namespace": namespace} if namespace else {"name": name}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, **fields}


def to_yaml(*bodies: Body) -> str:
    """Returns the objects as YAML documents for `kubectl create -f -`."""
    text: str = yaml.safe_dump_all(bodies, explicit_start=True)
    return text
