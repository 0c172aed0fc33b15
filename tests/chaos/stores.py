"""Stores to be broken: each yields the addresses of its replicas, and the faults that it can have."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.chaos import disks, etcd_members, faults
from tests.chaos.faults import Fault
from tests.harness import etcd_server, postgres_server
from tests.harness.etcd_proxy import EtcdProxy

Named = tuple[str, Fault]

POSTGRES_MEGABYTES = 256
ETCD_MEGABYTES = 256
"""etcd begins with two logs of 64 MB each."""
TIDY = {**postgres_server.FAST, "autovacuum": "on", "autovacuum_naptime": "1s"}
"""What was deleted makes room for what comes, so that a small disk is full only when it has been filled."""
HOARDING = {**TIDY, "max_wal_size": "1GB", "min_wal_size": "32MB", "wal_recycle": "off", "checkpoint_timeout": "1h"}
"""The log always goes on in new files and never in old ones, which there would be room for."""


@dataclass(frozen=True, slots=True)
class Setting:
    addresses: list[str]
    faults: Sequence[Named]


@asynccontextmanager
async def postgres(folder: Path, replicas: int) -> AsyncIterator[Setting]:
    """The last replica reaches the store through a wire that can be cut."""
    postgres_server.require_postgres()
    async with AsyncExitStack() as stack:
        server = await asyncio.to_thread(postgres_server.PostgresServer, None, "trust")
        stack.callback(server.remove)
        proxy = await _proxy(stack, server.port)
        through = server.url.replace(f":{server.port}/", f":{proxy.port}/")
        yield Setting(
            [*[server.url] * (replicas - 1), through],
            (
                ("store crashes", faults.crash_postgres(server)),
                ("store stands still", faults.freeze_postgres(server)),
                ("store unreachable", faults.cut_off([proxy])),
                ("answers lost", faults.swallow([proxy])),
            ),
        )


@asynccontextmanager
async def postgres_with_small_disk(folder: Path, replicas: int) -> AsyncIterator[Setting]:
    """Its tables are on a small disk, its log is not: it has room to say no."""
    with disks.small_disk(POSTGRES_MEGABYTES) as disk:
        async with _postgres(TIDY, disk, Path(tempfile.mkdtemp(prefix="fairlead-wal-"))) as server:
            yield Setting([server.url] * replicas, (("disk full", disks.fill_tables(disk)),))


@asynccontextmanager
async def postgres_with_small_log(folder: Path, replicas: int) -> AsyncIterator[Setting]:
    """Its log is on a small disk, its tables are not: without room for its log it ends."""
    with disks.small_disk(POSTGRES_MEGABYTES) as disk:
        wal = disk / "wal"
        wal.mkdir()
        async with _postgres(HOARDING, None, wal) as server:
            yield Setting([server.url] * replicas, (("disk full", disks.fill_log(server, disk)),))


@asynccontextmanager
async def _postgres(
    settings: dict[str, str], folder: Path | None, wal: Path
) -> AsyncIterator[postgres_server.PostgresServer]:
    postgres_server.require_postgres()
    server = await asyncio.to_thread(postgres_server.PostgresServer, settings, "trust", None, folder, wal)
    try:
        yield server
    finally:
        server.remove()


@asynccontextmanager
async def etcd(folder: Path, replicas: int) -> AsyncIterator[Setting]:
    """Three members. The last replica reaches them through wires that can be cut."""
    async with AsyncExitStack() as stack:
        cluster = await _cluster(stack, folder)
        proxies = [await _proxy(stack, member.port) for member in cluster.members]
        through = ",".join(f"127.0.0.1:{proxy.port}" for proxy in proxies)
        yield Setting(
            [*[f"etcd:{cluster.url('faults')}"] * (replicas - 1), f"etcd://{through}/faults"],
            (
                ("store crashes", faults.kill_all_members(cluster)),
                ("member killed", faults.kill_member(cluster)),
                ("member stands still", faults.freeze_member(cluster)),
                ("etcd's leader killed", etcd_members.kill_leader(cluster)),
                ("etcd's leader stands still", etcd_members.freeze_leader(cluster)),
                ("store unreachable", faults.cut_off(proxies)),
                ("answers lost", faults.swallow(proxies)),
            ),
        )


@asynccontextmanager
async def small_etcd(folder: Path, replicas: int) -> AsyncIterator[Setting]:
    """Each of the three members has a small disk."""
    async with AsyncExitStack() as stack:
        places = [folder / "etcd" / f"m{number}" for number in range(3)]
        filling = [stack.enter_context(disks.small_disk(ETCD_MEGABYTES, place)) for place in places]
        cluster = await _cluster(stack, folder)
        yield Setting(
            [f"etcd:{cluster.url('faults')}"] * replicas,
            (
                ("a member's disk full", disks.fill_one_member(cluster, filling)),
                ("all members' disks full", disks.fill_all_members(cluster, filling)),
            ),
        )


@asynccontextmanager
async def etcd_with_quota(folder: Path, replicas: int) -> AsyncIterator[Setting]:
    async with AsyncExitStack() as stack:
        cluster = await _cluster(stack, folder, f"--quota-backend-bytes={16 * 1024 * 1024}")
        yield Setting(
            [f"etcd:{cluster.url('faults')}"] * replicas, (("quota reached", etcd_members.reach_quota(cluster)),)
        )


async def _cluster(stack: AsyncExitStack, folder: Path, *options: str) -> etcd_server.EtcdCluster:
    return await stack.enter_async_context(etcd_server.running_etcd(folder / "etcd", 3, list(options)))


async def _proxy(stack: AsyncExitStack, port: int) -> EtcdProxy:
    proxy = EtcdProxy(port)
    await proxy.start()
    stack.push_async_callback(proxy.stop)
    return proxy
