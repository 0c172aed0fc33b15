"""Tests of SPDY requests, which a client sends after a rejected WebSocket: the cluster's own error is the response.

The fake cluster responds like an API server of Kubernetes 1.35: without an upgrade it looks up the pod and the
container, and demands an upgrade only if there is no other error.
"""

import json
from collections.abc import Iterator

import pytest

from fairlead.core.call import Call, RequestInfo
from fairlead.core.errors import ApiError, BadRequest
from fairlead.upstream.upstream import Upstream
from tests.fake_cluster.exchange import CannedResponse, RecordedRequest, build_status_response
from tests.fake_cluster.server import FakeCluster
from tests.gateway.gateway_calls import build_call, connect_upstream, forward_call

POD = "/api/v1/namespaces/n/pods/p"
UPGRADE_MISSING = build_status_response(400, "BadRequest", "Upgrade request required")
FORBIDDEN = 'pods "p" is forbidden: User "anna" cannot create resource "pods/exec" in API group "" in the namespace "n"'


def respond(request: RecordedRequest) -> CannedResponse | None:
    if request.query.get("container") == "wrong":
        return build_status_response(400, "BadRequest", "container wrong is not valid for pod p")
    return UPGRADE_MISSING if request.path.startswith(f"{POD}/") else None


@pytest.fixture
def fake_cluster() -> Iterator[FakeCluster]:
    with FakeCluster(respond) as cluster:
        yield cluster


def build_spdy_call(subresource: str, query: str = "", *, upgrade: str = "SPDY/3.1", resource: str = "pods") -> Call:
    headers = {"upgrade": upgrade, "connection": "Upgrade", "x-stream-protocol-version": "v4.channel.k8s.io"}
    target = RequestInfo("create", f"{POD}/{subresource}", "", "", "v1", resource, subresource, "n", "p")
    return build_call(f"{POD}/{subresource}{query}", "POST", headers=headers, target=target)


async def expect_error(upstream: Upstream, call: Call) -> ApiError:
    with pytest.raises(BadRequest) as caught:
        await forward_call(upstream, call)
    return caught.value


@pytest.mark.parametrize("subresource", ["exec", "attach", "portforward"])
async def test_the_error_of_the_cluster_is_the_response(
    fake_cluster: FakeCluster, upstream: Upstream, subresource: str
) -> None:
    reply = await forward_call(upstream, build_spdy_call(subresource, "?container=wrong&stdout=true"))
    assert (reply.status, reply.content_type) == (400, "application/json")
    assert json.loads(reply.body)["message"] == "container wrong is not valid for pod p"
    fake_cluster.set_response(f"{POD}/{subresource}", build_status_response(403, "Forbidden", FORBIDDEN))
    reply = await forward_call(upstream, build_spdy_call(subresource))
    assert (reply.status, json.loads(reply.body)["message"]) == (403, FORBIDDEN)


async def test_a_spdy_request_cannot_run_a_command(fake_cluster: FakeCluster, upstream: Upstream) -> None:
    await expect_error(upstream, build_spdy_call("exec", "?command=rm&command=-rf&command=%2F&container=c&stdin=true"))
    assert fake_cluster.request_lines() == [f"{method} {POD}/exec?container=c&stdin=true" for method in ("POST", "GET")]
    for request in fake_cluster.requests:
        assert request.header_values("impersonate-user") == ["fairlead:anna"]
        assert not request.header_values("upgrade") and not request.header_values("connection") and not request.body


@pytest.mark.parametrize("upgrade", ["SPDY/3.1", "spdy/3.1", "h2c, SPDY/3.1"])
async def test_a_request_without_another_error_is_rejected_with_a_hint_to_use_websockets(
    upstream: Upstream, upgrade: str
) -> None:
    error = await expect_error(upstream, build_spdy_call("exec", "?command=ls", upgrade=upgrade))
    assert error.code == 400
    assert "kubectl 1.31" in error.message and "too" not in error.message


async def test_the_error_says_why_a_websocket_is_rejected() -> None:
    """With the verb create alone, kubectl gets no WebSocket, which is a GET, and falls back to SPDY."""

    def allow_create_only(request: RecordedRequest) -> CannedResponse | None:
        denied = 'User "anna" cannot get resource "pods/exec"'
        return build_status_response(403, "Forbidden", denied) if request.method == "GET" else UPGRADE_MISSING

    with FakeCluster(allow_create_only) as fake_cluster:
        async with connect_upstream(fake_cluster) as upstream:
            error = await expect_error(upstream, build_spdy_call("exec"))
    assert 'rejects a WebSocket, too: User "anna" cannot get resource "pods/exec"' in error.message


@pytest.mark.parametrize(
    ("subresource", "resource"), [("proxy", "pods"), ("exec", "services"), ("", "pods"), ("log", "pods")]
)
async def test_requests_that_could_have_an_effect_are_not_sent_to_the_cluster(
    fake_cluster: FakeCluster, upstream: Upstream, subresource: str, resource: str
) -> None:
    error = await expect_error(upstream, build_spdy_call(subresource, resource=resource))
    assert "kubectl 1.31" in error.message
    assert fake_cluster.connection_count == 0


@pytest.mark.parametrize(
    "response",
    [CannedResponse(200, b"hello"), CannedResponse(400, b"[]"), CannedResponse(400, b"\xff"), CannedResponse(101, b"")],
)
async def test_an_unexpected_response_is_not_a_success(
    fake_cluster: FakeCluster, upstream: Upstream, response: CannedResponse
) -> None:
    fake_cluster.set_response(f"{POD}/exec", response)
    try:
        reply = await forward_call(upstream, build_spdy_call("exec"))
    except ApiError as error:
        assert error.code >= 400
    else:
        assert reply.status == 400 and reply.upgrade is None
