"""What goes wrong. Each fault also mends what it has broken; whoever causes it then waits until all is well."""

import asyncio
import random
import signal
from collections.abc import Awaitable, Callable

from tests.chaos.deployment import Replica, World
from tests.harness.etcd_proxy import EtcdProxy
from tests.harness.etcd_server import EtcdCluster, EtcdMember
from tests.harness.postgres_server import PostgresServer as Postgres

Fault = Callable[[World], Awaitable[None]]

LEASE_SECONDS = 10.0


async def kill_one(world: World) -> None:
    """kill -9; one time in four once more while it starts."""
    replica = random.choice(world.replicas)
    replica.kill()
    if random.random() < 0.25:
        replica.start()
        await asyncio.sleep(random.uniform(0.1, 1.5))
        replica.kill()
    replica.start()


async def kill_all(world: World) -> None:
    _kill(world.replicas)


async def kill_all_but_one(world: World) -> None:
    """At once, so that whoever is left takes over all of it."""
    _kill(random.sample(world.replicas, len(world.replicas) - 1))


def _kill(replicas: list[Replica]) -> None:
    for replica in replicas:
        replica.kill()
    for replica in replicas:
        replica.start()


async def restart_one(world: World) -> None:
    """In order, as an upgrade does it."""
    replica = random.choice(world.replicas)
    replica.send(signal.SIGTERM)
    assert replica.process is not None
    assert await asyncio.to_thread(replica.process.wait) == 0, replica.log.read_text()[-2000:]
    replica.start()


async def freeze_one(world: World) -> None:
    """For longer than clients wait, so that it wakes up with requests that nobody waits for."""
    await _frozen(world, random.uniform(0.5, 4.0))


async def freeze_past_the_lease(world: World) -> None:
    await _frozen(world, LEASE_SECONDS + 3.0)


async def _frozen(world: World, seconds: float) -> None:
    replica = random.choice(world.replicas)
    replica.send(signal.SIGSTOP)
    await asyncio.sleep(seconds)
    replica.send(signal.SIGCONT)


def crash_postgres(server: Postgres) -> Fault:
    """All of its processes end at once; it recovers from its log."""

    async def fault(world: World) -> None:
        await asyncio.to_thread(server.stop, signal.SIGQUIT)
        await asyncio.sleep(random.uniform(0.0, 1.0))
        await asyncio.to_thread(server.start)

    return fault


def freeze_postgres(server: Postgres) -> Fault:
    async def fault(world: World) -> None:
        server.pause()
        await asyncio.sleep(random.uniform(0.5, 2.0))
        server.resume()

    return fault


def kill_member(cluster: EtcdCluster) -> Fault:
    async def fault(world: World) -> None:
        await kill_awhile(random.choice(cluster.members))

    return fault


async def kill_awhile(member: EtcdMember) -> None:
    member.kill()
    await asyncio.sleep(random.uniform(0.2, 1.0))
    member.start()


def freeze_member(cluster: EtcdCluster) -> Fault:
    async def fault(world: World) -> None:
        await stop_awhile(random.choice(cluster.members))

    return fault


async def stop_awhile(member: EtcdMember) -> None:
    member.send(signal.SIGSTOP)
    await asyncio.sleep(random.uniform(0.5, 2.0))
    member.send(signal.SIGCONT)


def kill_all_members(cluster: EtcdCluster) -> Fault:
    async def fault(world: World) -> None:
        for member in cluster.members:
            member.kill()
        await asyncio.sleep(random.uniform(0.0, 0.5))
        for member in cluster.members:
            member.start()

    return fault


def cut_off(proxies: list[EtcdProxy]) -> Fault:
    """The store cannot be reached by those who go through the proxies: all connections break, and no new ones."""

    async def fault(world: World) -> None:
        await asyncio.gather(*(proxy.stop() for proxy in proxies))
        await asyncio.sleep(random.uniform(0.2, 2.0))
        for proxy in proxies:
            await proxy.start()

    return fault


def swallow(proxies: list[EtcdProxy]) -> Fault:
    """What is asked arrives and is done, but no answer comes back; then the connections break."""

    async def fault(world: World) -> None:
        for proxy in proxies:
            proxy.responses.clear()
        await asyncio.sleep(random.uniform(0.2, 1.0))
        for proxy in proxies:
            proxy.abort_connections()
            proxy.responses.set()

    return fault


async def let_time_pass(world: World) -> None:
    """Long enough for old revisions to be compacted, where little history is kept."""
    await asyncio.sleep(6.0)
