"""A small operator as people write them with kopf: it greets apps, connects clusters and starts workspaces.

`test_kopf.py` runs it with `kopf run`. Nothing here knows that it is not Kubernetes that answers.
"""

from typing import Any

import kopf

GROUP = "management.service.sh"


@kopf.on.create(GROUP, "v1", "apps")
def welcome(body: kopf.Body, name: str, spec: kopf.Spec, **_: Any) -> str:
    """What a handler returns becomes a field of the status."""
    kopf.info(body, reason="Welcomed", message=f"{name} is here")
    return f"welcome, {spec['displayName']}"


@kopf.on.create(GROUP, "v1", "apps")
def again(retry: int, **_: Any) -> str:
    """A second handler for one event: in between, an annotation keeps how far kopf got."""
    return f"the other handler, try {retry}"


@kopf.on.update(GROUP, "v1", "apps")
def rename(old: Any, new: Any, **_: Any) -> str:
    return f"{old['spec']['displayName']} is now {new['spec']['displayName']}"


@kopf.on.delete(GROUP, "v1", "apps")
def farewell(body: kopf.Body, name: str, **_: Any) -> None:
    kopf.event(body, type="Normal", reason="Left", message=f"farewell, {name}")


@kopf.on.create(GROUP, "v1", "clusters")
def connect(patch: kopf.Patch, **_: Any) -> None:
    """A status with a subresource of its own: kopf sends one patch there, and its own notes to the object itself."""
    patch.status["phase"] = "Initialized"
    patch.status["online"] = True


@kopf.on.update(GROUP, "v1", "clusters")
def synchronize(patch: kopf.Patch, **_: Any) -> None:
    """An edit of a list: kopf sends it as a JSON patch that holds for this version of the object only."""
    patch.fns.append(add_condition)


def add_condition(body: kopf.RawBody) -> None:
    condition = {"type": "Synchronized", "status": "True", "reason": "Updated"}
    body["status"].setdefault("conditions", []).append(condition)


@kopf.on.delete(GROUP, "v1", "clusters")
def disconnect(patch: kopf.Patch, **_: Any) -> None:
    patch.status["online"] = False


@kopf.on.create(GROUP, "v1", "devpodworkspaceinstances")
def start(patch: kopf.Patch, **_: Any) -> None:
    patch.status["phase"] = "Ready"


@kopf.on.delete(GROUP, "v1", "devpodworkspaceinstances")
def stop(namespace: str | None, logger: kopf.Logger, **_: Any) -> None:
    logger.info(f"nothing runs in {namespace} any more")
