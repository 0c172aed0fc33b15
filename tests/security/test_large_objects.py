"""T-36: objects as large, as deep and as much owned as one can make them. Others still get their turn."""

import json
from typing import Any

import httpx

from tests.harness.server_process import CONFIGMAPS, MANAGEMENT, Server, configmap
from tests.security.conftest import assert_unharmed
from tests.security.expensive_bodies import BODY_LIMIT, JSON, YAML
from tests.security.patches import APPLY, JSON_PATCH, MERGE, STRATEGIC
from tests.security.raw_http import PATIENCE
from tests.security.test_expensive_bodies import assert_refused

APPS = f"{MANAGEMENT}/apis/management.service.sh/v1/apps"


def patched(client: httpx.Client, path: str, media_type: str, patch: Any) -> httpx.Response:
    return client.patch(path, content=json.dumps(patch), headers={"Content-Type": media_type}, timeout=PATIENCE)


def test_t36_finalizers_are_compared_in_reasonable_time(expendable: Server) -> None:
    """An object that is on its way out may get no new ones, however many it has."""
    held = {
        **configmap("held"),
        "metadata": {"name": "held", "finalizers": [f"a/{number}" for number in range(60_000)]},
    }
    more = {"metadata": {"finalizers": [f"b/{number}" for number in range(60_000)]}}
    with expendable.client() as client:
        created = client.post(CONFIGMAPS, json=held, timeout=PATIENCE)
        if created.status_code == 201:
            client.delete(f"{CONFIGMAPS}/held", timeout=PATIENCE).raise_for_status()
            assert_refused(patched(client, f"{CONFIGMAPS}/held", MERGE, more), 413, 422)
    assert_unharmed(expendable)


def test_t36_patches_cannot_make_an_object_grow_for_ever(expendable: Server) -> None:
    with expendable.client() as client:
        client.post(APPS, json=app("grown")).raise_for_status()
        for number in range(6):
            answer = patched(client, f"{APPS}/grown", MERGE, {"status": {f"k{number}": "x" * (BODY_LIMIT - 100)}})
        assert_refused(answer, 413, 422)


def record(number: int, operation: str) -> dict[str, Any]:
    """An entry of managedFields: somebody who owns ten keys that nobody else owns."""
    keys: dict[str, Any] = {f"f:{number}{digit}": {} for digit in range(10)}
    entry = {"manager": str(number), "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1"}
    return {**entry, "fieldsV1": {"f:data": keys}}


def test_t36_the_records_of_many_managers_are_reckoned_with_in_reasonable_time(expendable: Server) -> None:
    for operation in ("Update", "Apply"):
        with expendable.client() as client:
            path = f"{CONFIGMAPS}/managed-{operation.lower()}"
            client.post(CONFIGMAPS, json=configmap(path.rpartition("/")[2], a="b")).raise_for_status()
            records = {"metadata": {"managedFields": [record(number, operation) for number in range(11_000)]}}
            assert patched(client, path, MERGE, records).status_code in (200, 413, 422)
            for data in ({"a": "c"}, {"d": "e"}):
                config = configmap(path.rpartition("/")[2], **data)
                answer = patched(client, f"{path}?fieldManager=last&force=1", APPLY, config)
                assert answer.status_code in (200, 413, 422)
    assert_unharmed(expendable)


def test_t36_many_conflicts_get_one_short_answer(expendable: Server) -> None:
    keys = {f"k{number}": 1 for number in range(19_000)}
    with expendable.client() as client:
        client.post(APPS, json={**app("contested"), "status": keys}, timeout=PATIENCE).raise_for_status()
        config = {**app("contested"), "status": dict.fromkeys(keys, 2)}
        answer = patched(client, f"{APPS}/contested?fieldManager=other", APPLY, config)
        assert_refused(answer, 409)
        assert len(answer.content) < 256 * 1024
    assert_unharmed(expendable)


def test_t36_an_object_as_deep_as_allowed_can_be_used_like_any_other(server: Server) -> None:
    with server.client() as client:
        depth = next(
            depth for depth in range(220, 0, -1) if client.post(APPS, json=app("deep", depth)).status_code == 201
        )
        try:
            assert depth > 100
            _use_in_every_way(client, depth)
        finally:
            client.delete(f"{APPS}/deep")


def _use_in_every_way(client: httpx.Client, depth: int) -> None:
    for accept in (JSON, YAML, "application/json;as=Table;g=meta.k8s.io;v=v1"):
        assert client.get(f"{APPS}/deep", headers={"Accept": accept}).status_code == 200
        assert client.get(APPS, headers={"Accept": accept}).status_code == 200
    found = client.get(f"{APPS}/deep").json()
    changed = client.put(f"{APPS}/deep", json={**found, "spec": {"displayName": "deep"}})
    assert changed.status_code == 200, changed.text[:300]
    operations = [{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]
    labels = {"metadata": {"labels": {"a": "c"}}}
    for media_type, patch in (
        (JSON_PATCH, operations),
        (MERGE, labels),
        (STRATEGIC, labels),
        (APPLY, app("deep", depth)),
    ):
        query = "fieldManager=deep&force=1" if media_type == APPLY else ""
        answer = client.patch(f"{APPS}/deep?{query}", json=patch, headers={"Content-Type": media_type})
        assert answer.status_code == 200, f"{media_type}: {answer.text[:300]}"


def app(name: str, depth: int = 0) -> dict[str, Any]:
    status: dict[str, Any] = {}
    for _ in range(depth):
        status = {"n": status}
    metadata = {"name": name}
    return {"apiVersion": "management.service.sh/v1", "kind": "App", "metadata": metadata, "spec": {}, "status": status}
