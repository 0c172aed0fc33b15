"""Tests of responses in `fairlead.upstream.upstream`: valid, interrupted, ambiguous and missing ones."""

import asyncio
import json

import pytest

from fairlead.upstream.access import ClusterEndpoint
from fairlead.upstream.errors import ProtocolError, TimedOut, Unreachable
from fairlead.upstream.upstream import Limits, Request
from tests.fake_cluster.behaviours import respond_with_bytes
from tests.fake_cluster.exchange import CannedResponse
from tests.fake_cluster.server import FakeCluster
from tests.harness.eventually import eventually
from tests.upstream.upstreams import READ_LIMIT, connect_upstream, fetch_body, send_request

OK = b"HTTP/1.1 200 OK\r\n"


async def test_a_response_is_returned_complete(fake_cluster: FakeCluster) -> None:
    fake_cluster.set_response("/x", CannedResponse(200, b'{"a":1}', headers={"X-Cluster": "yes"}))
    async with connect_upstream(fake_cluster) as upstream:
        response = await send_request(upstream, "/x?y=%20z")
        assert response.status == 200
        assert ("x-cluster", "yes") in response.headers
        assert await response.read(READ_LIMIT) == b'{"a":1}'
    assert fake_cluster.requests[0].target == "/x?y=%20z"


async def test_connections_are_reused(fake_cluster: FakeCluster) -> None:
    async with connect_upstream(fake_cluster) as upstream:
        for _ in range(5):
            await fetch_body(upstream, "/version")
        assert upstream.in_use == 0
    assert fake_cluster.connection_count == 1


@pytest.mark.parametrize("target", ["/fake/huge?bytes=3000000", "/fake/chunked?bytes=3000000&size=1000"])
async def test_large_bodies_are_returned_in_chunks(fake_cluster: FakeCluster, target: str) -> None:
    async with connect_upstream(fake_cluster) as upstream:
        response = await send_request(upstream, target)
        sizes = []
        while chunk := await response.read_chunk():
            sizes.append(len(chunk))
        assert sum(sizes) == 3_000_000
        assert len(sizes) > 1
        await fetch_body(upstream, "/version")
    assert fake_cluster.connection_count == 1


async def test_a_body_that_is_not_read_is_not_buffered(fake_cluster: FakeCluster) -> None:
    async with connect_upstream(fake_cluster) as upstream:
        response = await send_request(upstream, "/fake/huge?bytes=60000000")
        await asyncio.sleep(0.3)
        assert response.buffered_body() is None
        assert 0 < len(await response.read_chunk()) < 2_000_000
        await response.close()


async def test_a_body_over_the_limit_is_interrupted(fake_cluster: FakeCluster) -> None:
    async with connect_upstream(fake_cluster) as upstream:
        response = await send_request(upstream, "/fake/huge?bytes=60000000")
        with pytest.raises(ProtocolError, match="larger than 1000 bytes"):
            await response.read(1000)
        assert upstream.in_use == 0


async def test_a_small_response_is_buffered_at_once(fake_cluster: FakeCluster) -> None:
    async with connect_upstream(fake_cluster) as upstream:
        response = await send_request(upstream, "/version")
        assert json.loads(response.buffered_body() or b"")["gitVersion"] == "v1.34.1"


async def test_chunks_of_a_stream_are_returned_as_they_are_sent(fake_cluster: FakeCluster) -> None:
    async with connect_upstream(fake_cluster) as upstream:
        response = await send_request(upstream, "/fake/ticks?seconds=0.01")
        assert await response.read_chunk() == b"tick 0\n"
        assert (await response.read_chunk()).startswith(b"tick 1\n")
        await response.close()
        await response.close()
        assert upstream.in_use == 0


async def test_responses_without_a_body_leave_the_connection_usable(fake_cluster: FakeCluster) -> None:
    async with connect_upstream(fake_cluster) as upstream:
        response = await send_request(upstream, "/version", "HEAD")
        assert dict(response.headers)["content-length"] == "81"
        assert await response.read(READ_LIMIT) == b""
        assert await fetch_body(upstream, "/fake/status?code=204") == b""
        assert (await send_request(upstream, "/fake/status?code=304")).status == 304
        assert json.loads(await fetch_body(upstream, "/version"))
    assert fake_cluster.connection_count == 1


