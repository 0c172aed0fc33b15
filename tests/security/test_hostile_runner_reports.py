"""A hostile runner, by its key: reports about workspaces of others, and reports that are too large or strange."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.harness.server_process import MANAGEMENT, Server, running_server
from tests.live.workspace_setup import WORKSPACE, M, create_object, create_workspace
from tests.security.conftest import assert_healthy

MERGE = {"Content-Type": "application/merge-patch+json"}
STRATEGIC = {"Content-Type": "application/strategic-merge-patch+json"}
EVENTS = f"{MANAGEMENT}/api/v1/namespaces/service-p-web/events"
OWN_LEASE = f"{MANAGEMENT}/apis/coordination.k8s.io/v1/namespaces/service-system/leases/runner-local"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, str, str]]:
    """A server with the workspace `dev` of the runner `local`, and the keys of that runner and of another."""
    with running_server(tmp_path_factory.mktemp("reports") / "data") as server, server.client() as admin:
        own = create_workspace(admin)
        create_object(admin, f"{M}/runners", "Runner", "other")
        yield server, own, admin.get(f"{M}/runners/other/accesskey").json()["accessKey"]


@pytest.fixture
def own(keys: tuple[Server, str, str]) -> Iterator[httpx.Client]:
    """A client with the key of the workspace's runner. After the test the server is healthy."""
    server, key, _ = keys
    offset = len(server.log.read_text())
    with server.client(key) as client:
        yield client
    assert_healthy(server, offset)


@pytest.fixture
def other(keys: tuple[Server, str, str]) -> Iterator[httpx.Client]:
    server, _, key = keys
    with server.client(key) as client:
        yield client


def report(client: httpx.Client, status: Any, headers: dict[str, str] = MERGE) -> httpx.Response:
    return client.patch(f"{WORKSPACE}/status", json={"status": status}, headers=headers)


def test_another_runner_neither_reads_nor_reports_the_workspace(own: httpx.Client, other: httpx.Client) -> None:
    assert report(own, {"phase": "Ready"}).status_code == 200
    for headers in (MERGE, STRATEGIC):
        assert report(other, {"phase": "Failed"}, headers).status_code in (403, 404)
    for path in (WORKSPACE, f"{WORKSPACE}/credentials", f"{WORKSPACE}/tasks"):
        assert other.get(path).status_code in (403, 404), path
    assert other.get(OWN_LEASE).status_code == 403
    assert own.get(WORKSPACE).json()["status"]["phase"] == "Ready"


def test_a_runner_changes_nothing_but_the_status(own: httpx.Client) -> None:
    before = own.get(WORKSPACE).json()
    body = {"metadata": {"labels": {"x": "y"}}, "spec": {"owner": {"user": "admin"}}, "status": {"phase": "Ready"}}
    own.patch(f"{WORKSPACE}/status", json=body, headers=MERGE)
    after = own.get(WORKSPACE).json()
    assert (after["spec"], after["metadata"].get("labels")) == (before["spec"], before["metadata"].get("labels"))
    assert own.patch(WORKSPACE, json=body, headers=MERGE).status_code == 403


@pytest.mark.parametrize(
    "status",
    [
        {"message": "x" * 40_000},
        {"message": ["x"]},
        {"phase": {"a": 1}},
        {"conditions": "x"},
        {"conditions": [{"type": f"t-{number}", "status": "True"} for number in range(200)]},
        {"conditions": [7]},
        {"lastWorkspaceStatus": 7},
        "x",
        [1],
    ],
    ids=str,
)
def test_a_status_that_is_too_large_or_of_another_type_is_refused(own: httpx.Client, status: Any) -> None:
    before = own.get(WORKSPACE).json().get("status")
    assert report(own, status).status_code in (400, 403, 422)
    assert own.get(WORKSPACE).json().get("status") == before


def test_a_status_of_many_megabytes_is_refused(own: httpx.Client) -> None:
    assert report(own, {"message": "x" * (20 << 20)}).status_code == 413


@pytest.mark.parametrize("name", ["templateTrust", "instance", "observedGeneration"])
def test_a_runner_does_not_write_what_the_server_decides(own: httpx.Client, name: str) -> None:
    """Whether a template is trusted is what the runner of a workspace is told, not what it tells."""
    before = own.get(WORKSPACE).json().get("status", {}).get(name)
    value: Any = {"templateTrust": "Trusted", "instance": {"provider": {"name": "x"}}, "observedGeneration": 99}[name]
    report(own, {name: value})
    assert own.get(WORKSPACE).json().get("status", {}).get(name) == before
