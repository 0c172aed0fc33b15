"""Objects of maximal size, depth and field ownership do not stall the server (T-36)."""

import json
from typing import Any

import httpx

from tests.harness.server_process import CONFIGMAPS, MANAGEMENT, Server, configmap
from tests.requests.expensive_bodies import BODY_LIMIT, JSON, YAML
from tests.requests.patches import APPLY, JSON_PATCH, MERGE, STRATEGIC
from tests.requests.raw_http import RESPONSE_TIMEOUT_SECONDS
from tests.security.conftest import assert_healthy
from tests.security.rejections import assert_rejected

APPS = f"{MANAGEMENT}/apis/management.service.sh/v1/apps"


def send_patch(client: httpx.Client, path: str, media_type: str, patch: Any) -> httpx.Response:
    return client.patch(
        path, content=json.dumps(patch), headers={"Content-Type": media_type}, timeout=RESPONSE_TIMEOUT_SECONDS
    )


def test_t36_comparing_many_finalizers_does_not_hang(expendable_server: Server) -> None:
    """An object that is being deleted may get no new finalizers, however many it has."""
    body = {
        **configmap("held"),
        "metadata": {"name": "held", "finalizers": [f"a/{number}" for number in range(60_000)]},
    }
    patch = {"metadata": {"finalizers": [f"b/{number}" for number in range(60_000)]}}
    with expendable_server.client() as client:
        created = client.post(CONFIGMAPS, json=body, timeout=RESPONSE_TIMEOUT_SECONDS)
        if created.status_code == 201:
            client.delete(f"{CONFIGMAPS}/held", timeout=RESPONSE_TIMEOUT_SECONDS).raise_for_status()
            assert_rejected(send_patch(client, f"{CONFIGMAPS}/held", MERGE, patch), 413, 422)
    assert_healthy(expendable_server)


def test_t36_patches_cannot_grow_an_object_without_limit(expendable_server: Server) -> None:
    with expendable_server.client() as client:
        client.post(APPS, json=build_app("grown")).raise_for_status()
        for number in range(6):
            response = send_patch(client, f"{APPS}/grown", MERGE, {"status": {f"k{number}": "x" * (BODY_LIMIT - 100)}})
        assert_rejected(response, 413, 422)


def build_managed_fields_entry(number: int, operation: str) -> dict[str, Any]:
    """An entry of managedFields: a manager that owns ten keys alone."""
    keys: dict[str, Any] = {f"f:{number}{digit}": {} for digit in range(10)}
    entry = {"manager": str(number), "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1"}
    return {**entry, "fieldsV1": {"f:data": keys}}


def test_t36_merging_the_fields_of_many_managers_does_not_hang(expendable_server: Server) -> None:
    for operation in ("Update", "Apply"):
        with expendable_server.client() as client:
            path = f"{CONFIGMAPS}/managed-{operation.lower()}"
            client.post(CONFIGMAPS, json=configmap(path.rpartition("/")[2], a="b")).raise_for_status()
            managed_fields = {
                "metadata": {
                    "managedFields": [build_managed_fields_entry(number, operation) for number in range(11_000)]
                }
            }
            assert send_patch(client, path, MERGE, managed_fields).status_code in (200, 413, 422)
            for data in ({"a": "c"}, {"d": "e"}):
                config = configmap(path.rpartition("/")[2], **data)
                response = send_patch(client, f"{path}?fieldManager=last&force=1", APPLY, config)
                assert response.status_code in (200, 413, 422)
    assert_healthy(expendable_server)


def test_t36_many_conflicts_get_a_short_response(expendable_server: Server) -> None:
    keys = {f"k{number}": 1 for number in range(19_000)}
    with expendable_server.client() as client:
        client.post(
            APPS, json={**build_app("contested"), "status": keys}, timeout=RESPONSE_TIMEOUT_SECONDS
        ).raise_for_status()
        config = {**build_app("contested"), "status": dict.fromkeys(keys, 2)}
        response = send_patch(client, f"{APPS}/contested?fieldManager=other", APPLY, config)
        assert_rejected(response, 409)
        assert len(response.content) < 256 * 1024
    assert_healthy(expendable_server)


def test_t36_an_object_of_maximal_depth_supports_every_operation(server: Server) -> None:
    with server.client() as client:
        depth = next(
            depth for depth in range(220, 0, -1) if client.post(APPS, json=build_app("deep", depth)).status_code == 201
        )
        try:
            assert depth > 100
            _run_every_operation(client, depth)
        finally:
            client.delete(f"{APPS}/deep")


def _run_every_operation(client: httpx.Client, depth: int) -> None:
    for accept in (JSON, YAML, "application/json;as=Table;g=meta.k8s.io;v=v1"):
        assert client.get(f"{APPS}/deep", headers={"Accept": accept}).status_code == 200
        assert client.get(APPS, headers={"Accept": accept}).status_code == 200
    obj = client.get(f"{APPS}/deep").json()
    updated = client.put(f"{APPS}/deep", json={**obj, "spec": {"displayName": "deep"}})
    assert updated.status_code == 200, updated.text[:300]
    operations = [{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]
    labels = {"metadata": {"labels": {"a": "c"}}}
    for media_type, patch in (
        (JSON_PATCH, operations),
        (MERGE, labels),
        (STRATEGIC, labels),
        (APPLY, build_app("deep", depth)),
    ):
        query = "fieldManager=deep&force=1" if media_type == APPLY else ""
        response = client.patch(f"{APPS}/deep?{query}", json=patch, headers={"Content-Type": media_type})
        assert response.status_code == 200, f"{media_type}: {response.text[:300]}"


def build_app(name: str, depth: int = 0) -> dict[str, Any]:
    status: dict[str, Any] = {}
    for _ in range(depth):
        status = {"n": status}
    metadata = {"name": name}
    return {"apiVersion": "management.service.sh/v1", "kind": "App", "metadata": metadata, "spec": {}, "status": status}
