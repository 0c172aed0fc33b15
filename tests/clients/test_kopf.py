"""kopf, the framework for operators: one runs as a process of its own, and does to objects what operators do.

Finalizers, handlers of creation, change and deletion, a status within the object and one beside it, events, and the
memory that an operator keeps in annotations of its objects.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
from kubernetes import client, config
from kubernetes.client import ApiException

from tests.clients.objects import app, cluster, project, workspace
from tests.clients.server import GROUP, Server, stop

OPERATOR = Path(__file__).with_name("kopf_operator.py")
FINALIZER = "kopf.zalando.org/KopfFinalizerMarker"
LAST_HANDLED = "kopf.zalando.org/last-handled-configuration"
JSON_PATCH = "application/json-patch+json"
APPS = (GROUP, "v1", "apps")
CLUSTERS = (GROUP, "v1", "clusters")
PROJECTS = (GROUP, "v1", "projects")
WORKSPACES = (GROUP, "v1", "devpodworkspaceinstances")

SECONDS = 30
"""Until whatever an operator has to do must have been done."""

Operating = Callable[..., AbstractContextManager[Path]]
Found = TypeVar("Found")


@pytest.fixture(scope="module")
def custom(server: Server) -> Iterator[Any]:
    with config.new_client_from_config(str(server.kubeconfig)) as api:
        yield client.CustomObjectsApi(api)


@pytest.fixture
def operating(server: Server, tmp_path: Path) -> Operating:
    """`with operating("-A") as log:` is a time in which the operator runs."""
    return partial(run_operator, server, tmp_path)


@contextmanager
def run_operator(server: Server, folder: Path, *scope: str) -> Iterator[Path]:
    """The operator, writing its log; it must have ended without a complaint afterwards."""
    log_file = folder / "operator.log"
    command = [sys.executable, "-m", "kopf", "run", "--standalone", *scope, "--log-format=json", str(OPERATOR)]
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "KUBECONFIG": str(server.kubeconfig)}
    with log_file.open("w") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT, text=True)
    try:
        yield log_file
    finally:
        stop(process)
        print(log_file.read_text())
    assert process.returncode == 0
    assert [line for line in lines(log_file) if line["severity"] != "info"] == []


def lines(log_file: Path) -> list[Any]:
    """The log, if it is nothing but log: a traceback or a warning of Python's is no line of JSON."""
    return [json.loads(line) for line in log_file.read_text().splitlines()]


def until(look: Callable[[], Found]) -> Found:
    """What is found, as soon as something is."""
    deadline = time.monotonic() + SECONDS
    while not (found := look()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)
    return found


def status(custom: Any, kind: tuple[str, ...], name: str, field: str) -> Any:
    """Waits until the status has the field."""
    return until(lambda: custom.get_cluster_custom_object(*kind, name).get("status", {}).get(field))


def gone(read: Callable[[], Any]) -> bool:
    try:
        read()
    except ApiException as error:
        return bool(error.status == 404)
    return False


def events(custom: Any, name: str) -> list[tuple[str, str, str]]:
    core: Any = client.CoreV1Api(custom.api_client)
    found = core.list_namespaced_event("default", field_selector=f"involvedObject.name={name}").items
    return sorted((each.source.component, each.reason, each.message) for each in found)


def test_an_operator_goes_along_with_an_object_from_its_creation_to_its_end(custom: Any, operating: Operating) -> None:
    """Apps have no subresource: their status is a part of the object like any other."""
    with operating("-A"):
        custom.create_cluster_custom_object(*APPS, app("a", displayName="Ada"))
        assert status(custom, APPS, "a", "again") == "the other handler, try 0"
        seen = until(lambda: remembered(custom, "a"))
        assert seen["status"] == {"welcome": "welcome, Ada", "again": "the other handler, try 0"}
        assert seen["metadata"]["finalizers"] == [FINALIZER]
        assert seen["metadata"]["annotations"].keys() == {LAST_HANDLED}, "it has forgotten the handlers that are done"
        custom.patch_cluster_custom_object(*APPS, "a", {"spec": {"displayName": "Grace"}})
        assert status(custom, APPS, "a", "rename") == "Ada is now Grace"
        custom.delete_cluster_custom_object(*APPS, "a")
        until(lambda: gone(lambda: custom.get_cluster_custom_object(*APPS, "a")))
        until(lambda: len(events(custom, "a")) == 2)
        assert events(custom, "a") == [("kopf", "Left", "farewell, a"), ("kopf", "Welcomed", "a is here")]