async def test_t21_a_redirect_is_returned_and_not_followed(fake_cluster: FakeCluster) -> None:
    async with connect_upstream(fake_cluster) as upstream:
        response = await send_request(upstream, f"/fake/redirect?to={fake_cluster.url}/elsewhere")
        assert response.status == 302
        await response.read(READ_LIMIT)
    assert len(fake_cluster.requests) == 1


async def test_interim_responses_are_skipped(fake_cluster: FakeCluster) -> None:
    async with connect_upstream(fake_cluster) as upstream:
        assert await fetch_body(upstream, "/fake/continue") == b'"at last"'


async def test_a_body_without_a_length_ends_with_the_connection(fake_cluster: FakeCluster) -> None:
    async with connect_upstream(fake_cluster) as upstream:
        assert await fetch_body(upstream, "/fake/until-closed?bytes=1000") == b"x" * 1000


async def test_a_connection_is_not_reused_after_connection_close(fake_cluster: FakeCluster) -> None:
    async with connect_upstream(fake_cluster) as upstream:
        assert await fetch_body(upstream, "/fake/last") == b'"last"'
        await fetch_body(upstream, "/version")
    assert fake_cluster.connection_count == 2


async def test_a_connection_that_was_closed_while_idle_is_replaced(fake_cluster: FakeCluster) -> None:
    async with connect_upstream(fake_cluster) as upstream:
        for _ in range(10):
            await fetch_body(upstream, "/fake/drop-idle")
        assert fake_cluster.connection_count == 10


async def test_a_request_that_the_cluster_may_have_received_is_not_repeated(fake_cluster: FakeCluster) -> None:
    async with connect_upstream(fake_cluster) as upstream:
        await fetch_body(upstream, "/version")
        with pytest.raises(Unreachable):
            await upstream.send(Request("POST", "/fake/hang-up", (), b"{}"))
        await fetch_body(upstream, "/version")
        with pytest.raises(Unreachable):
            await upstream.send(Request("GET", "/fake/hang-up"))
    # The GET was sent on a reused connection first, which might have been stale, and then on a new one.
    assert [path for path in fake_cluster.request_lines() if "hang-up" in path] == [
        "POST /fake/hang-up",
        "GET /fake/hang-up",
        "GET /fake/hang-up",
    ]


@pytest.mark.parametrize("target", ["/fake/break-off?bytes=10", "/fake/break-chunked"])
async def test_an_interrupted_body_is_an_error(fake_cluster: FakeCluster, target: str) -> None:
    async with connect_upstream(fake_cluster) as upstream:
        response = await send_request(upstream, target)
        with pytest.raises(ProtocolError, match="in the middle"):
            await response.read(READ_LIMIT)
        assert upstream.in_use == 0


@pytest.mark.parametrize("target", ["/fake/garbage", "/fake/long-head?bytes=70000", "/fake/switch"])
async def test_a_response_that_is_no_http_is_a_protocol_error(fake_cluster: FakeCluster, target: str) -> None:
    async with connect_upstream(fake_cluster) as upstream:
        with pytest.raises(ProtocolError):
            await send_request(upstream, target)
        assert upstream.in_use == 0


