"""The operator framework kopf: an operator runs as a process and handles objects of the server.

The tests cover finalizers, handlers of creation, update and deletion, a status with and without a subresource, events,
and the progress that kopf stores in annotations.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
from kubernetes import client, config
from kubernetes.client import ApiException

from tests.clients.objects import build_app, build_cluster, build_project, build_workspace
from tests.clients.server import GROUP, Server, stop_process
from tests.harness.eventually import wait_until

OPERATOR = Path(__file__).with_name("kopf_operator.py")
FINALIZER = "kopf.zalando.org/KopfFinalizerMarker"
LAST_HANDLED = "kopf.zalando.org/last-handled-configuration"
JSON_PATCH = "application/json-patch+json"
APPS = (GROUP, "v1", "apps")
CLUSTERS = (GROUP, "v1", "clusters")
PROJECTS = (GROUP, "v1", "projects")
WORKSPACES = (GROUP, "v1", "devpodworkspaceinstances")

TIMEOUT_SECONDS = 30
"""How long a test waits for the operator."""

OperatorRunner = Callable[..., AbstractContextManager[Path]]
T = TypeVar("T")


@pytest.fixture(scope="module")
def custom(server: Server) -> Iterator[Any]:
    with config.new_client_from_config(str(server.kubeconfig)) as api:
        yield client.CustomObjectsApi(api)


@pytest.fixture
def operator(server: Server, tmp_path: Path) -> OperatorRunner:
    """`with operator("-A") as log:` runs the operator."""
    return partial(run_operator, server, tmp_path)


@contextmanager
def run_operator(server: Server, folder: Path, *scope: str) -> Iterator[Path]:
    """Runs the operator, and checks afterwards that its log has only lines of level info."""
    log_file = folder / "operator.log"
    command = [sys.executable, "-m", "kopf", "run", "--standalone", *scope, "--log-format=json", str(OPERATOR)]
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "KUBECONFIG": str(server.kubeconfig)}
    with log_file.open("w") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT, text=True)
    try:
        yield log_file
    finally:
        stop_process(process)
        print(log_file.read_text())
    assert process.returncode == 0
    assert [line for line in read_log(log_file) if line["severity"] != "info"] == []


def read_log(log_file: Path) -> list[Any]:
    """Returns the parsed log lines; fails on a traceback or a Python warning, which are not JSON."""
    return [json.loads(line) for line in log_file.read_text().splitlines()]


def wait_for_status(custom: Any, kind: tuple[str, ...], name: str, field: str) -> Any:
    """Returns the field of the status, once it is set."""
    return wait_until(lambda: custom.get_cluster_custom_object(*kind, name).get("status", {}).get(field))


def is_deleted(read: Callable[[], Any]) -> bool:
    try:
        read()
    except ApiException as error:
        return bool(error.status == 404)
    return False


def list_events(custom: Any, name: str) -> list[tuple[str, str, str]]:
    core: Any = client.CoreV1Api(custom.api_client)
    found = core.list_namespaced_event("default", field_selector=f"involvedObject.name={name}").items
    return sorted((each.source.component, each.reason, each.message) for each in found)


def test_an_operator_handles_creation_update_and_deletion(custom: Any, operator: OperatorRunner) -> None:
    """Apps have no status subresource."""
    with operator("-A"):
        custom.create_cluster_custom_object(*APPS, build_app("a", displayName="Ada"))
        assert wait_for_status(custom, APPS, "a", "greet_again") == "the other handler, try 0"
        obj = wait_until(lambda: get_handled_app(custom, "a"))
        assert obj["status"] == {"greet": "welcome, Ada", "greet_again": "the other handler, try 0"}
        assert obj["metadata"]["finalizers"] == [FINALIZER]
        assert obj["metadata"]["annotations"].keys() == {LAST_HANDLED}, "progress of completed handlers is removed"
        custom.patch_cluster_custom_object(*APPS, "a", {"spec": {"displayName": "Grace"}})
        assert wait_for_status(custom, APPS, "a", "report_rename") == "Ada is now Grace"
        custom.delete_cluster_custom_object(*APPS, "a")
        wait_until(lambda: is_deleted(lambda: custom.get_cluster_custom_object(*APPS, "a")))
        wait_until(lambda: len(list_events(custom, "a")) == 2)
        assert list_events(custom, "a") == [("kopf", "Left", "farewell, a"), ("kopf", "Welcomed", "a is here")]


def get_handled_app(custom: Any, name: str) -> Any:
    """Returns the app if the operator has handled it, as an annotation says."""
    found = custom.get_cluster_custom_object(*APPS, name)
    return found if LAST_HANDLED in found["metadata"].get("annotations", {}) else None


def test_an_operator_writes_a_status_with_a_subresource(custom: Any, operator: OperatorRunner) -> None:
    with operator("-A") as log_file:
        custom.create_cluster_custom_object(*CLUSTERS, build_cluster("c", displayName="C"))
        assert wait_for_status(custom, CLUSTERS, "c", "phase") == "Initialized"
        obj = custom.get_cluster_custom_object(*CLUSTERS, "c")
        assert obj["status"] == {"phase": "Initialized", "online": True}
        assert obj["metadata"]["generation"] == 1
        custom.patch_cluster_custom_object(*CLUSTERS, "c", {"spec": {"displayName": "D"}})
        (condition,) = wait_for_status(custom, CLUSTERS, "c", "conditions")
        assert (condition["type"], condition["reason"]) == ("Synchronized", "Updated")
        custom.delete_cluster_custom_object(*CLUSTERS, "c")
        wait_until(lambda: is_deleted(lambda: custom.get_cluster_custom_object(*CLUSTERS, "c")))
        assert "Handler 'disconnect' succeeded." in [line["message"] for line in read_log(log_file)]


def test_an_operator_handles_changes_made_while_it_was_stopped(custom: Any, operator: OperatorRunner) -> None:
    """The operator's finalizer keeps deleted objects until it runs again."""
    for name in ("stays", "goes"):
        custom.create_cluster_custom_object(*APPS, build_app(name, displayName="before"))
    with operator("-A"):
        wait_until(lambda: get_handled_app(custom, "stays") and get_handled_app(custom, "goes"))
    custom.patch_cluster_custom_object(*APPS, "stays", {"spec": {"displayName": "after"}})
    custom.delete_cluster_custom_object(*APPS, "goes")
    assert custom.get_cluster_custom_object(*APPS, "goes")["metadata"]["deletionTimestamp"]
    with operator("-A"):
        assert wait_for_status(custom, APPS, "stays", "report_rename") == "before is now after"
        wait_until(lambda: is_deleted(lambda: custom.get_cluster_custom_object(*APPS, "goes")))


