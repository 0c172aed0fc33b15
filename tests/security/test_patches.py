"""T-34: patches that ask for more than their size suggests, and documents that are no patches."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.harness.server_process import CONFIGMAPS, Server, configmap
from tests.security.expensive_bodies import BODY_LIMIT
from tests.security.patches import APPLY, JSON_PATCH, MERGE, STRATEGIC, TYPES
from tests.security.raw_http import PATIENCE, Ask, answers
from tests.security.test_expensive_bodies import MEMORY, assert_refused, peak

TARGET = f"{CONFIGMAPS}/patched"


@pytest.fixture(autouse=True)
def patched(shared: Server) -> None:
    with shared.client() as client:
        client.post(CONFIGMAPS, json=configmap("patched", a="x" * 10_000))


def patch(server: Server, media_type: str, body: bytes | Any) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    query = "dryRun=All" if media_type != APPLY else "dryRun=All&fieldManager=patcher"
    with server.client() as client:
        return client.patch(
            f"{TARGET}?{query}", content=content, headers={"Content-Type": media_type}, timeout=PATIENCE
        )


@pytest.mark.parametrize("operation", [{"op": "test", "path": "/kind", "value": "ConfigMap"}, {"op": "nope"}, 1, None])
def test_t34_more_operations_than_allowed_are_413_whatever_they_are(server: Server, operation: Any) -> None:
    assert_refused(patch(server, JSON_PATCH, [operation] * 10_001), 413)


def test_t34_as_many_operations_as_allowed_are_carried_out(server: Server) -> None:
    operations = [{"op": "replace", "path": "/data/a", "value": str(number)} for number in range(10_000)]
    answer = patch(server, JSON_PATCH, operations)
    assert (answer.status_code, answer.json()["data"]) == (200, {"a": "9999"})


def _doubling() -> list[Any]:
    return [{"op": "copy", "from": "/data", "path": f"/data/{'x' * number}"} for number in range(1, 40)]


def _growing() -> list[Any]:
    text = {"op": "add", "path": "/metadata/finalizers", "value": ["example.com/x" * 100]}
    return [text, *[{"op": "copy", "from": "/metadata/finalizers/0", "path": "/metadata/finalizers/-"}] * 9_000]


def _shifting() -> list[Any]:
    long = {"op": "add", "path": "/metadata/finalizers", "value": ["a"] * 400_000}
    return [long, *[{"op": "add", "path": "/metadata/finalizers/0", "value": "b"}] * 9_000]


def _nesting() -> list[Any]:
    return [{"op": "add", "path": "/data/n", "value": {}}, *[{"op": "copy", "from": "/data", "path": "/data/n"}] * 300]


def _sinking() -> list[Any]:
    return [{"op": "add", "path": "/n" * number, "value": {}} for number in range(1, 1000)]


@pytest.mark.parametrize(
    "operations",
    [_doubling, _growing, _shifting, _nesting, _sinking],
    ids=["copies of copies", "many copies", "shifted lists", "copies in copies", "deeper and deeper"],
)
def test_t34_a_patch_that_multiplies_is_refused(server: Server, operations: Callable[[], list[Any]]) -> None:
    before = peak(server)
    assert_refused(patch(server, JSON_PATCH, operations()), 413, 422)
    assert peak(server) - before < MEMORY


@pytest.mark.parametrize("media_type", TYPES)
@pytest.mark.parametrize("document", [None, True, 1, "x", [1], [[]], [None], [{}], {"metadata": 1}, {"data": []}])
def test_what_is_no_patch_is_refused(server: Server, media_type: str, document: Any) -> None:
    assert_refused(patch(server, media_type, document), 400, 422)


@pytest.mark.parametrize("media_type", TYPES)
@pytest.mark.parametrize(
    "body", [b"", b"{", b"\xff", b"\x00", b"{}{}", b"[1,]", b"'", b"{'a':", b"\xef\xbb\xbf[", b"nul"]
)
def test_what_is_no_document_is_refused(server: Server, media_type: str, body: bytes) -> None:
    assert_refused(patch(server, media_type, body), 400, 422)


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
        {"metadata": {"ownerReferences": [{"uid": "1", "$patch": {}}]}},
        {"metadata": {"$retainKeys": "name"}},
        {"metadata": {"$retainKeys": ["labels"], "annotations": {}}},
        {"metadata": {"$setElementOrder/finalizers": "a"}},
        {"metadata": {"$deleteFromPrimitiveList/finalizers": {}}},
    ],
    ids=json.dumps,
)
def test_directives_that_mean_nothing_are_refused(server: Server, document: Any) -> None:
    assert_refused(patch(server, STRATEGIC, document), 400, 422)


@pytest.mark.parametrize("media_type", [*TYPES, "application/json", "application/yaml"])
@pytest.mark.parametrize("chunked", [False, True], ids=["with its length", "in chunks"])
def test_a_body_past_the_limit_is_413_in_every_type(server: Server, media_type: str, chunked: bool) -> None:
    method, path = ("PATCH", TARGET) if media_type in TYPES else ("POST", CONFIGMAPS)
    headers = (("Authorization", f"Bearer {server.key}"), ("Content-Type", media_type))
    query = ("dryRun=All", "fieldManager=x")
    too_large = Ask(method, path, query, headers, b" " * (BODY_LIMIT + 1), chunked)
    (answer,) = answers(server, too_large)
    assert answer.status == 413
    assert json.loads(answer.body)["reason"] == "RequestEntityTooLarge"


def test_a_merge_cannot_make_an_object_of_another_kind(server: Server) -> None:
    for change in (
        {"kind": "Secret"},
        {"apiVersion": "v2"},
        {"metadata": {"name": "other"}},
        {"metadata": None},
        {"kind": None},
    ):
        for media_type in (MERGE, STRATEGIC):
            answer = patch(server, media_type, change)
            assert answer.status_code in (200, 400, 422), answer.text
            if answer.status_code == 200:
                assert (answer.json()["kind"], answer.json()["metadata"]["name"]) == ("ConfigMap", "patched")
