"""An operator written with kopf: it handles creation, updates and deletion of apps, clusters and workspaces.

`test_kopf.py` runs it with `kopf run`. Nothing here is specific to Fairlead.
"""

from typing import Any

import kopf

GROUP = "management.service.sh"


@kopf.on.create(GROUP, "v1", "apps")
def greet(body: kopf.Body, name: str, spec: kopf.Spec, **_: Any) -> str:
    """The return value of a handler becomes a field of the status."""
    kopf.info(body, reason="Welcomed", message=f"{name} is here")
    return f"welcome, {spec['displayName']}"


@kopf.on.create(GROUP, "v1", "apps")
def greet_again(retry: int, **_: Any) -> str:
    """A second handler of the same event: between the two, kopf keeps its progress in an annotation."""
    return f"the other handler, try {retry}"


@kopf.on.update(GROUP, "v1", "apps")
def report_rename(old: Any, new: Any, **_: Any) -> str:
    return f"{old['spec']['displayName']} is now {new['spec']['displayName']}"


@kopf.on.delete(GROUP, "v1", "apps")
def report_deletion(body: kopf.Body, name: str, **_: Any) -> None:
    kopf.event(body, type="Normal", reason="Left", message=f"farewell, {name}")


@kopf.on.create(GROUP, "v1", "clusters")
def connect(patch: kopf.Patch, **_: Any) -> None:
    """With a status subresource, kopf sends one patch to it, and one with its own annotations to the object."""
    patch.status["phase"] = "Initialized"
    patch.status["online"] = True


@kopf.on.update(GROUP, "v1", "clusters")
def synchronize(patch: kopf.Patch, **_: Any) -> None:
    """kopf sends a change of a list as a JSON patch with a test of the resource version."""
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
