"""The second question of a client whose WebSocket was refused: the cluster's own words are the answer.

The far side answers as an API server of Kubernetes 1.35 was seen to: without an upgrade it looks up the pod and the
container, and asks for an upgrade only where nothing else is wrong.
"""

import json
from collections.abc import AsyncIterator, Iterator

import pytest

from fairlead.core.call import Call, RequestInfo
from fairlead.core.errors import ApiError, BadRequest
from fairlead.upstream.upstream import Upstream
from tests.fake_cluster.exchange import Answer, RecordedRequest, status_object
from tests.fake_cluster.server import FakeCluster
from tests.gateway.gateway_calls import asking, connected, through

POD = "/api/v1/namespaces/n/pods/p"
UPGRADE_MISSING = status_object(400, "BadRequest", "Upgrade request required")
FORBIDDEN = 'pods "p" is forbidden: User "anna" cannot create resource "pods/exec" in API group "" in the namespace "n"'


def answering(asked: RecordedRequest) -> Answer | None:
    if asked.query.get("container") == "wrong":
        return status_object(400, "BadRequest", "container wrong is not valid for pod p")
    return UPGRADE_MISSING if asked.path.startswith(f"{POD}/") else None


@pytest.fixture
def far() -> Iterator[FakeCluster]:
    with FakeCluster(answering) as made:
        yield made


@pytest.fixture
async def upstream(far: FakeCluster) -> AsyncIterator[Upstream]:
    async with connected(far) as made:
        yield made


def spdy(subresource: str, query: str = "", *, upgrade: str = "SPDY/3.1", resource: str = "pods") -> Call:
    headers = {"upgrade": upgrade, "connection": "Upgrade", "x-stream-protocol-version": "v4.channel.k8s.io"}
    target = RequestInfo("create", f"{POD}/{subresource}", "", "", "v1", resource, subresource, "n", "p")
    return asking(f"{POD}/{subresource}{query}", "POST", headers=headers, target=target)


async def refused(upstream: Upstream, call: Call) -> ApiError:
    with pytest.raises(BadRequest) as caught:
        await through(upstream, call)
    return caught.value


@pytest.mark.parametrize("subresource", ["exec", "attach", "portforward"])
async def test_the_clusters_refusal_is_the_answer(far: FakeCluster, upstream: Upstream, subresource: str) -> None:
    reply = await through(upstream, spdy(subresource, "?container=wrong&stdout=true"))
    assert (reply.status, reply.content_type) == (400, "application/json")
    assert json.loads(reply.body)["message"] == "container wrong is not valid for pod p"
    far.answer(f"{POD}/{subresource}", status_object(403, "Forbidden", FORBIDDEN))
    reply = await through(upstream, spdy(subresource))
    assert (reply.status, json.loads(reply.body)["message"]) == (403, FORBIDDEN)


async def test_nothing_can_be_run_by_asking(far: FakeCluster, upstream: Upstream) -> None:
    await refused(upstream, spdy("exec", "?command=rm&command=-rf&command=%2F&container=c&stdin=true"))
    assert far.paths() == [f"{each} {POD}/exec?container=c&stdin=true" for each in ("POST", "GET")]
    for asked in far.seen:
        assert asked.all("impersonate-user") == ["fairlead:anna"]
        assert not asked.all("upgrade") and not asked.all("connection") and not asked.body


@pytest.mark.parametrize("upgrade", ["SPDY/3.1", "spdy/3.1", "h2c, SPDY/3.1"])
async def test_who_is_not_refused_is_told_to_use_websockets(upstream: Upstream, upgrade: str) -> None:
    error = await refused(upstream, spdy("exec", "?command=ls", upgrade=upgrade))
    assert error.code == 400
    assert "kubectl 1.31" in error.message and "too" not in error.message


async def test_who_may_open_no_websocket_is_told_why() -> None:
    """With the right to create alone, kubectl gets no WebSocket, which is a GET, and turns to SPDY."""

    def only_creating(asked: RecordedRequest) -> Answer | None:
        denied = 'User "anna" cannot get resource "pods/exec"'
        return status_object(403, "Forbidden", denied) if asked.method == "GET" else UPGRADE_MISSING

    with FakeCluster(only_creating) as far:
        async with connected(far) as upstream:
            error = await refused(upstream, spdy("exec"))
    assert 'rejects a WebSocket, too: User "anna" cannot get resource "pods/exec"' in error.message


@pytest.mark.parametrize(
    ("subresource", "resource"), [("proxy", "pods"), ("exec", "services"), ("", "pods"), ("log", "pods")]
)
async def test_where_asking_would_do_something_nothing_is_asked(
    far: FakeCluster, upstream: Upstream, subresource: str, resource: str
) -> None:
    error = await refused(upstream, spdy(subresource, resource=resource))
    assert "kubectl 1.31" in error.message
    assert far.connections == 0


@pytest.mark.parametrize("answer", [Answer(200, b"hello"), Answer(400, b"[]"), Answer(400, b"\xff"), Answer(101, b"")])
async def test_an_answer_that_makes_no_sense_is_no_success(
    far: FakeCluster, upstream: Upstream, answer: Answer
) -> None:
    far.answer(f"{POD}/exec", answer)
    try:
        reply = await through(upstream, spdy("exec"))
    except ApiError as error:
        assert error.code >= 400
    else:
        assert reply.status == 400 and reply.upgrade is None
