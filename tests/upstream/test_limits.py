"""Tests of limits in `fairlead.upstream.upstream`: concurrent requests, the queue, and timeouts."""

import asyncio

import pytest

from fairlead.upstream.dial import DirectDialer
from fairlead.upstream.errors import ClusterLimitExceeded, TimedOut, Unreachable
from fairlead.upstream.upstream import Limits, Request, dialled_upstream
from tests.fake_cluster.server import FakeCluster
from tests.harness.eventually import eventually
from tests.upstream.upstreams import (
    READ_LIMIT,
    build_endpoint,
    connect_upstream,
    fetch_body,
    resolve_unchanged,
    send_request,
)


async def test_requests_over_the_limit_are_queued(fake_cluster: FakeCluster) -> None:
    async with connect_upstream(fake_cluster, Limits(max_requests=2)) as upstream:
        await asyncio.gather(*(fetch_body(upstream, "/fake/slow?seconds=0.02") for _ in range(10)))
        assert upstream.in_use == 0
    assert len(fake_cluster.requests) == 10
    assert fake_cluster.connection_count == 2


async def test_a_request_over_the_queue_limit_is_rejected(fake_cluster: FakeCluster) -> None:
    async with connect_upstream(fake_cluster, Limits(max_requests=1, max_queued=1)) as upstream:
        stream = await send_request(upstream, "/fake/ticks")
        queued = asyncio.create_task(fetch_body(upstream, "/version"))
        await asyncio.sleep(0)
        with pytest.raises(ClusterLimitExceeded):
            await send_request(upstream, "/version")
        await stream.close()
        assert b"v1.34.1" in await queued


async def test_waiting_in_the_queue_has_a_timeout(fake_cluster: FakeCluster) -> None:
    async with connect_upstream(fake_cluster, Limits(max_requests=1, connect_seconds=2)) as upstream:
        stream = await send_request(upstream, "/fake/ticks")
        with pytest.raises(ClusterLimitExceeded):
            await send_request(upstream, "/version")
        await stream.close()
        await fetch_body(upstream, "/version")


async def test_a_cancelled_request_in_the_queue_passes_its_slot_on(fake_cluster: FakeCluster) -> None:
    async with connect_upstream(fake_cluster, Limits(max_requests=1)) as upstream:
        stream = await send_request(upstream, "/fake/ticks")
        queued = [asyncio.create_task(fetch_body(upstream, "/version")) for _ in range(3)]
        await asyncio.sleep(0)
        queued[0].cancel()
        await stream.close()
        queued[1].cancel()
        assert b"v1.34.1" in await queued[2]
        assert upstream.in_use == 0


async def test_an_idle_connection_is_closed_after_a_timeout(fake_cluster: FakeCluster) -> None:
    async with connect_upstream(fake_cluster, Limits(idle_seconds=0.01)) as upstream:
        await fetch_body(upstream, "/version")
        await eventually(lambda: not fake_cluster.open_connections)
        await fetch_body(upstream, "/version")
    assert fake_cluster.connection_count == 2


async def test_a_stopped_cluster_is_unreachable_and_holds_no_slot(fake_cluster: FakeCluster) -> None:
    fake_cluster.stop()
    async with connect_upstream(fake_cluster) as upstream:
        with pytest.raises(Unreachable) as caught:
            await send_request(upstream, "/version")
        assert upstream.in_use == 0
        assert str(fake_cluster.port) not in caught.value.message
        fake_cluster.start()
        await fetch_body(upstream, "/version")


async def test_a_cluster_that_stops_interrupts_responses_in_progress(fake_cluster: FakeCluster) -> None:
    async with connect_upstream(fake_cluster) as upstream:
        stream = await send_request(upstream, "/fake/ticks")
        fake_cluster.stop()
        with pytest.raises(Exception, match="in the middle of its response"):
            await stream.read(READ_LIMIT)
        assert upstream.in_use == 0


async def test_resolving_a_name_has_a_timeout(fake_cluster: FakeCluster) -> None:
    async def resolve_slowly(host: str, port: int) -> str:
        await asyncio.sleep(60)
        return host

    endpoint = build_endpoint(fake_cluster)
    dialer = DirectDialer(endpoint, resolve_slowly)
    upstream = dialled_upstream(endpoint, dialer, Limits(connect_seconds=0.05))
    with pytest.raises(TimedOut):
        await upstream.send(Request("GET", "/"))
    upstream = dialled_upstream(endpoint, dialer, Limits())
    with pytest.raises(TimedOut):
        await upstream.send(Request("GET", "/"), seconds=0.05)
    assert upstream.in_use == 0


async def test_t22_the_connection_goes_to_the_resolved_address(fake_cluster: FakeCluster) -> None:
    resolved = []

    async def resolve(host: str, port: int) -> str:
        resolved.append((host, port))
        return await resolve_unchanged("127.0.0.1", port)

    endpoint = build_endpoint(fake_cluster, host="rebinding.example", tls_server_name="localhost")
    upstream = dialled_upstream(endpoint, DirectDialer(endpoint, resolve), Limits())
    await fetch_body(upstream, "/version")
    await upstream.close()
    assert resolved == [("rebinding.example", fake_cluster.port)]
