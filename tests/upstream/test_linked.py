"""Requests to a cluster through its agent: over a link in memory, to a fake cluster that the agent dials."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from fairlead.agent.requests import RequestService
from fairlead.core.errors import BadRequest, Forbidden, HeadersTooLarge
from fairlead.links.contract import OpenHandler, Stream
from fairlead.links.requests import HTTP, OpenRequest, Refused, RequestHead, ResponseHead
from fairlead.upstream.access import Limits, Request
from fairlead.upstream.dial import DirectDialer
from fairlead.upstream.errors import (
    AgentUnavailable,
    HandshakeRejected,
    ProtocolError,
    ResponseTooLarge,
    TimedOut,
    TlsError,
    Unreachable,
    UpstreamError,
)
from fairlead.upstream.linked import LinkExchanges
from fairlead.upstream.upstream import Upstream, dialled_exchanges
from tests.fake_cluster.exchange import CannedResponse
from tests.fake_cluster.server import FakeCluster
from tests.harness.eventually import eventually
from tests.links.pipes import LinkPair, linked
from tests.upstream.upstreams import READ_LIMIT, build_endpoint, resolve_unchanged


@dataclass(slots=True)
class LinkedCluster:
    upstream: Upstream
    pair: LinkPair


@asynccontextmanager
async def linked_upstream(
    cluster: FakeCluster, limits: Limits | None = None, *, serve: OpenHandler | None = None, **fields: str
) -> AsyncIterator[LinkedCluster]:
    """An agent beside the fake cluster, and the Upstream that reaches it over the link."""
    endpoint = build_endpoint(cluster, **fields)
    dialled = dialled_exchanges(endpoint, DirectDialer(endpoint, resolve_unchanged), Limits())
    async with linked(serve or RequestService(lambda: dialled).serve) as pair:
        exchanges = LinkExchanges("berlin", pair.server.open, limits or Limits(), "fairlead/test")
        upstream = Upstream(exchanges, limits or Limits())
        try:
            yield LinkedCluster(upstream, pair)
            await upstream.close()
            await eventually(lambda: not pair.server.stream_count and not pair.runner.stream_count)
            assert upstream.in_use == 0
        finally:
            dialled.close()


async def test_a_request_and_its_response_pass_unchanged(fake_cluster: FakeCluster) -> None:
    fake_cluster.set_response("/api/v1/pods", CannedResponse(202, b'{"kind": "PodList"}', "application/x"))
    async with linked_upstream(fake_cluster) as linked_cluster:
        headers = [("impersonate-user", "fairlead:ada"), ("impersonate-group", "system:authenticated")]
        response = await linked_cluster.upstream.send(Request("GET", "/api/v1/pods?limit=5", headers))
        assert response.status == 202
        assert ("content-type", "application/x") in response.headers
        assert await response.read(READ_LIMIT) == b'{"kind": "PodList"}'
    (request,) = fake_cluster.requests
    sent = {name.lower(): value for name, value in request.headers}
    assert sent["impersonate-user"] == "fairlead:ada"
    assert sent["authorization"] == "Bearer stored-token"
    assert sent["user-agent"] == "fairlead/test"


async def chunks(count: int, size: int) -> AsyncIterator[bytes]:
    for number in range(count):
        yield bytes((number % 256,)) * size


@pytest.mark.parametrize("body", [b"", b"x" * 10, b"x" * 3_000_000, None], ids=["none", "small", "large", "streamed"])
async def test_bodies_of_requests_arrive_whole(fake_cluster: FakeCluster, body: bytes | None) -> None:
    async with linked_upstream(fake_cluster) as linked_cluster:
        sent = chunks(40, 50_000) if body is None else body
        response = await linked_cluster.upstream.send(Request("POST", "/api/v1/pods", (), sent))
        await response.read(READ_LIMIT)
    expected = b"".join(bytes((number,)) * 50_000 for number in range(40)) if body is None else body
    assert fake_cluster.requests[0].body == expected


async def test_a_large_response_that_is_read_slowly_is_complete(fake_cluster: FakeCluster) -> None:
    content = bytes(range(256)) * 20_000
    fake_cluster.set_response("/api/large", CannedResponse(200, content))
    async with linked_upstream(fake_cluster) as linked_cluster:
        response = await linked_cluster.upstream.send(Request("GET", "/api/large"))
        received = bytearray()
        while chunk := await response.read_chunk():
            received += chunk
            await asyncio.sleep(0)
        assert bytes(received) == content


async def test_a_reader_that_stops_does_not_stop_the_others(fake_cluster: FakeCluster) -> None:
    fake_cluster.set_response("/api/large", CannedResponse(200, bytes(8_000_000)))
    async with linked_upstream(fake_cluster) as linked_cluster:
        frozen = await linked_cluster.upstream.send(Request("GET", "/api/large"))
        for _ in range(50):
            response = await linked_cluster.upstream.send(Request("GET", "/version"))
            await response.read(READ_LIMIT)
        await frozen.close()


@pytest.mark.parametrize(
    "headers",
    [
        [("impersonate-user", "system:admin")],
        [("Impersonate-User", "system:serviceaccount:kube-system:default")],
        [("impersonate-user", "fairlead:ada"), ("Impersonate-Group", "system:masters")],
        [("impersonate-user", "fairlead:ada"), ("impersonate-group", " system:nodes")],
    ],
)
async def test_the_agent_refuses_identities_of_the_cluster_itself(
    fake_cluster: FakeCluster, headers: list[tuple[str, str]]
) -> None:
    async with linked_upstream(fake_cluster) as linked_cluster:
        with pytest.raises(Forbidden, match="names of the cluster itself"):
            await linked_cluster.upstream.send(Request("GET", "/api/v1/pods", headers))
    assert fake_cluster.requests == []


@pytest.mark.parametrize(
    "headers", [[("impersonate-group", "g")], [("impersonate-user", "a"), ("impersonate-user", "b")]]
)
async def test_the_agent_refuses_an_unclear_identity(fake_cluster: FakeCluster, headers: list[tuple[str, str]]) -> None:
    async with linked_upstream(fake_cluster) as linked_cluster:
        with pytest.raises(BadRequest, match="exactly one user"):
            await linked_cluster.upstream.send(Request("GET", "/api/v1/pods", headers))
    assert fake_cluster.requests == []


@pytest.mark.parametrize("target", ["/api/../secret", "/a b", "no-slash"])
async def test_paths_that_a_cluster_could_misread_are_not_sent(fake_cluster: FakeCluster, target: str) -> None:
    async with linked_upstream(fake_cluster) as linked_cluster:
        with pytest.raises(BadRequest):
            await linked_cluster.upstream.send(Request("GET", target))
        with pytest.raises(BadRequest):
            await linked_cluster.upstream.send(Request("GET", "/", [("x", "a\r\nimpersonate-user: root")]))
    assert fake_cluster.requests == []


async def test_too_many_headers_are_an_error_of_the_request(fake_cluster: FakeCluster) -> None:
    async with linked_upstream(fake_cluster) as linked_cluster:
        with pytest.raises(HeadersTooLarge):
            await linked_cluster.upstream.send(Request("GET", "/", [("impersonate-user", "a"), ("x", "y" * 70_000)]))


async def test_an_error_names_the_leg_that_failed(fake_cluster: FakeCluster) -> None:
    async with linked_upstream(fake_cluster) as linked_cluster:
        fake_cluster.stop()
        with pytest.raises(Unreachable, match="its agent is connected, but the API server of the cluster is unreach"):
            await linked_cluster.upstream.send(Request("GET", "/version"))


async def test_a_certificate_that_the_agent_does_not_trust_is_named(fake_cluster: FakeCluster) -> None:
    async with linked_upstream(fake_cluster, tls_server_name="elsewhere.example.com") as linked_cluster:
        with pytest.raises(TlsError, match="its agent is connected, but does not trust"):
            await linked_cluster.upstream.send(Request("GET", "/version"))


@pytest.mark.parametrize(
    ("code", "error"), [(503, AgentUnavailable), (501, AgentUnavailable), (504, TimedOut), (502, Unreachable)]
)
async def test_a_refusal_is_an_error_without_a_request(
    fake_cluster: FakeCluster, code: int, error: type[UpstreamError]
) -> None:
    async def refuse(request: OpenRequest, stream: Stream) -> None:
        raise Refused(code, "not begun")

    async with linked_upstream(fake_cluster, serve=refuse) as linked_cluster:
        with pytest.raises(error):
            await linked_cluster.upstream.send(Request("POST", "/api/v1/pods", (), b"{}"))


async def test_a_link_that_is_lost_ends_requests_at_once(fake_cluster: FakeCluster) -> None:
    async def hang(request: OpenRequest, stream: Stream) -> None:
        assert request.http is not None
        if request.http.target == "/watch":
            await stream.send_head(ResponseHead(200))
            await stream.send(1, b"event")
        await stream.accept({})
        await asyncio.Event().wait()

    async with linked_upstream(fake_cluster, serve=hang) as linked_cluster:
        watch = await linked_cluster.upstream.send(Request("GET", "/watch"))
        assert await watch.read_chunk() == b"event"
        waiting = asyncio.create_task(linked_cluster.upstream.send(Request("POST", "/", (), b"{}")))
        await eventually(lambda: linked_cluster.pair.server.stream_count == 2)
        await linked_cluster.pair.runner_pipe.close()
        with pytest.raises(Unreachable, match="may have been executed"):
            await waiting
        with pytest.raises(ProtocolError, match="was lost in the middle"):
            await watch.read_chunk()


async def test_an_agent_that_does_not_respond_is_waited_for_as_long_as_a_cluster(fake_cluster: FakeCluster) -> None:
    async def hang(request: OpenRequest, stream: Stream) -> None:
        await stream.accept({})
        await asyncio.Event().wait()

    limits = Limits(response_header_seconds=0.2)
    async with linked_upstream(fake_cluster, limits, serve=hang) as linked_cluster:
        with pytest.raises(TimedOut):
            await linked_cluster.upstream.send(Request("GET", "/version"))
        with pytest.raises(TimedOut):
            await linked_cluster.upstream.open_websocket(Request("GET", "/exec"), ("v5.channel.k8s.io",))


@pytest.mark.parametrize(
    "headers",
    [
        (("x-a", "1\r\nset-cookie: b"),),
        (("bad name", "1"),),
        (("x", "\N{SNOWMAN}"),),
        (("content-length", "9" * 5000),),
        (("content-length", "1"), ("Content-Length", "2")),
    ],
    ids=["crlf", "name", "text", "long length", "two lengths"],
)
async def test_headers_of_a_hostile_agent_are_not_passed_on(
    fake_cluster: FakeCluster, headers: tuple[tuple[str, str], ...]
) -> None:
    async def answer(request: OpenRequest, stream: Stream) -> None:
        await stream.send_head(ResponseHead(200, headers))
        await stream.send_exit(0)

    async with linked_upstream(fake_cluster, serve=answer) as linked_cluster:
        with pytest.raises(ProtocolError, match="not valid HTTP"):
            await linked_cluster.upstream.send(Request("GET", "/version"))


@pytest.mark.parametrize("status", [100, 101, 199])
async def test_a_hostile_agent_cannot_leave_the_client_waiting_for_another_head(
    fake_cluster: FakeCluster, status: int
) -> None:
    async def answer(request: OpenRequest, stream: Stream) -> None:
        assert request.http is not None
        await stream.send_head(ResponseHead(100 if request.http.upgrade else status))
        await stream.send_exit(0)

    async with linked_upstream(fake_cluster, serve=answer) as linked_cluster:
        with pytest.raises(ProtocolError, match="not valid HTTP"):
            await linked_cluster.upstream.send(Request("GET", "/version"))
        with pytest.raises(ProtocolError, match="not valid HTTP"):
            await linked_cluster.upstream.open_websocket(Request("GET", "/exec"), V5)


@pytest.mark.parametrize(
    ("method", "status", "length", "body", "error"),
    [
        ("GET", 200, "5", b"HELLO" + b"HTTP/1.1 200 OK\r\n\r\n", "longer"),
        ("GET", 200, "5", b"HELL", "shorter"),
        ("HEAD", 200, "5", b"H", "longer"),
        ("GET", 204, "", b"x", "longer"),
        ("GET", 304, "5", b"x", "longer"),
    ],
)
async def test_a_hostile_agent_cannot_put_another_response_behind_a_body(
    fake_cluster: FakeCluster, method: str, status: int, length: str, body: bytes, error: str
) -> None:
    async def answer(request: OpenRequest, stream: Stream) -> None:
        await stream.send_head(ResponseHead(status, (("content-length", length),) if length else ()))
        await stream.send(1, body)
        await stream.send_exit(0)

    async with linked_upstream(fake_cluster, serve=answer) as linked_cluster:
        response = await linked_cluster.upstream.send(Request(method, "/version"))
        received = b""
        with pytest.raises(ProtocolError, match=error):
            while chunk := await response.read_chunk():
                received += chunk
        assert len(received) <= 5


async def test_a_hostile_agent_cannot_fill_the_memory_with_an_endless_body(fake_cluster: FakeCluster) -> None:
    sent = 0

    async def flood(request: OpenRequest, stream: Stream) -> None:
        nonlocal sent
        await stream.send_head(ResponseHead(200))
        while True:
            await stream.send(1, bytes(16_000))
            sent += 16_000

    async with linked_upstream(fake_cluster, serve=flood) as linked_cluster:
        response = await linked_cluster.upstream.send(Request("GET", "/version"))
        agent = linked_cluster.pair.runner.mux
        await eventually(lambda: any(each.starved_since is not None for each in agent.streams.values()))
        assert sent < 3_000_000  # nothing reads it: then the credit is used up
        with pytest.raises(ResponseTooLarge):
            await response.read(READ_LIMIT)


@pytest.mark.parametrize(
    "target", ["/debug/pprof/", "/logs/", "/configz", "//api", "/%61pi/v1", "/apiserver", "/api\\v1"]
)
async def test_the_agent_carries_the_paths_of_the_api_only(fake_cluster: FakeCluster, target: str) -> None:
    async with linked_upstream(fake_cluster) as linked_cluster:
        with pytest.raises(Forbidden, match="only the paths of the Kubernetes API are sent"):
            await linked_cluster.upstream.send(Request("GET", target))
    assert fake_cluster.requests == []


@pytest.mark.parametrize("target", ["/", "/api", "/apis?x=/debug", "/version", "/readyz/ping", "/openapi/v3"])
async def test_the_agent_carries_discovery_and_health(fake_cluster: FakeCluster, target: str) -> None:
    async with linked_upstream(fake_cluster) as linked_cluster:
        await (await linked_cluster.upstream.send(Request("GET", target))).read(READ_LIMIT)
    assert len(fake_cluster.requests) == 1


async def test_the_agent_sends_its_own_credential_whatever_the_server_says(fake_cluster: FakeCluster) -> None:
    """A server that was broken into does not use `LinkExchanges`, which would leave all of this out."""
    headers = (
        ("authorization", "Bearer stolen"),
        ("host", "elsewhere.example.com"),
        ("connection", "impersonate-user"),
        ("transfer-encoding", "chunked"),
        ("content-length", "500"),
        ("impersonate-user", "fairlead:ada"),
    )
    async with linked_upstream(fake_cluster) as linked_cluster:
        head = RequestHead("GET", "/api/v1/pods", headers)
        stream = await linked_cluster.pair.server.open(OpenRequest(HTTP, cluster="oslo", http=head))
        while await stream.receive() is not None:
            pass
    (request,) = fake_cluster.requests
    sent = {name.lower(): value for name, value in request.headers}
    assert sent["authorization"] == "Bearer stored-token"
    assert sent["impersonate-user"] == "fairlead:ada"
    assert "elsewhere" not in sent["host"]
    assert not {"transfer-encoding", "content-length"} & sent.keys()
    assert "impersonate-user" not in sent.get("connection", "")


V5 = ("v5.channel.k8s.io", "v4.channel.k8s.io")


async def test_a_websocket_carries_messages_of_any_size_both_ways(fake_cluster: FakeCluster) -> None:
    async with linked_upstream(fake_cluster) as linked_cluster:
        websocket = await linked_cluster.upstream.open_websocket(Request("GET", "/api/v1/pods/p/exec"), V5)
        assert websocket.subprotocol == "v5.channel.k8s.io"
        for size in (1, 1000, 400_000):
            await websocket.send(b"\0" + b"x" * size)
            received = bytearray()
            while len(received) < size:
                message = await websocket.receive()
                assert isinstance(message, bytes)
                assert message[:1] == b"\1"
                received += message[1:]
            assert bytes(received) == b"x" * size
        await websocket.close(1000, "")


async def test_a_websocket_that_the_cluster_closes_ends_with_its_last_message(fake_cluster: FakeCluster) -> None:
    async with linked_upstream(fake_cluster) as linked_cluster:
        websocket = await linked_cluster.upstream.open_websocket(Request("GET", "/api/v1/pods/p/exec"), V5)
        await websocket.send(b"\xff\0")  # the end of stdin ends the command
        messages = []
        while (message := await websocket.receive()) is not None:
            messages.append(message)
        assert b"Success" in messages[-1]


async def test_a_rejected_websocket_has_the_response_of_the_cluster(fake_cluster: FakeCluster) -> None:
    async with linked_upstream(fake_cluster) as linked_cluster:
        with pytest.raises(HandshakeRejected) as rejected:
            await linked_cluster.upstream.open_websocket(Request("GET", "/api/fake/refuse"), V5)
        assert rejected.value.status == 403
        assert b"exec is forbidden" in rejected.value.body


async def test_a_websocket_ends_with_the_link(fake_cluster: FakeCluster) -> None:
    async with linked_upstream(fake_cluster) as linked_cluster:
        websocket = await linked_cluster.upstream.open_websocket(Request("GET", "/api/v1/pods/p/exec"), V5)
        await linked_cluster.pair.runner_pipe.close()
        assert await websocket.receive() is None
