"""Patches that need more work than their size suggests, and malformed patches, are rejected (T-34)."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.harness.server_process import CONFIGMAPS, Server, configmap
from tests.requests.expensive_bodies import BODY_LIMIT
from tests.requests.patches import APPLY, JSON_PATCH, MERGE, STRATEGIC, TYPES
from tests.requests.raw_http import RESPONSE_TIMEOUT_SECONDS, RawRequest, send_requests
from tests.security.rejections import MAX_MEMORY_GROWTH, assert_rejected, get_peak_memory

TARGET = f"{CONFIGMAPS}/patched"


@pytest.fixture(autouse=True)
def create_target(shared_server: Server) -> None:
    with shared_server.client() as client:
        client.post(CONFIGMAPS, json=configmap("patched", a="x" * 10_000))


def send_patch(server: Server, media_type: str, body: bytes | Any) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    query = "dryRun=All" if media_type != APPLY else "dryRun=All&fieldManager=patcher"
    with server.client() as client:
        return client.patch(
            f"{TARGET}?{query}", content=content, headers={"Content-Type": media_type}, timeout=RESPONSE_TIMEOUT_SECONDS
        )


@pytest.mark.parametrize("operation", [{"op": "test", "path": "/kind", "value": "ConfigMap"}, {"op": "nope"}, 1, None])
def test_t34_a_patch_with_too_many_operations_gets_413(server: Server, operation: Any) -> None:
    assert_rejected(send_patch(server, JSON_PATCH, [operation] * 10_001), 413)


def test_t34_a_patch_with_the_maximum_of_operations_is_applied(server: Server) -> None:
    operations = [{"op": "replace", "path": "/data/a", "value": str(number)} for number in range(10_000)]
    response = send_patch(server, JSON_PATCH, operations)
    assert (response.status_code, response.json()["data"]) == (200, {"a": "9999"})


def _build_doubling_copies() -> list[Any]:
    return [{"op": "copy", "from": "/data", "path": f"/data/{'x' * number}"} for number in range(1, 40)]


def _build_growing_list() -> list[Any]:
    text = {"op": "add", "path": "/metadata/finalizers", "value": ["example.com/x" * 100]}
    return [text, *[{"op": "copy", "from": "/metadata/finalizers/0", "path": "/metadata/finalizers/-"}] * 9_000]


def _build_list_shifts() -> list[Any]:
    long = {"op": "add", "path": "/metadata/finalizers", "value": ["a"] * 400_000}
    return [long, *[{"op": "add", "path": "/metadata/finalizers/0", "value": "b"}] * 9_000]


def _build_nested_copies() -> list[Any]:
    return [{"op": "add", "path": "/data/n", "value": {}}, *[{"op": "copy", "from": "/data", "path": "/data/n"}] * 300]


def _build_growing_depth() -> list[Any]:
    return [{"op": "add", "path": "/n" * number, "value": {}} for number in range(1, 1000)]


@pytest.mark.parametrize(
    "build_operations",
    [_build_doubling_copies, _build_growing_list, _build_list_shifts, _build_nested_copies, _build_growing_depth],
    ids=["copies of copies", "many copies", "shifted lists", "copies in copies", "growing depth"],
)
def test_t34_a_patch_that_multiplies_data_is_rejected(
    server: Server, build_operations: Callable[[], list[Any]]
) -> None:
    before = get_peak_memory(server)
    assert_rejected(send_patch(server, JSON_PATCH, build_operations()), 413, 422)
    assert get_peak_memory(server) - before < MAX_MEMORY_GROWTH


@pytest.mark.parametrize("media_type", TYPES)
@pytest.mark.parametrize("document", [None, True, 1, "x", [1], [[]], [None], [{}], {"metadata": 1}, {"data": []}])
def test_a_document_that_is_not_a_patch_is_rejected(server: Server, media_type: str, document: Any) -> None:
    response = send_patch(server, media_type, document)
    if (media_type, document) == (JSON_PATCH, None):  # as in Kubernetes: no operations
        assert response.status_code == 200
    else:
        assert_rejected(response, 400, 422)


@pytest.mark.parametrize("media_type", TYPES)
@pytest.mark.parametrize(
    "body", [b"", b"{", b"\xff", b"\x00", b"{}{}", b"[1,]", b"'", b"{'a':", b"\xef\xbb\xbf[", b"nul"]
)
def test_a_body_that_cannot_be_parsed_is_rejected(server: Server, media_type: str, body: bytes) -> None:
    assert_rejected(send_patch(server, media_type, body), 400, 422)


@pytest.mark.parametrize(
    "document",
    [
        {"$patch": 1},
        {"$patch": ["replace"]},
        {"metadata": {"$patch": "nope"}},
        {"metadata": {"finalizers": [{"$patch": "replace"}, {}]}},
        {"metadata": {"finalizers": [["a"]]}},
        {"metadata": {"ownerReferences": [{}]}},
        {"metadata": {"ownerReferences": ["a"]}},
        {"metadata": {"$retainKeys": "name"}},
        {"metadata": {"$retainKeys": ["labels"], "annotations": {}}},
        {"metadata": {"$setElementOrder/finalizers": "a"}},
        {"metadata": {"$deleteFromPrimitiveList/finalizers": {}}},
    ],
    ids=json.dumps,
)
def test_meaningless_directives_are_rejected(server: Server, document: Any) -> None:
    assert_rejected(send_patch(server, STRATEGIC, document), 400, 422)


@pytest.mark.parametrize("media_type", [*TYPES, "application/json", "application/yaml"])
@pytest.mark.parametrize("chunked", [False, True], ids=["content-length", "chunked"])
def test_a_body_over_the_limit_gets_413_for_every_media_type(server: Server, media_type: str, chunked: bool) -> None:
    method, path = ("PATCH", TARGET) if media_type in TYPES else ("POST", CONFIGMAPS)
    headers = (("Authorization", f"Bearer {server.key}"), ("Content-Type", media_type))
    query = ("dryRun=All", "fieldManager=x")
    too_large = RawRequest(method, path, query, headers, b" " * (BODY_LIMIT + 1), chunked)
    (response,) = send_requests(server, too_large)
    assert response.status == 413
    assert json.loads(response.body)["reason"] == "RequestEntityTooLarge"


def test_a_merge_patch_cannot_change_the_kind_or_name(server: Server) -> None:
    for change in (
        {"kind": "Secret"},
        {"apiVersion": "v2"},
        {"metadata": {"name": "other"}},
        {"metadata": None},
        {"kind": None},
    ):
        for media_type in (MERGE, STRATEGIC):
            response = send_patch(server, media_type, change)
            assert response.status_code in (200, 400, 422), response.text
            if response.status_code == 200:
                assert (response.json()["kind"], response.json()["metadata"]["name"]) == ("ConfigMap", "patched")
