"""Streams through a gateway: as fast as they are taken, and for as long as whoever asked may have them."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from fairlead.core.call import Call, RequestInfo
from fairlead.core.errors import ApiError, TooManyRequests, Unauthorized
from fairlead.gateway import proxy as streaming
from fairlead.upstream.access import Limits
from fairlead.upstream.errors import UpstreamError
from fairlead.upstream.upstream import Upstream
from tests.fake_cluster.exchange import RecordedRequest
from tests.fake_cluster.server import FakeCluster
from tests.gateway.gateway_calls import asking, connected, through, until
from tests.harness.calls import FakeGuard


@pytest.fixture
def far() -> Iterator[FakeCluster]:
    with FakeCluster() as made:
        yield made


@pytest.fixture
async def upstream(far: FakeCluster) -> AsyncIterator[Upstream]:
    async with connected(far) as made:
        yield made


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "RECHECK_SECONDS", 0.03)


async def opened(upstream: Upstream, call: Call) -> Any:
    reply = await through(upstream, call)
    assert reply.stream is not None
    return reply.stream


async def quiet(asked: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """A watch in which nothing happens."""
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n")
    await reader.read()
    return False


class Key:
    """A key that can be revoked."""

    def __init__(self) -> None:
        self.asked = 0
        self.is_revoked = False

    def recheck(self) -> None:
        self.asked += 1
        if self.is_revoked:
            raise Unauthorized("the key is gone")


def watching(path: str) -> tuple[Call, Key]:
    call, key = asking(path), Key()
    call.guard = FakeGuard(key.recheck)
    return call, key


async def test_pieces_arrive_as_they_are_sent(upstream: Upstream) -> None:
    stream = await opened(upstream, asking("/far/ticks?seconds=0.01"))
    assert (await anext(stream)).startswith(b"tick 0\n")
    assert b"tick" in await anext(stream)
    await stream.aclose()


async def test_a_client_that_leaves_ends_the_request_to_the_cluster(far: FakeCluster, upstream: Upstream) -> None:
    stream = await opened(upstream, asking("/far/ticks?seconds=0.01"))
    await anext(stream)
    await stream.aclose()
    await until(lambda: not far.open and upstream.in_use == 0)


async def test_a_reader_that_is_cancelled_ends_the_request_to_the_cluster(far: FakeCluster, upstream: Upstream) -> None:
    far.behave("/quiet", quiet)
    stream = await opened(upstream, asking("/quiet"))
    reading = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0.01)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    await until(lambda: not far.open and upstream.in_use == 0)


async def test_a_stream_that_is_let_go_of_ends_by_itself(far: FakeCluster, upstream: Upstream) -> None:
    stream = await opened(upstream, asking("/far/ticks?seconds=0.01"))
    await anext(stream)
    del stream
    await until(lambda: not far.open)


async def test_a_cluster_that_goes_away_breaks_the_stream_off(far: FakeCluster, upstream: Upstream) -> None:
    stream = await opened(upstream, asking("/far/ticks?seconds=0.01"))
    await anext(stream)
    far.stop()
    with pytest.raises(UpstreamError):
        while True:
            await anext(stream)


async def test_a_watch_whose_cluster_goes_away_just_ends(far: FakeCluster, upstream: Upstream) -> None:
    path = "/far/ticks?seconds=0.01"
    stream = await opened(upstream, asking(path, target=RequestInfo("watch", path)))
    await anext(stream)
    far.stop()
    await asyncio.wait_for(_all(stream), 5)
    assert upstream.in_use == 0


async def test_a_watch_of_a_known_length_that_breaks_off_does_not_just_end(
    far: FakeCluster, upstream: Upstream
) -> None:
    path = "/far/break-off?bytes=200000"
    stream = await opened(upstream, asking(path, target=RequestInfo("watch", path)))
    with pytest.raises(UpstreamError):
        await _all(stream)


@pytest.mark.usefixtures("hasty")
async def test_a_revoked_key_breaks_a_watch_off_too(far: FakeCluster, upstream: Upstream) -> None:
    call, key = watching("/far/ticks?seconds=0.005")
    call.target = RequestInfo("watch", "/far/ticks")
    stream = await opened(upstream, call)
    key.is_revoked = True
    with pytest.raises(Unauthorized, match="the key is gone"):
        await asyncio.wait_for(_all(stream), 5)


@pytest.mark.usefixtures("hasty")
async def test_a_stream_that_is_never_begun_gives_its_share_back(far: FakeCluster) -> None:
    async with connected(far, Limits(max_requests=4)) as upstream:
        await opened(upstream, asking("/far/ticks?seconds=0.005"))
        with pytest.raises(TooManyRequests):
            await through(upstream, asking("/version"))
        await until(lambda: not far.open)
        assert (await through(upstream, asking("/version"))).status == 200


async def test_a_slow_client_slows_down_the_cluster(upstream: Upstream, far: FakeCluster) -> None:
    sent = 0

    async def endless(asked: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n")
        while not reader.at_eof():
            writer.write(b"x" * 65536)
            await writer.drain()
            sent += 65536
        return False

    far.behave("/endless", endless)
    stream = await opened(upstream, asking("/endless"))
    await anext(stream)
    before = -1
    while sent != before:
        before = sent
        await asyncio.sleep(0.2)
    assert sent < 50_000_000
    await stream.aclose()


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("path", ["/quiet", "/far/ticks?seconds=0.005"])
async def test_a_revoked_key_breaks_a_stream_off(far: FakeCluster, upstream: Upstream, path: str) -> None:
    far.behave("/quiet", quiet)
    call, key = watching(path)
    stream = await opened(upstream, call)
    reading = asyncio.ensure_future(_all(stream))
    await until(lambda: key.asked > 2)
    assert not reading.done()
    key.is_revoked = True
    with pytest.raises(Unauthorized, match="the key is gone"):
        await asyncio.wait_for(reading, 5)
    await until(lambda: not far.open and upstream.in_use == 0)


@pytest.mark.usefixtures("hasty")
async def test_a_revoked_key_ends_a_stream_that_its_client_does_not_read(far: FakeCluster, upstream: Upstream) -> None:
    call, key = watching("/far/ticks?seconds=0.005")
    stream = await opened(upstream, call)
    await anext(stream)
    key.is_revoked = True
    await until(lambda: not far.open)
    with pytest.raises(Unauthorized):
        await anext(stream)


@pytest.mark.usefixtures("hasty")
async def test_a_stream_that_is_never_begun_is_ended(far: FakeCluster, upstream: Upstream) -> None:
    stream = await opened(upstream, asking("/far/ticks?seconds=0.005"))
    await until(lambda: not far.open)
    with pytest.raises(ApiError, match="the client stopped reading"):
        await anext(stream)


@pytest.mark.usefixtures("hasty")
async def test_a_stream_that_is_over_is_not_looked_after_any_more(upstream: Upstream) -> None:
    call, key = watching("/far/ticks?count=5&seconds=0.03")
    await _all(await opened(upstream, call))
    asked = key.asked
    assert asked
    await asyncio.sleep(0.1)
    assert key.asked == asked


async def _all(stream: AsyncIterator[bytes]) -> None:
    async for _ in stream:
        pass