def test_an_operator_follows_created_and_deleted_namespaces(custom: Any, operator: OperatorRunner) -> None:
    """It gets a name pattern and watches namespaces; the second one is created while it runs."""
    with operator("-n", "service-p-kopf-*") as log_file:
        for name in ("kopf-early", "kopf-late"):
            namespace = f"service-p-{name}"
            custom.create_cluster_custom_object(*PROJECTS, build_project(name))
            custom.create_namespaced_custom_object(
                GROUP, "v1", namespace, WORKSPACES[2], build_workspace("w", namespace)
            )
            read = partial(custom.get_namespaced_custom_object, GROUP, "v1", namespace, WORKSPACES[2], "w")
            wait_until(partial(is_ready, read))
        custom.delete_cluster_custom_object(*PROJECTS, "kopf-late")
        wait_until(lambda: is_deleted(lambda: custom.get_cluster_custom_object(*PROJECTS, "kopf-late")))
        assert "nothing runs in service-p-kopf-late any more" in [line["message"] for line in read_log(log_file)]


def is_ready(read: Callable[[], Any]) -> bool:
    return bool(read().get("status", {}).get("phase") == "Ready")


def test_a_json_patch_with_a_test_of_another_resource_version_gets_422(custom: Any) -> None:
    """kopf retries on exactly this code; any other ends the handling."""
    custom.create_cluster_custom_object(*APPS, build_app("tested"))
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