def remembered(custom: Any, name: str) -> Any:
    """The app, once the operator has noted in it that it has been handled."""
    found = custom.get_cluster_custom_object(*APPS, name)
    return found if LAST_HANDLED in found["metadata"].get("annotations", {}) else None


def test_an_operator_writes_a_status_that_has_a_subresource(custom: Any, operating: Operating) -> None:
    with operating("-A") as log_file:
        custom.create_cluster_custom_object(*CLUSTERS, cluster("c", displayName="C"))
        assert status(custom, CLUSTERS, "c", "phase") == "Initialized"
        seen = custom.get_cluster_custom_object(*CLUSTERS, "c")
        assert seen["status"] == {"phase": "Initialized", "online": True}
        assert seen["metadata"]["generation"] == 1
        custom.patch_cluster_custom_object(*CLUSTERS, "c", {"spec": {"displayName": "D"}})
        (condition,) = status(custom, CLUSTERS, "c", "conditions")
        assert (condition["type"], condition["reason"]) == ("Synchronized", "Updated")
        custom.delete_cluster_custom_object(*CLUSTERS, "c")
        until(lambda: gone(lambda: custom.get_cluster_custom_object(*CLUSTERS, "c")))
        assert "Handler 'disconnect' succeeded." in [line["message"] for line in lines(log_file)]


def test_an_operator_catches_up_with_what_happened_while_it_was_away(custom: Any, operating: Operating) -> None:
    """Nothing is lost: whatever was to be deleted has waited, as the operator's finalizer asks for."""
    for name in ("stays", "goes"):
        custom.create_cluster_custom_object(*APPS, app(name, displayName="before"))
    with operating("-A"):
        until(lambda: remembered(custom, "stays") and remembered(custom, "goes"))
    custom.patch_cluster_custom_object(*APPS, "stays", {"spec": {"displayName": "after"}})
    custom.delete_cluster_custom_object(*APPS, "goes")
    assert custom.get_cluster_custom_object(*APPS, "goes")["metadata"]["deletionTimestamp"]
    with operating("-A"):
        assert status(custom, APPS, "stays", "rename") == "before is now after"
        until(lambda: gone(lambda: custom.get_cluster_custom_object(*APPS, "goes")))


def test_an_operator_follows_namespaces_that_come_and_go(custom: Any, operating: Operating) -> None:
    """It is told a pattern of names, and so looks for namespaces; the second is made when it is already looking."""
    with operating("-n", "service-p-kopf-*") as log_file:
        for name in ("kopf-early", "kopf-late"):
            namespace = f"service-p-{name}"
            custom.create_cluster_custom_object(*PROJECTS, project(name))
            custom.create_namespaced_custom_object(GROUP, "v1", namespace, WORKSPACES[2], workspace("w", namespace))
            read = partial(custom.get_namespaced_custom_object, GROUP, "v1", namespace, WORKSPACES[2], "w")
            until(partial(is_ready, read))
        custom.delete_cluster_custom_object(*PROJECTS, "kopf-late")
        until(lambda: gone(lambda: custom.get_cluster_custom_object(*PROJECTS, "kopf-late")))
        assert "nothing runs in service-p-kopf-late any more" in [line["message"] for line in lines(log_file)]


def is_ready(read: Callable[[], Any]) -> bool:
    return bool(read().get("status", {}).get("phase") == "Ready")


def test_a_patch_that_holds_for_one_version_only_is_refused_for_another(custom: Any) -> None:
    """kopf takes exactly this code for `look at it again, and then try again`; any other ends the handling."""
    custom.create_cluster_custom_object(*APPS, app("tested"))
    patch: list[Any] = [
        {"op": "test", "path": "/metadata/resourceVersion", "value": "1"},
        {"op": "add", "path": "/metadata/finalizers", "value": ["example.com/hold"]},
    ]
    with pytest.raises(ApiException) as stale:
        custom.patch_cluster_custom_object(*APPS, "tested", patch, _content_type=JSON_PATCH)
    assert stale.value.status == 422
    patch[0]["value"] = custom.get_cluster_custom_object(*APPS, "tested")["metadata"]["resourceVersion"]
    patched = custom.patch_cluster_custom_object(*APPS, "tested", patch, _content_type=JSON_PATCH)
    assert patched["metadata"]["finalizers"] == ["example.com/hold"]
