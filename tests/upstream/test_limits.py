"""How much one cluster may take of us, and who waits."""

import asyncio

import pytest

from fairlead.upstream.errors import ClusterLimitExceeded, TimedOut, Unreachable
from fairlead.upstream.upstream import Limits, Request, Upstream
from tests.fake_cluster.server import FakeCluster
from tests.upstream.upstreams import MUCH, access_to, as_it_is, asked, got, reaching, until


async def test_requests_past_the_limit_wait_for_their_turn(fake_cluster: FakeCluster) -> None:
    async with reaching(fake_cluster, Limits(max_requests=2)) as upstream:
        await asyncio.gather(*(got(upstream, "/far/slow?seconds=0.02") for _ in range(10)))
        assert upstream.in_use == 0
    assert len(fake_cluster.seen) == 10
    assert fake_cluster.connections == 2


async def test_a_request_past_the_row_is_turned_away(fake_cluster: FakeCluster) -> None:
    async with reaching(fake_cluster, Limits(max_requests=1, max_queued=1)) as upstream:
        stream = await asked(upstream, "/far/ticks")
        second = asyncio.create_task(got(upstream, "/version"))
        await asyncio.sleep(0)
        with pytest.raises(ClusterLimitExceeded):
            await asked(upstream, "/version")
        await stream.close()
        assert b"v1.34.1" in await second


async def test_a_turn_that_never_comes_is_not_waited_for_for_ever(fake_cluster: FakeCluster) -> None:
    async with reaching(fake_cluster, Limits(max_requests=1, connect_seconds=0.2)) as upstream:
        stream = await asked(upstream, "/far/ticks")
        with pytest.raises(ClusterLimitExceeded):
            await asked(upstream, "/version")
        await stream.close()
        await got(upstream, "/version")


async def test_one_who_stops_waiting_gives_his_turn_on(fake_cluster: FakeCluster) -> None:
    async with reaching(fake_cluster, Limits(max_requests=1)) as upstream:
        stream = await asked(upstream, "/far/ticks")
        waiting = [asyncio.create_task(got(upstream, "/version")) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        await stream.close()
        waiting[1].cancel()
        assert b"v1.34.1" in await waiting[2]
        assert upstream.in_use == 0


async def test_an_unused_connection_is_closed_after_a_while(fake_cluster: FakeCluster) -> None:
    async with reaching(fake_cluster, Limits(idle_seconds=0.01)) as upstream:
        await got(upstream, "/version")
        await until(lambda: not fake_cluster.open)
        await got(upstream, "/version")
    assert fake_cluster.connections == 2


async def test_nobody_there_is_unreachable_and_holds_no_turn(fake_cluster: FakeCluster) -> None:
    fake_cluster.stop()
    async with reaching(fake_cluster) as upstream:
        with pytest.raises(Unreachable) as caught:
            await asked(upstream, "/version")
        assert upstream.in_use == 0
        assert str(fake_cluster.port) not in caught.value.message
        fake_cluster.start()
        await got(upstream, "/version")


async def test_a_cluster_that_dies_breaks_off_what_was_under_way(fake_cluster: FakeCluster) -> None:
    async with reaching(fake_cluster) as upstream:
        stream = await asked(upstream, "/far/ticks")
        fake_cluster.stop()
        with pytest.raises(Exception, match="in the middle of its response"):
            await stream.read(MUCH)
        assert upstream.in_use == 0


async def test_a_name_that_resolves_too_slowly_is_given_up(fake_cluster: FakeCluster) -> None:
    async def slowly(host: str, port: int) -> str:
        await asyncio.sleep(60)
        return host

    upstream = Upstream(access_to(fake_cluster), slowly, Limits(connect_seconds=0.05))
    with pytest.raises(TimedOut):
        await upstream.send(Request("GET", "/"))
    upstream = Upstream(access_to(fake_cluster), slowly, Limits())
    with pytest.raises(TimedOut):
        await upstream.send(Request("GET", "/"), seconds=0.05)
    assert upstream.in_use == 0


async def test_t22_the_resolved_address_is_the_one_connected_to(fake_cluster: FakeCluster) -> None:
    asked_for = []

    async def resolve(host: str, port: int) -> str:
        asked_for.append((host, port))
        return await as_it_is("127.0.0.1", port)

    access = access_to(fake_cluster, host="rebinding.example", tls_server_name="localhost")
    upstream = Upstream(access, resolve, Limits())
    await got(upstream, "/version")
    await upstream.close()
    assert asked_for == [("rebinding.example", fake_cluster.port)]
