"""Faults of replicas and stores. Each fault repairs what it broke; the caller waits until all replicas are ready."""

import asyncio
import os
import random
import signal
from collections.abc import Awaitable, Callable

from tests.chaos.deployment import Deployment, Replica
from tests.harness.etcd_proxy import EtcdProxy
from tests.harness.etcd_server import EtcdCluster, EtcdMember
from tests.harness.postgres_server import PostgresServer as Postgres

Fault = Callable[[Deployment], Awaitable[None]]

LEASE_SECONDS = 10.0
OWNER, WORKER = "fairlead-owner", "fairlead-worker"
"""The names of the processes of a server with several workers."""


async def kill_one(deployment: Deployment) -> None:
    """kill -9, and in a quarter of cases again during the start."""
    replica = random.choice(deployment.replicas)
    replica.kill()
    if random.random() < 0.25:
        replica.start()
        await asyncio.sleep(random.uniform(0.1, 1.5))
        replica.kill()
    replica.start()


async def kill_all(deployment: Deployment) -> None:
    _kill_and_restart(deployment.replicas)


async def kill_all_but_one(deployment: Deployment) -> None:
    """Kills them at once, so that the remaining replica takes over everything."""
    _kill_and_restart(random.sample(deployment.replicas, len(deployment.replicas) - 1))


def _kill_and_restart(replicas: list[Replica]) -> None:
    for replica in replicas:
        replica.kill()
    for replica in replicas:
        replica.start()


async def restart_one(deployment: Deployment) -> None:
    """A graceful restart, as in an upgrade."""
    replica = random.choice(deployment.replicas)
    replica.send(signal.SIGTERM)
    assert replica.process is not None
    assert await asyncio.to_thread(replica.process.wait) == 0, replica.log.read_text()[-2000:]
    replica.kill()
    replica.start()


async def freeze_one(deployment: Deployment) -> None:
    """Freezes a replica for longer than clients wait, so that it continues with abandoned requests."""
    await _freeze_one_for(deployment, random.uniform(0.5, 4.0))


async def freeze_past_the_lease(deployment: Deployment) -> None:
    await _freeze_one_for(deployment, LEASE_SECONDS + 3.0)


async def _freeze_one_for(deployment: Deployment, seconds: float) -> None:
    replica = random.choice(deployment.replicas)
    replica.send(signal.SIGSTOP)
    await asyncio.sleep(seconds)
    replica.send(signal.SIGCONT)


async def kill_worker(deployment: Deployment) -> None:
    os.kill(random.choice(random.choice(deployment.replicas).find_children(WORKER)), signal.SIGKILL)


async def kill_owner(deployment: Deployment) -> None:
    for pid in random.choice(deployment.replicas).find_children(OWNER):
        os.kill(pid, signal.SIGKILL)


async def freeze_worker(deployment: Deployment) -> None:
    """Freezes a worker for longer than clients wait. The others continue, and it has to catch up."""
    pid = random.choice(random.choice(deployment.replicas).find_children(WORKER))
    os.kill(pid, signal.SIGSTOP)
    await asyncio.sleep(random.uniform(0.5, 4.0))
    os.kill(pid, signal.SIGCONT)


def crash_postgres(server: Postgres) -> Fault:
    """All processes end at once. PostgreSQL recovers from its log."""

    async def fault(deployment: Deployment) -> None:
        await asyncio.to_thread(server.stop, signal.SIGQUIT)
        await asyncio.sleep(random.uniform(0.0, 1.0))
        await asyncio.to_thread(server.start)

    return fault


def freeze_postgres(server: Postgres) -> Fault:
    async def fault(deployment: Deployment) -> None:
        server.pause()
        await asyncio.sleep(random.uniform(0.5, 2.0))
        server.resume()

    return fault


def kill_member(cluster: EtcdCluster) -> Fault:
    async def fault(deployment: Deployment) -> None:
        await kill_for_a_while(random.choice(cluster.members))

    return fault


async def kill_for_a_while(member: EtcdMember) -> None:
    member.kill()
    await asyncio.sleep(random.uniform(0.2, 1.0))
    member.start()


def freeze_member(cluster: EtcdCluster) -> Fault:
    async def fault(deployment: Deployment) -> None:
        await freeze_for_a_while(random.choice(cluster.members))

    return fault


async def freeze_for_a_while(member: EtcdMember) -> None:
    member.send(signal.SIGSTOP)
    await asyncio.sleep(random.uniform(0.5, 2.0))
    member.send(signal.SIGCONT)


def kill_all_members(cluster: EtcdCluster) -> Fault:
    async def fault(deployment: Deployment) -> None:
        for member in cluster.members:
            member.kill()
        await asyncio.sleep(random.uniform(0.0, 0.5))
        for member in cluster.members:
            member.start()

    return fault


def disconnect(proxies: list[EtcdProxy]) -> Fault:
    """The store is unreachable through the proxies: all connections break, and new ones are refused."""

    async def fault(deployment: Deployment) -> None:
        await asyncio.gather(*(proxy.stop() for proxy in proxies))
        await asyncio.sleep(random.uniform(0.2, 2.0))
        for proxy in proxies:
            await proxy.start()

    return fault


def drop_responses(proxies: list[EtcdProxy]) -> Fault:
    """Requests arrive and are applied, but the responses are lost. Then the connections break."""

    async def fault(deployment: Deployment) -> None:
        for proxy in proxies:
            proxy.responses.clear()
        await asyncio.sleep(random.uniform(0.2, 1.0))
        for proxy in proxies:
            proxy.abort_connections()
            proxy.responses.set()

    return fault


async def wait_for_compaction(deployment: Deployment) -> None:
    """Waits long enough for old revisions to be compacted, with a short history."""
    await asyncio.sleep(6.0)
