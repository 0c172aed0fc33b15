"""Tests of streams in `fairlead.gateway.proxy`: backpressure, disconnects, and authorization that is checked again."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead.core.call import Call, RequestInfo
from fairlead.core.errors import ApiError, TooManyRequests, Unauthorized
from fairlead.gateway import proxy
from fairlead.upstream.access import Limits
from fairlead.upstream.errors import UpstreamError
from fairlead.upstream.upstream import Upstream
from tests.fake_cluster.exchange import RecordedRequest
from tests.fake_cluster.server import FakeCluster
from tests.gateway.gateway_calls import build_call, connect_upstream, forward_call
from tests.harness.calls import FakeGuard
from tests.harness.eventually import eventually


@pytest.fixture
def short_recheck_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy, "RECHECK_SECONDS", 0.03)


async def open_stream(upstream: Upstream, call: Call) -> Any:
    reply = await forward_call(upstream, call)
    assert reply.stream is not None
    return reply.stream


async def serve_silent_watch(
    request: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> bool:
    """A watch without events."""
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n")
    await reader.read()
    return False


class RevocableKey:
    """A key that can be revoked."""

    def __init__(self) -> None:
        self.rechecks = 0
        self.is_revoked = False

    def recheck(self) -> None:
        self.rechecks += 1
        if self.is_revoked:
            raise Unauthorized("the key was revoked")


def build_guarded_call(path: str) -> tuple[Call, RevocableKey]:
    call, key = build_call(path), RevocableKey()
    call.guard = FakeGuard(key.recheck)
    return call, key


async def test_chunks_arrive_as_they_are_sent(upstream: Upstream) -> None:
    stream = await open_stream(upstream, build_call("/fake/ticks?seconds=0.01"))
    assert (await anext(stream)).startswith(b"tick 0\n")
    assert b"tick" in await anext(stream)
    await stream.aclose()


async def test_a_client_that_disconnects_ends_the_request_to_the_cluster(
    fake_cluster: FakeCluster, upstream: Upstream
) -> None:
    stream = await open_stream(upstream, build_call("/fake/ticks?seconds=0.01"))
    await anext(stream)
    await stream.aclose()
    await eventually(lambda: not fake_cluster.open_connections and upstream.in_use == 0)


async def test_a_reader_that_is_cancelled_ends_the_request_to_the_cluster(
    fake_cluster: FakeCluster, upstream: Upstream
) -> None:
    fake_cluster.set_behaviour("/quiet", serve_silent_watch)
    stream = await open_stream(upstream, build_call("/quiet"))
    read_task = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0.01)
    read_task.cancel()
    await asyncio.gather(read_task, return_exceptions=True)
    await eventually(lambda: not fake_cluster.open_connections and upstream.in_use == 0)


async def test_a_stream_without_references_ends(fake_cluster: FakeCluster, upstream: Upstream) -> None:
    stream = await open_stream(upstream, build_call("/fake/ticks?seconds=0.01"))
    await anext(stream)
    del stream
    await eventually(lambda: not fake_cluster.open_connections)


async def test_a_stream_is_interrupted_when_its_cluster_stops(fake_cluster: FakeCluster, upstream: Upstream) -> None:
    stream = await open_stream(upstream, build_call("/fake/ticks?seconds=0.01"))
    await anext(stream)
    fake_cluster.stop()
    with pytest.raises(UpstreamError):
        while True:
            await anext(stream)


async def test_a_watch_ends_without_an_error_when_its_cluster_stops(
    fake_cluster: FakeCluster, upstream: Upstream
) -> None:
    path = "/fake/ticks?seconds=0.01"
    stream = await open_stream(upstream, build_call(path, target=RequestInfo("watch", path)))
    await anext(stream)
    fake_cluster.stop()
    await asyncio.wait_for(read_to_end(stream), 40)
    assert upstream.in_use == 0


async def test_an_interrupted_watch_with_a_content_length_is_an_error(
    fake_cluster: FakeCluster, upstream: Upstream
) -> None:
    path = "/fake/break-off?bytes=200000"
    stream = await open_stream(upstream, build_call(path, target=RequestInfo("watch", path)))
    with pytest.raises(UpstreamError):
        await read_to_end(stream)


@pytest.mark.usefixtures("short_recheck_interval")
async def test_a_revoked_key_interrupts_a_watch(fake_cluster: FakeCluster, upstream: Upstream) -> None:
    call, key = build_guarded_call("/fake/ticks?seconds=0.005")
    call.target = RequestInfo("watch", "/fake/ticks")
    stream = await open_stream(upstream, call)
    key.is_revoked = True
    with pytest.raises(Unauthorized, match="the key was revoked"):
        await asyncio.wait_for(read_to_end(stream), 40)


@pytest.mark.usefixtures("short_recheck_interval")
async def test_a_stream_that_is_never_read_releases_its_slot(fake_cluster: FakeCluster) -> None:
    async with connect_upstream(fake_cluster, Limits(max_requests=4)) as upstream:
        await open_stream(upstream, build_call("/fake/ticks?seconds=0.005"))
        with pytest.raises(TooManyRequests):
            await forward_call(upstream, build_call("/version"))
        await eventually(lambda: not fake_cluster.open_connections)
        assert (await forward_call(upstream, build_call("/version"))).status == 200


async def test_a_slow_client_slows_down_the_cluster(upstream: Upstream, fake_cluster: FakeCluster) -> None:
    sent = 0

    async def serve_endless_body(
        request: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n")
        while not reader.at_eof():
            writer.write(b"x" * 65536)
            await writer.drain()
            sent += 65536
        return False

    fake_cluster.set_behaviour("/endless", serve_endless_body)
    stream = await open_stream(upstream, build_call("/endless"))
    await anext(stream)
    last_sent = -1
    while sent != last_sent:
        last_sent = sent
        await asyncio.sleep(0.2)
    assert sent < 50_000_000
    await stream.aclose()


@pytest.mark.usefixtures("short_recheck_interval")
@pytest.mark.parametrize("path", ["/quiet", "/fake/ticks?seconds=0.005"])
async def test_a_revoked_key_interrupts_a_stream(fake_cluster: FakeCluster, upstream: Upstream, path: str) -> None:
    fake_cluster.set_behaviour("/quiet", serve_silent_watch)
    call, key = build_guarded_call(path)
    stream = await open_stream(upstream, call)
    read_task = asyncio.ensure_future(read_to_end(stream))
    await eventually(lambda: key.rechecks > 2)
    assert not read_task.done()
    key.is_revoked = True
    with pytest.raises(Unauthorized, match="the key was revoked"):
        await asyncio.wait_for(read_task, 40)
    await eventually(lambda: not fake_cluster.open_connections and upstream.in_use == 0)


@pytest.mark.usefixtures("short_recheck_interval")
async def test_a_revoked_key_ends_a_stream_that_the_client_does_not_read(
    fake_cluster: FakeCluster, upstream: Upstream
) -> None:
    call, key = build_guarded_call("/fake/ticks?seconds=0.005")
    stream = await open_stream(upstream, call)
    await anext(stream)
    key.is_revoked = True
    await eventually(lambda: not fake_cluster.open_connections)
    with pytest.raises(Unauthorized):
        await anext(stream)


@pytest.mark.usefixtures("short_recheck_interval")
async def test_a_stream_that_is_never_read_is_closed(fake_cluster: FakeCluster, upstream: Upstream) -> None:
    stream = await open_stream(upstream, build_call("/fake/ticks?seconds=0.005"))
    await eventually(lambda: not fake_cluster.open_connections)
    with pytest.raises(ApiError, match="the client stopped reading"):
        await anext(stream)


@pytest.mark.usefixtures("short_recheck_interval")
async def test_a_finished_stream_is_not_rechecked(upstream: Upstream) -> None:
    call, key = build_guarded_call("/fake/ticks?count=5&seconds=0.03")
    await read_to_end(await open_stream(upstream, call))
    rechecks = key.rechecks
    assert rechecks
    await asyncio.sleep(0.1)
    assert key.rechecks == rechecks


async def read_to_end(stream: AsyncIterator[bytes]) -> None:
    async for _ in stream:
        pass
