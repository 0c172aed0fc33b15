"""The two servers that are compared: a Fairlead of our own, and a reference with the same kinds and namespaces."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.conformance.generated.connection import Connection, Response, Target
from tests.conformance.generated.kinds import exported_crds
from tests.harness.server_process import MANAGEMENT, Server, running_server

Json = Any
PROJECTS = ("demo", "other")
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_READY_SECONDS = 60.0


@contextmanager
def running_target(folder: Path) -> Iterator[tuple[Target, Server]]:
    """A Fairlead with the projects whose namespaces the lives use."""
    with running_server(folder / "data") as server:
        target = Target(server.url, server.key, MANAGEMENT, server.ca_file)
        connection = Connection(target)
        for name in PROJECTS:
            project = {"apiVersion": "management.service.sh/v1", "kind": "Project", "metadata": {"name": name}}
            _expect(connection.send_json("POST", "/apis/management.service.sh/v1/projects", project), 201)
        connection.close()
        yield target, server


def prepare_reference(target: Target) -> str:
    """Creates or updates the definitions and namespaces on the reference. Its version."""
    connection = Connection(target)
    for name in PROJECTS:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"service-p-{name}"}}
        _expect(connection.send_json("POST", "/api/v1/namespaces", namespace), 201, 409)
    for crd in exported_crds():
        _install(connection, crd)
    version = connection.send_json("GET", "/version").body["gitVersion"]
    connection.close()
    return str(version)


def _install(connection: Connection, crd: Json) -> None:
    path = f"{CRDS}/{crd['metadata']['name']}?fieldManager=conformance&force=true"
    body = crd | {"metadata": {"name": crd["metadata"]["name"]}}
    _expect(connection.send_json("PATCH", path, body, "application/apply-patch+yaml"), 200, 201)
    group, version = crd["spec"]["group"], crd["spec"]["versions"][0]["name"]
    deadline = time.monotonic() + _READY_SECONDS
    while connection.send_json("GET", f"/apis/{group}/{version}/{crd['spec']['names']['plural']}").status != 200:
        if time.monotonic() > deadline:
            raise TimeoutError(f"the reference does not serve {crd['metadata']['name']}")
        time.sleep(0.2)


def _expect(response: Response, *statuses: int) -> None:
    if response.status not in statuses:
        raise RuntimeError(f"the server answered {response.status}: {response.body}")
