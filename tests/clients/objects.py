"""Objects as users write them into files, for every client here."""

from typing import Any

import yaml

from tests.clients.server import VERSION

Body = dict[str, Any]


def app(name: str, /, labels: dict[str, str] | None = None, **spec: Any) -> Body:
    return of("App", name, labels=labels, **spec)


def cluster(name: str, /, **spec: Any) -> Body:
    return of("Cluster", name, **spec)


def project(name: str, /, **spec: Any) -> Body:
    return of("Project", name, **spec)


def workspace(name: str, /, namespace: str, **spec: Any) -> Body:
    return of("DevPodWorkspaceInstance", name, namespace=namespace, **spec)


def of(kind: str, name: str, /, *, namespace: str = "", labels: dict[str, str] | None = None, **spec: Any) -> Body:
    """An object of the management group, with only as much metadata as it needs."""
    metadata: Body = {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    if labels:
        metadata["labels"] = labels
    return {"apiVersion": VERSION, "kind": kind, "metadata": metadata, "spec": spec}


def core(kind: str, name: str, /, namespace: str = "", **fields: Any) -> Body:
    metadata = {"name": name, "namespace": namespace} if namespace else {"name": name}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, **fields}


def as_yaml(*bodies: Body) -> str:
    """The objects as one text for `kubectl create -f -`."""
    text: str = yaml.safe_dump_all(bodies, explicit_start=True)
    return text
