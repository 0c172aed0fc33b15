"""Tests of `fairlead.upstream.local_gateway`: another program sends requests to a cluster through this process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import httpx
import pytest

from fairlead.upstream import local_gateway as module
from fairlead.upstream.access import ClusterEndpoint, Request
from fairlead.upstream.dial import build_ssl_context
from fairlead.upstream.errors import AgentUnavailable
from fairlead.upstream.local_gateway import local_gateway
from fairlead.upstream.messages import Response
from tests.fake_cluster.exchange import CannedResponse
from tests.fake_cluster.server import FakeCluster
from tests.harness.eventually import TIMEOUT_SECONDS
from tests.harness.local_gateways import build_client
from tests.upstream.upstreams import connect_upstream


@asynccontextmanager
async def gateway_client(fake_cluster: FakeCluster) -> AsyncIterator[httpx.AsyncClient]:
    async with (
        connect_upstream(fake_cluster) as upstream,
        local_gateway(upstream) as endpoint,
        build_client(endpoint) as client,
    ):
        yield client


async def test_a_program_reaches_the_cluster_with_its_own_credential(fake_cluster: FakeCluster) -> None:
    async with gateway_client(fake_cluster) as client:
        answer = await client.get("/version", headers={"impersonate-user": "fairlead:deployer", "cookie": "a=b"})
        assert answer.json()["gitVersion"]
    (request,) = fake_cluster.requests
    assert request.header("authorization") == "Bearer stored-token"
    assert request.header("impersonate-user") == "fairlead:deployer"
    assert not request.header("cookie")


async def test_many_requests_share_connections_and_do_not_mix(fake_cluster: FakeCluster) -> None:
    for number in range(20):
        fake_cluster.set_response(f"/{number}", CannedResponse(200, f"{number}".encode() * 1_000, "text/plain"))
    async with gateway_client(fake_cluster) as client:
        for _ in range(3):
            answers = await asyncio.gather(*(client.get(f"/{number}?x=y") for number in range(20)))
            assert [answer.text for answer in answers] == [f"{number}" * 1_000 for number in range(20)]


async def test_a_program_may_ask_for_all_groups_of_a_cluster_at_once(fake_cluster: FakeCluster) -> None:
    """As Helm does with one that has no aggregated discovery."""
    async with gateway_client(fake_cluster) as client:
        answers = await asyncio.gather(*(client.get(f"/apis/group-{number}/v1") for number in range(100)))
        assert {answer.status_code for answer in answers} == {200}


@pytest.mark.parametrize("size", [0, 1, 3_000_000])
async def test_the_body_of_a_request_arrives_whole(fake_cluster: FakeCluster, size: int) -> None:
    async with gateway_client(fake_cluster) as client:
        for content in (b"x" * size, stream_chunks(size)):
            answer = await client.post("/api/v1/pods", content=content)
            assert answer.status_code < 500
    assert [len(request.body) for request in fake_cluster.requests] == [size, size]


async def stream_chunks(size: int) -> AsyncIterator[bytes]:
    for at in range(0, size, 50_000):
        yield b"x" * min(50_000, size - at)


async def test_responses_without_a_body_leave_the_connection_usable(fake_cluster: FakeCluster) -> None:
    fake_cluster.set_response("/none", CannedResponse(204, b""))
    async with gateway_client(fake_cluster) as client:
        assert (await client.get("/none")).status_code == 204
        assert (await client.head("/version")).content == b""
        assert (await client.get("/version")).json()["gitVersion"]


class Watch:
    """A response that arrives in parts."""

    def __init__(self) -> None:
        self.response = Response(self, asyncio.get_running_loop().create_future())
        self.is_aborted = False

    async def send(self, request: Request, *, seconds: float | None = None) -> Response:
        self.response.status = 200
        self.response.head_received.set_result(None)
        return self.response

    def pause(self) -> None:
        return None

    def resume(self) -> None:
        return None

    def abort(self) -> None:
        self.is_aborted = True


async def test_the_events_of_a_watch_arrive_at_once() -> None:
    watch = Watch()
    async with (
        local_gateway(watch) as endpoint,
        build_client(endpoint) as client,
        client.stream("GET", "/pods?watch=true") as answer,
    ):
        lines = answer.aiter_lines()
        for number in range(3):
            watch.response.feed(b"event %d\n" % number)
            assert await asyncio.wait_for(anext(lines), TIMEOUT_SECONDS) == f"event {number}"
    assert watch.is_aborted


async def test_a_response_that_breaks_off_is_not_taken_for_a_whole_one() -> None:
    watch = Watch()
    async with local_gateway(watch) as endpoint, build_client(endpoint) as client:
        watch.response.feed(b"half")
        with pytest.raises(httpx.RemoteProtocolError):
            async with client.stream("GET", "/") as answer:
                watch.response.fail(AgentUnavailable("the agent is gone"))
                await answer.aread()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_does_not_reach_the_program(fake_cluster: FakeCluster, status: int) -> None:
    location = {"location": "http://169.254.169.254/latest/meta-data"}
    fake_cluster.set_response("/version", CannedResponse(status, b"moved", headers=location))
    async with gateway_client(fake_cluster) as client:
        for method in ("GET", "POST"):
            answer = await client.request(method, "/version", follow_redirects=False)
            assert answer.status_code == 502
            assert "location" not in answer.headers
            assert answer.json()["message"] == "the cluster responded with a redirect, which is not followed"


async def test_what_has_not_changed_is_no_redirect(fake_cluster: FakeCluster) -> None:
    fake_cluster.set_response("/openapi/v2", CannedResponse(304))
    async with gateway_client(fake_cluster) as client:
        assert (await client.get("/openapi/v2", headers={"if-none-match": "x"})).status_code == 304
        assert (await client.get("/version")).json()["gitVersion"]


class NoAgent:
    async def send(self, request: Request, *, seconds: float | None = None) -> Response:
        raise AgentUnavailable("no agent of the cluster is connected since noon")


async def test_the_program_reads_why_the_cluster_is_not_reached() -> None:
    async with local_gateway(NoAgent()) as endpoint, build_client(endpoint) as client:
        answer = await client.get("/version")
    assert answer.status_code == 503
    assert answer.json()["message"] == "no agent of the cluster is connected since noon"


@pytest.mark.parametrize("authorization", ["", "Bearer wrong", "Basic abc"])
async def test_another_program_is_rejected(fake_cluster: FakeCluster, authorization: str) -> None:
    async with gateway_client(fake_cluster) as client:
        client.headers["authorization"] = authorization
        assert (await client.get("/version")).status_code == 401
    assert fake_cluster.requests == []


async def send_raw(endpoint: ClusterEndpoint, content: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(
        endpoint.host, endpoint.port, ssl=build_ssl_context(endpoint), server_hostname=endpoint.tls_server_name
    )
    try:
        writer.write(content.replace(b"TOKEN", endpoint.token.encode()))
        received = bytearray()
        async with asyncio.timeout(TIMEOUT_SECONDS):
            with suppress(ConnectionError):  # it closes the connection while the rest of the request is on its way
                while chunk := await reader.read(65536):
                    received += chunk
        return bytes(received)
    finally:
        writer.close()


HEAD = b"host: x\r\nauthorization: Bearer TOKEN\r\n"


@pytest.mark.parametrize(
    "content",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/1.1\r\nx: " + b"y" * module.MAX_HEAD_BYTES + b"\r\n\r\n",
        b"GET /version HTTP/1.1\r\n" + HEAD + b"\r\nGET /version HTTP/1.1\r\n" + HEAD + b"\r\n",
        b"POST / HTTP/1.1\r\n" + HEAD + b"content-length: 1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\n" + HEAD + b"transfer-encoding: chunked\r\n\r\nzz\r\n",
        b"POST / HTTP/1.1\r\n" + HEAD + b"content-length: 9999999\r\n\r\n" + b"x" * (9 * 2**20),
        b"GET /a/../b HTTP/1.1\r\n" + HEAD + b"\r\n",
        b"GET /version HTTP/1.1\r\n" + HEAD + b"connection: upgrade\r\nupgrade: websocket\r\n\r\n",
        b"CONNECT x:443 HTTP/1.1\r\n" + HEAD + b"\r\n",
    ],
)
async def test_what_is_not_a_request_gets_400(fake_cluster: FakeCluster, content: bytes) -> None:
    async with connect_upstream(fake_cluster) as upstream, local_gateway(upstream) as endpoint:
        assert (await send_raw(endpoint, content)).startswith(b"HTTP/1.1 400 ")
        async with build_client(endpoint) as client:
            assert (await client.get("/version")).is_success
    assert len(fake_cluster.requests) == 1


async def test_nothing_is_left_at_the_exit(fake_cluster: FakeCluster) -> None:
    tasks = asyncio.all_tasks()
    async with connect_upstream(fake_cluster) as upstream:
        async with local_gateway(upstream) as endpoint:
            client = build_client(endpoint)
            await client.get("/version")
        with pytest.raises(httpx.ConnectError):
            await build_client(endpoint).get("/version")
        await client.aclose()
    assert asyncio.all_tasks() <= tasks
