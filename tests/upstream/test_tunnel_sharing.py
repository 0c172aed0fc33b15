"""Tests of `fairlead.upstream.tunnel`: many streams share few forwards, and do not hold each other up."""

import asyncio
import socket

import pytest

from fairlead.upstream import tunnel
from fairlead.upstream.errors import ClusterLimitExceeded, UpstreamError
from fairlead.upstream.messages import Response
from fairlead.upstream.upstream import Request, Upstream
from tests.fake_cluster.exchange import CannedResponse
from tests.upstream.test_tunnel import Place, eventually_no_forwards, fetch, place

__all__ = ["place"]
TICKS = "/fake/ticks?seconds=0.05"
BIG = CannedResponse(body=b"x" * 50_000_000, content_type="text/plain")


async def open_streams(upstream: Upstream, count: int, target: str = TICKS) -> list[Response]:
    return list(await asyncio.gather(*(upstream.send(Request("GET", target)) for _ in range(count))))


async def close_streams(streams: list[Response]) -> None:
    for stream in streams:
        await stream.close()


async def test_a_hundred_watches_share_seven_forwards(place: Place) -> None:
    upstream = await place.connect()
    streams = await open_streams(upstream, 100)
    assert place.dialer.forward_count == 7
    assert place.dialer.in_use == 100
    for stream in streams:
        assert await stream.read_chunk()
    await close_streams(streams)
    await eventually_no_forwards(place.dialer)


async def test_idle_connections_keep_their_forward(place: Place) -> None:
    upstream = await place.connect()
    for _ in range(10):
        await fetch(upstream)
    assert (place.dialer.forward_count, place.dialer.in_use) == (1, 1)
    assert len(place.pods.forwards) == 1


async def test_streaming_requests_and_websockets_have_forwards_of_their_own(place: Place) -> None:
    upstream = await place.connect()
    await fetch(upstream)
    log = await upstream.send(Request("GET", TICKS, is_streaming=True))
    assert place.dialer.forward_count == 2
    websocket = await upstream.open_websocket(Request("GET", "/fake/exec"), ("v5.channel.k8s.io",))
    assert place.dialer.forward_count == 3
    await log.close()
    websocket.abort()
    async with asyncio.timeout(10):
        while place.dialer.forward_count > 1:  # noqa: ASYNC110  # until they are closed
            await asyncio.sleep(0.01)


async def test_forwards_are_limited(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tunnel, "MAX_SHARED_FORWARDS", 2)
    monkeypatch.setattr(tunnel, "MAX_EXCLUSIVE_FORWARDS", 1)
    upstream = await place.connect()
    streams = await open_streams(upstream, 32)
    with pytest.raises(ClusterLimitExceeded):
        await upstream.send(Request("GET", TICKS))
    streams.append(await upstream.send(Request("GET", TICKS, is_streaming=True)))
    with pytest.raises(ClusterLimitExceeded):
        await upstream.send(Request("GET", TICKS, is_streaming=True))
    await close_streams(streams)


async def test_forwards_that_are_being_opened_count(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tunnel, "MAX_EXCLUSIVE_FORWARDS", 3)
    await fetch(await place.connect())
    results = await asyncio.gather(*(place.dialer(is_exclusive=True) for _ in range(8)), return_exceptions=True)
    opened = [each for each in results if isinstance(each, socket.socket)]
    for each in opened:
        each.close()
    assert (len(opened), sum(isinstance(each, ClusterLimitExceeded) for each in results)) == (3, 5)


async def test_a_cancelled_stream_is_reset_and_does_not_hold_up_the_others(place: Place) -> None:
    place.inner.set_response("/big", BIG)
    upstream = await place.connect()
    neighbour = await upstream.send(Request("GET", TICKS))
    for _ in range(5):
        big = await upstream.send(Request("GET", "/big"))
        await big.read_chunk()
        await big.close()
    async with asyncio.timeout(5):
        for _ in range(5):
            assert await neighbour.read_chunk()
    assert place.dialer.forward_count == 1
    assert place.pods.forwards[0].resets >= 5
    await neighbour.close()


async def test_a_reader_that_stops_within_50_mb_does_not_hold_up_its_neighbours(place: Place) -> None:
    place.inner.set_response("/big", BIG)
    upstream = await place.connect()
    neighbours = await open_streams(upstream, 14)
    stalled = await upstream.send(Request("GET", "/big"))
    assert place.dialer.forward_count == 1
    await asyncio.sleep(1.5)
    async with asyncio.timeout(10):
        for neighbour in neighbours:
            for _ in range(3):
                assert await neighbour.read_chunk()
    fresh = await upstream.send(Request("GET", TICKS))  # the forward has a slot, but it is not used
    assert place.dialer.forward_count == 2
    assert len(await stalled.read(64 * 2**20)) == len(BIG.body)
    await close_streams([*neighbours, fresh])


async def test_beyond_the_limit_a_forward_is_left_to_the_slow_reader(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tunnel, "MAX_UNREAD_BYTES", 4 * 2**20)
    monkeypatch.setattr(tunnel, "PAUSED_SECONDS", 0.5)
    place.inner.set_response("/big", BIG)
    upstream = await place.connect()
    neighbour = await upstream.send(Request("GET", TICKS))
    stalled = await upstream.send(Request("GET", "/big"))
    with pytest.raises(UpstreamError):
        async with asyncio.timeout(20):
            while await neighbour.read_chunk():
                pass
    assert b"gitVersion" in await fetch(upstream)
    assert len(await stalled.read(64 * 2**20)) == len(BIG.body)


async def test_a_fast_reader_goes_on_while_a_slow_one_has_used_up_the_limit(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tunnel, "MAX_UNREAD_BYTES", 4 * 2**20)
    place.inner.set_response("/big", BIG)
    upstream = await place.connect()
    stalled = await upstream.send(Request("GET", "/big"))
    await asyncio.sleep(1.5)
    async with asyncio.timeout(20):
        assert len(await fetch(upstream, "/big")) == len(BIG.body)
    await stalled.close()
    await eventually_no_unread(place)


async def eventually_no_unread(place: Place) -> None:
    unread = place.dialer._unread
    async with asyncio.timeout(5):
        while unread.size:  # noqa: ASYNC110  # until everything is dropped
            await asyncio.sleep(0.01)
