"""Tests of `fairlead.upstream.kube_client`: requests for objects of a connected cluster."""

import json
import threading
from typing import Any

import pytest

from fairlead.core.json import decode_foreign
from fairlead.upstream import kube_client as module
from fairlead.upstream.errors import ProtocolError, TimedOut
from fairlead.upstream.kube_client import KubeClient, RemoteApiError, delete_if_exists, get_or_none
from tests.fake_cluster.exchange import CannedResponse, build_json_response, build_status_response
from tests.fake_cluster.server import FakeCluster
from tests.upstream.upstreams import connect_upstream

PATH = "/api/v1/namespaces/n"


async def test_each_verb_sends_the_right_request(fake_cluster: FakeCluster) -> None:
    fake_cluster.set_response(PATH, build_json_response({"kind": "Namespace"}))
    body = {"metadata": {"name": "n"}}
    async with connect_upstream(fake_cluster) as upstream:
        api = KubeClient(upstream)
        assert await api.get(PATH) == {"kind": "Namespace"}
        await api.list(PATH, labelSelector="a=b,c")
        await api.create(PATH, body)
        await api.apply(PATH, body)
        await api.patch(PATH, body)
        await api.patch(PATH, [], "application/json-patch+json")
        await api.delete(PATH)
        await api.delete(PATH, {"preconditions": {"uid": "u"}})
    assert fake_cluster.request_lines() == [
        f"GET {PATH}",
        f"GET {PATH}?labelSelector=a%3Db%2Cc",
        f"POST {PATH}?fieldManager=fairlead",
        f"PATCH {PATH}?fieldManager=fairlead&force=true",
        f"PATCH {PATH}?fieldManager=fairlead",
        f"PATCH {PATH}?fieldManager=fairlead",
        f"DELETE {PATH}",
        f"DELETE {PATH}",
    ]
    assert [request.header("content-type") for request in fake_cluster.requests] == [
        "",
        "",
        "application/json",
        "application/apply-patch+yaml",
        "application/merge-patch+json",
        "application/json-patch+json",
        "",
        "application/json",
    ]
    assert json.loads(fake_cluster.requests[3].body) == body
    assert fake_cluster.connection_count == 1


async def test_an_error_of_the_cluster_keeps_its_status_reason_and_message(fake_cluster: FakeCluster) -> None:
    fake_cluster.set_response(PATH, build_status_response(404, "NotFound", 'namespaces "n" not found'))
    async with connect_upstream(fake_cluster) as upstream:
        with pytest.raises(RemoteApiError) as caught:
            await KubeClient(upstream).get(PATH)
    error = caught.value
    assert (error.status, error.reason, error.message) == (404, "NotFound", 'namespaces "n" not found')


async def test_only_an_object_that_does_not_exist_is_no_error(fake_cluster: FakeCluster) -> None:
    async with connect_upstream(fake_cluster) as upstream:
        api = KubeClient(upstream)
        fake_cluster.set_response(PATH, build_status_response(404, "NotFound", 'namespaces "n" not found'))
        assert await get_or_none(api, PATH) is None
        await delete_if_exists(api, PATH)
        fake_cluster.set_response(PATH, build_status_response(403, "Forbidden", "no"))
        with pytest.raises(RemoteApiError):
            await get_or_none(api, PATH)
        with pytest.raises(RemoteApiError):
            await delete_if_exists(api, PATH)
        fake_cluster.set_response(PATH, build_json_response({"kind": "Namespace"}))
        assert await get_or_none(api, PATH) == {"kind": "Namespace"}


@pytest.mark.parametrize("body", [b"<html>secret</html>", b'["secret"]', b'{"message":"secret"}', b""])
async def test_an_error_body_that_is_no_status_object_is_not_repeated(fake_cluster: FakeCluster, body: bytes) -> None:
    fake_cluster.set_response(PATH, CannedResponse(500, body, "text/html"))
    async with connect_upstream(fake_cluster) as upstream:
        with pytest.raises(RemoteApiError) as caught:
            await KubeClient(upstream).get(PATH)
    assert caught.value.status == 500
    assert "secret" not in caught.value.message


async def test_a_redirect_is_an_error(fake_cluster: FakeCluster) -> None:
    async with connect_upstream(fake_cluster) as upstream:
        with pytest.raises(RemoteApiError):
            await KubeClient(upstream).get("/fake/redirect")


async def test_a_response_that_is_no_json_object_is_a_protocol_error(fake_cluster: FakeCluster) -> None:
    async with connect_upstream(fake_cluster) as upstream:
        with pytest.raises(ProtocolError, match="not a JSON object"):
            await KubeClient(upstream).get("/readyz")


@pytest.mark.parametrize(("items", "is_inline"), [(10, True), (100_000, False)])
async def test_a_large_response_is_decoded_outside_of_the_event_loop(
    fake_cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, items: int, is_inline: bool
) -> None:
    threads: list[int] = []

    def decode(data: bytes, max_values: int) -> Any:
        threads.append(threading.get_ident())
        return decode_foreign(data, max_values)

    monkeypatch.setattr("fairlead.upstream.kube_client.decode_foreign", decode)
    fake_cluster.set_response("/x", CannedResponse(200, json.dumps({"items": [[]] * items}).encode()))
    async with connect_upstream(fake_cluster) as upstream:
        assert len((await KubeClient(upstream).get("/x"))["items"]) == items
    assert [each == threading.get_ident() for each in threads] == [is_inline]


async def test_a_response_of_very_many_values_is_a_protocol_error(fake_cluster: FakeCluster) -> None:
    """As lists, they would take a hundred times as much memory as text."""
    fake_cluster.set_response("/x", CannedResponse(200, b'{"items":[' + b"[]," * module.MAX_VALUES + b"[]]}"))
    async with connect_upstream(fake_cluster) as upstream:
        with pytest.raises(ProtocolError, match="more than 1000000 values"):
            await KubeClient(upstream).get("/x")


async def test_a_large_error_is_not_read(fake_cluster: FakeCluster) -> None:
    body = {"kind": "Status", "message": "x" * module.MAX_STATUS_BYTES}
    fake_cluster.set_response("/x", CannedResponse(500, json.dumps(body).encode()))
    async with connect_upstream(fake_cluster) as upstream:
        with pytest.raises(RemoteApiError, match="status 500 and no message"):
            await KubeClient(upstream).get("/x")


async def test_a_request_has_a_timeout(fake_cluster: FakeCluster) -> None:
    async with connect_upstream(fake_cluster) as upstream:
        with pytest.raises(TimedOut):
            await KubeClient(upstream, seconds=0.1).get("/fake/stall")
        assert upstream.in_use == 0


async def test_a_log_is_text_and_is_read_with_the_permissions_of_the_user(fake_cluster: FakeCluster) -> None:
    path = f"{PATH}/pods/p/log"
    fake_cluster.set_response(path, CannedResponse(200, b"one\n\xff\n", "text/plain"))
    async with connect_upstream(fake_cluster) as upstream:
        assert await KubeClient(upstream, impersonate_user="ada").get_text(f"{path}?tailLines=2") == "one\n\ufffd\n"
        fake_cluster.set_response(path, build_status_response(403, "Forbidden", "no"))
        with pytest.raises(RemoteApiError, match="no"):
            await KubeClient(upstream).get_text(path)
    first, second = fake_cluster.requests
    assert (first.header("impersonate-user"), second.header("impersonate-user")) == ("ada", "")
    assert fake_cluster.request_lines()[0] == f"GET {path}?tailLines=2"