AMBIGUOUS_HEADS = {
    "both lengths": OK + b"content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": OK + b"content-length: 3\r\ncontent-length: 4\r\n\r\nabcd",
    "signed length": OK + b"content-length: +3\r\n\r\nabc",
    "folded header": OK + b"x: a\r\n b\r\ncontent-length: 0\r\n\r\n",
    "bare line feed": OK + b"x: a\ny: b\r\ncontent-length: 0\r\n\r\n",
    "space before colon": OK + b"transfer-encoding : chunked\r\n\r\n0\r\n\r\n",
    "unknown encoding": OK + b"transfer-encoding: xchunked\r\n\r\n0\r\n\r\n",
    "encoding after chunked": OK + b"transfer-encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    "NUL": OK + b"x: a\0b\r\ncontent-length: 0\r\n\r\n",
    "other version": b"HTTP/2.0 200 OK\r\ncontent-length: 0\r\n\r\n",
    "many small headers": OK + b"x: yyyyyyy\r\n" * 10_000 + b"content-length: 0\r\n\r\n",
    "endless interim": b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000,
}
AMBIGUOUS_CHUNKS = {
    "bad size": b"0x3\r\nabc\r\n0\r\n\r\n",
    "space after size": b"3 \r\nabc\r\n0\r\n\r\n",
    "bare line feed": b"3\nabc\r\n0\r\n\r\n",
    "too long": b"3\r\nabcd\r\n0\r\n\r\n",
    "negative": b"-3\r\nabc\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("name", AMBIGUOUS_HEADS)
async def test_t25_ambiguous_response_headers_are_a_protocol_error(fake_cluster: FakeCluster, name: str) -> None:
    fake_cluster.set_behaviour("/smuggle", respond_with_bytes(AMBIGUOUS_HEADS[name]))
    async with connect_upstream(fake_cluster) as upstream:
        with pytest.raises(ProtocolError):
            await send_request(upstream, "/smuggle")
        await fetch_body(upstream, "/version")
    assert fake_cluster.requests[0].connection != fake_cluster.requests[1].connection


@pytest.mark.parametrize("name", AMBIGUOUS_CHUNKS)
async def test_t25_ambiguous_chunks_are_a_protocol_error(fake_cluster: FakeCluster, name: str) -> None:
    fake_cluster.set_behaviour(
        "/smuggle", respond_with_bytes(OK + b"transfer-encoding: chunked\r\n\r\n" + AMBIGUOUS_CHUNKS[name])
    )
    async with connect_upstream(fake_cluster) as upstream:
        with pytest.raises(ProtocolError):
            await fetch_body(upstream, "/smuggle")
        await fetch_body(upstream, "/version")
    assert fake_cluster.requests[0].connection != fake_cluster.requests[1].connection


async def test_t25_bytes_after_a_response_are_not_the_next_response(fake_cluster: FakeCluster) -> None:
    async with connect_upstream(fake_cluster) as upstream:
        assert await fetch_body(upstream, "/fake/extra") == b"ok"
        assert b"evil" not in await fetch_body(upstream, "/version")
    assert fake_cluster.requests[0].connection != fake_cluster.requests[1].connection


async def test_hop_by_hop_headers_of_a_response_are_removed(fake_cluster: FakeCluster) -> None:
    headers = {"Connection": "keep-alive, X-Hop", "X-Hop": "1", "Keep-Alive": "timeout=5", "X-End": "2"}
    fake_cluster.set_response("/x", CannedResponse(200, b"", "text/plain", headers))
    async with connect_upstream(fake_cluster) as upstream:
        names = {name for name, _ in (await send_request(upstream, "/x")).headers}
    assert names == {"content-type", "content-length", "x-end"}


@pytest.mark.parametrize("target", ["/fake/never", "/fake/stall"])
async def test_a_timeout_includes_the_body(fake_cluster: FakeCluster, target: str) -> None:
    async with connect_upstream(fake_cluster) as upstream:
        with pytest.raises(TimedOut):
            await (await send_request(upstream, target, seconds=0.1)).read(READ_LIMIT)
        assert upstream.in_use == 0


async def test_waiting_for_the_response_headers_has_a_timeout(fake_cluster: FakeCluster) -> None:
    async with connect_upstream(fake_cluster, Limits(response_header_seconds=2)) as upstream:
        with pytest.raises(TimedOut):
            await send_request(upstream, "/fake/never")
        assert b"tick 39" in await fetch_body(upstream, "/fake/ticks?count=40&seconds=0.06")


async def test_a_cancelled_request_is_interrupted(fake_cluster: FakeCluster) -> None:
    async with connect_upstream(fake_cluster) as upstream:
        request_task = asyncio.create_task(send_request(upstream, "/fake/never"))
        await eventually(lambda: bool(fake_cluster.requests))
        request_task.cancel()
        await asyncio.wait([request_task])
        assert upstream.in_use == 0


async def test_a_cancellation_while_the_response_arrives_does_not_affect_other_requests(
    fake_cluster: FakeCluster,
) -> None:
    async with connect_upstream(fake_cluster) as upstream:
        for _ in range(20):
            cancelled_task = asyncio.create_task(send_request(upstream, "/version"))
            asyncio.get_running_loop().call_later(0.001, cancelled_task.cancel)
            await asyncio.wait([cancelled_task])
            assert b"v1.34.1" in await fetch_body(upstream, "/version")
        assert upstream.in_use == 0


def test_the_repr_of_an_endpoint_contains_no_credential() -> None:
    endpoint = ClusterEndpoint("h", 1, "", "h", "", "secret-token", "secret-certificate", "secret-key")
    assert "secret" not in repr(endpoint)
