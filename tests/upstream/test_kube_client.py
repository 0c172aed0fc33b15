"""Objects of a connected cluster, as controllers ask for them."""

import json

import pytest

from fairlead.upstream.errors import ProtocolError, TimedOut
from fairlead.upstream.kube_client import KubeClient, RemoteApiError
from tests.fake_cluster.exchange import Answer, as_json, status_object
from tests.fake_cluster.server import FakeCluster
from tests.upstream.upstreams import reaching

PATH = "/api/v1/namespaces/n"


async def test_each_verb_is_the_right_request(fake_cluster: FakeCluster) -> None:
    fake_cluster.answer(PATH, as_json({"kind": "Namespace"}))
    body = {"metadata": {"name": "n"}}
    async with reaching(fake_cluster) as upstream:
        api = KubeClient(upstream)
        assert await api.get(PATH) == {"kind": "Namespace"}
        await api.list(PATH, labelSelector="a=b,c")
        await api.create(PATH, body)
        await api.apply(PATH, body)
        await api.patch(PATH, body)
        await api.patch(PATH, [], "application/json-patch+json")
        await api.delete(PATH)
        await api.delete(PATH, {"preconditions": {"uid": "u"}})
    assert fake_cluster.paths() == [
        f"GET {PATH}",
        f"GET {PATH}?labelSelector=a%3Db%2Cc",
        f"POST {PATH}?fieldManager=fairlead",
        f"PATCH {PATH}?fieldManager=fairlead&force=true",
        f"PATCH {PATH}?fieldManager=fairlead",
        f"PATCH {PATH}?fieldManager=fairlead",
        f"DELETE {PATH}",
        f"DELETE {PATH}",
    ]
    assert [each.header("content-type") for each in fake_cluster.seen] == [
        "",
        "",
        "application/json",
        "application/apply-patch+yaml",
        "application/merge-patch+json",
        "application/json-patch+json",
        "",
        "application/json",
    ]
    assert json.loads(fake_cluster.seen[3].body) == body
    assert fake_cluster.connections == 1


async def test_a_failure_of_the_cluster_is_told_in_its_words(fake_cluster: FakeCluster) -> None:
    fake_cluster.answer(PATH, status_object(404, "NotFound", 'namespaces "n" not found'))
    async with reaching(fake_cluster) as upstream:
        with pytest.raises(RemoteApiError) as caught:
            await KubeClient(upstream).get(PATH)
    error = caught.value
    assert (error.status, error.reason, error.message) == (404, "NotFound", 'namespaces "n" not found')


@pytest.mark.parametrize("body", [b"<html>secret</html>", b'["secret"]', b'{"message":"secret"}', b""])
async def test_a_failure_that_is_no_status_is_not_echoed(fake_cluster: FakeCluster, body: bytes) -> None:
    fake_cluster.answer(PATH, Answer(500, body, "text/html"))
    async with reaching(fake_cluster) as upstream:
        with pytest.raises(RemoteApiError) as caught:
            await KubeClient(upstream).get(PATH)
    assert caught.value.status == 500
    assert "secret" not in caught.value.message


async def test_a_redirect_is_a_failure(fake_cluster: FakeCluster) -> None:
    async with reaching(fake_cluster) as upstream:
        with pytest.raises(RemoteApiError):
            await KubeClient(upstream).get("/far/redirect")


async def test_an_answer_that_is_no_object_is_broken(fake_cluster: FakeCluster) -> None:
    async with reaching(fake_cluster) as upstream:
        with pytest.raises(ProtocolError, match="not a JSON object"):
            await KubeClient(upstream).get("/readyz")


async def test_a_call_takes_so_long_only(fake_cluster: FakeCluster) -> None:
    async with reaching(fake_cluster) as upstream:
        with pytest.raises(TimedOut):
            await KubeClient(upstream, seconds=0.1).get("/far/stall")
        assert upstream.in_use == 0
