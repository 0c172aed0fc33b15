"""Tests of requests in `fairlead.upstream.upstream`: headers, credential, path and body that are sent to a cluster."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from fairlead.core.errors import BadRequest
from fairlead.upstream.errors import ProtocolError, TimedOut
from fairlead.upstream.upstream import Limits, Request
from tests.fake_cluster.server import FakeCluster
from tests.harness.eventually import eventually
from tests.upstream.upstreams import READ_LIMIT, connect_upstream, fetch_body


async def iter_chunks(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


async def test_only_the_stored_credential_and_host_are_sent(fake_cluster: FakeCluster) -> None:
    """T-23, T-24."""
    headers = [
        ("Authorization", "Bearer client"),
        ("authorization", "Basic client"),
        ("Cookie", "session=client"),
        ("Host", "evil.example"),
        ("X-Kept", "yes"),
    ]
    async with connect_upstream(fake_cluster) as upstream:
        await upstream.send(Request("GET", "/x", headers))
    request = fake_cluster.requests[0]
    assert request.header_values("authorization") == ["Bearer stored-token"]
    assert request.header_values("host") == [f"127.0.0.1:{fake_cluster.port}"]
    assert request.header_values("cookie") == []
    assert request.header_values("x-kept") == ["yes"]


async def test_hop_by_hop_headers_are_not_sent(fake_cluster: FakeCluster) -> None:
    names = [
        "Connection",
        "Keep-Alive",
        "TE",
        "Trailer",
        "Transfer-Encoding",
        "Upgrade",
        "Expect",
        "Proxy-Authorization",
    ]
    async with connect_upstream(fake_cluster) as upstream:
        await upstream.send(Request("GET", "/x", [(name, "chunked") for name in names]))
    assert {name for name, _ in fake_cluster.requests[0].headers} == {"host", "authorization"}


async def test_the_path_of_the_server_in_the_kubeconfig_is_the_prefix(fake_cluster: FakeCluster) -> None:
    async with connect_upstream(fake_cluster, base_path="/k8s/clusters/c-1") as upstream:
        await fetch_body(upstream, "/api/v1/nodes?limit=1")
    assert fake_cluster.requests[0].target == "/k8s/clusters/c-1/api/v1/nodes?limit=1"


@pytest.mark.parametrize(
    "malformed",
    [
        Request("GET", "/x HTTP/1.1\r\nevil: 1\r\n\r\n"),
        Request("GET", "/x y"),
        Request("GET", "x"),
        Request("GET", "//x\x7f"),
        Request("GET", "/ü"),
        Request("GET /evil HTTP/1.1\r\n", "/x"),
        Request("GET", "/x", [("a\r\nb", "c")]),
        Request("GET", "/x", [("a:b", "c")]),
        Request("GET", "/x", [("", "c")]),
        Request("GET", "/x", [("a", "b\r\nc: d")]),
        Request("GET", "/x", [("a", "b\nc: d")]),
        Request("GET", "/x", [("a", "b\rc")]),
        Request("GET", "/x", [("a", "b\0c")]),
        Request("GET", "/x", [("a", "\u20ac")]),
    ],
)
async def test_t25_a_request_cannot_smuggle_another_one(fake_cluster: FakeCluster, malformed: Request) -> None:
    async with connect_upstream(fake_cluster) as upstream:
        with pytest.raises(BadRequest):
            await upstream.send(malformed)
        with pytest.raises(BadRequest):
            await upstream.open_websocket(Request("GET", "/x", [("a", "b\r\nc: d")]), ())
        assert upstream.in_use == 0
    assert fake_cluster.requests == []


async def test_a_buffered_body_is_sent_with_its_length(fake_cluster: FakeCluster) -> None:
    async with connect_upstream(fake_cluster) as upstream:
        await (await upstream.send(Request("POST", "/x", [("content-length", "99")], b"abc"))).read(READ_LIMIT)
        await (await upstream.send(Request("PUT", "/x"))).read(READ_LIMIT)
    assert fake_cluster.requests[0].body == b"abc"
    assert [request.header_values("content-length") for request in fake_cluster.requests] == [["3"], ["0"]]


async def test_a_streamed_body_is_sent_in_chunks(fake_cluster: FakeCluster) -> None:
    async with connect_upstream(fake_cluster) as upstream:
        response = await upstream.send(Request("POST", "/x", (), iter_chunks(b"a" * 100_000, b"", b"b")))
        assert len(json.loads(await response.read(READ_LIMIT))["body"]) == 100_001
        await fetch_body(upstream, "/version")
    assert fake_cluster.connection_count == 1


async def test_a_streamed_body_of_known_length_is_sent_with_that_length(fake_cluster: FakeCluster) -> None:
    async with connect_upstream(fake_cluster) as upstream:
        await (await upstream.send(Request("POST", "/x", [("Content-Length", "4")], iter_chunks(b"ab", b"cd")))).read(
            READ_LIMIT
        )
    assert fake_cluster.requests[0].body == b"abcd"
    assert fake_cluster.requests[0].header_values("content-length") == ["4"]


@pytest.mark.parametrize("length", ["3", "5"])
async def test_t25_a_body_that_does_not_match_its_content_length_is_rejected(
    fake_cluster: FakeCluster, length: str
) -> None:
    async with connect_upstream(fake_cluster) as upstream:
        with pytest.raises(BadRequest, match="content-length"):
            await upstream.send(Request("POST", "/x", [("content-length", length)], iter_chunks(b"ab", b"cd")))
        assert upstream.in_use == 0
    assert fake_cluster.requests == []


@pytest.mark.parametrize("values", [["4", "4"], ["4x"], ["-4"], ["+4"], ["9" * 30], [""], ["\u0664"]])
async def test_t25_a_content_length_that_is_not_one_number_is_rejected(
    fake_cluster: FakeCluster, values: list[str]
) -> None:
    headers = [("content-length", value) for value in values]
    async with connect_upstream(fake_cluster) as upstream:
        with pytest.raises(BadRequest):
            await upstream.send(Request("POST", "/x", headers, iter_chunks(b"abcd")))


async def test_an_interrupted_body_interrupts_the_request(fake_cluster: FakeCluster) -> None:
    async def interrupted_body() -> AsyncIterator[bytes]:
        yield b"half"
        raise BadRequest("the body broke off")

    async with connect_upstream(fake_cluster) as upstream:
        with pytest.raises(BadRequest, match="broke off"):
            await upstream.send(Request("POST", "/x", (), interrupted_body()))
        assert upstream.in_use == 0
    assert fake_cluster.requests == []


async def test_a_response_before_the_end_of_the_body_is_returned(fake_cluster: FakeCluster) -> None:
    async def endless_body() -> AsyncIterator[bytes]:
        yield b"first"
        await asyncio.Event().wait()

    fake_cluster.set_early_response("/early", b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno")
    before = asyncio.all_tasks()
    async with connect_upstream(fake_cluster) as upstream:
        response = await upstream.send(Request("POST", "/early", (), endless_body()))
        assert response.status == 413
        assert await response.read(READ_LIMIT) == b"no"
        await eventually(lambda: asyncio.all_tasks() == before)
        assert upstream.in_use == 0


async def test_a_timeout_includes_the_upload(fake_cluster: FakeCluster) -> None:
    async def slow_body() -> AsyncIterator[bytes]:
        yield b"first"
        await asyncio.Event().wait()

    async with connect_upstream(fake_cluster) as upstream:
        with pytest.raises(TimedOut):
            await upstream.send(Request("POST", "/x", (), slow_body()), seconds=0.1)
        assert upstream.in_use == 0


async def test_a_cluster_that_does_not_read_the_body_is_a_timeout(fake_cluster: FakeCluster) -> None:
    async def large_body() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 1_000_000

    fake_cluster.set_early_response("/deaf", b"")
    async with connect_upstream(fake_cluster, Limits(response_header_seconds=0.3)) as upstream:
        with pytest.raises(TimedOut):
            await upstream.send(Request("POST", "/deaf", (), large_body()))
        assert upstream.in_use == 0


async def test_closing_the_upstream_interrupts_responses_in_progress(fake_cluster: FakeCluster) -> None:
    async with connect_upstream(fake_cluster) as upstream:
        response = await upstream.send(Request("GET", "/fake/ticks"))
        await upstream.close()
        with pytest.raises(ProtocolError):
            await response.read(READ_LIMIT)
        assert upstream.in_use == 0


@pytest.mark.parametrize(
    "target", ["/a/../b", "/a/./b", "/..", "/a/..?x=y", "/a/%2e%2E/b", "/a/.%2e", "/%2e/x", "/a/%2e?b", "/a/.."]
)
async def test_a_path_with_dot_segments_is_rejected(fake_cluster: FakeCluster, target: str) -> None:
    async with connect_upstream(fake_cluster) as upstream:
        with pytest.raises(BadRequest, match="send the resolved path"):
            await upstream.send(Request("GET", target))
    assert fake_cluster.requests == []


@pytest.mark.parametrize("target", ["/.well-known/x", "/a/..b", "/a/...", "/a?b=/../c", "/a/b.c", "/a/%2Fx"])
async def test_names_with_dots_are_no_dot_segments(fake_cluster: FakeCluster, target: str) -> None:
    async with connect_upstream(fake_cluster) as upstream:
        await fetch_body(upstream, target)
    assert fake_cluster.requests[0].target == target
