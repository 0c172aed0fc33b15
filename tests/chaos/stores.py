"""Stores for the scenarios: each yields the store addresses of the replicas, and its faults."""

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

NamedFault = tuple[str, Fault]

POSTGRES_MEGABYTES = 256
ETCD_MEGABYTES = 256
"""etcd starts with two logs of 64 MB each."""
VACUUMING = {**postgres_server.FAST, "autovacuum": "on", "autovacuum_naptime": "1s"}
"""Frees the space of deleted rows, so that a small disk is full only when a fault fills it."""
GROWING_LOG = {
    **VACUUMING,
    "max_wal_size": "1GB",
    "min_wal_size": "32MB",
    "wal_recycle": "off",
    "checkpoint_timeout": "1h",
}
"""The log always continues in new files and never reuses old ones, for which there would be space."""


@dataclass(frozen=True, slots=True)
class StoreSetup:
    addresses: list[str]
    faults: Sequence[NamedFault]


@asynccontextmanager
async def create_postgres(folder: Path, replicas: int) -> AsyncIterator[StoreSetup]:
    """The last replica reaches the store through a proxy that can be disconnected."""
    postgres_server.require_postgres()
    async with AsyncExitStack() as stack:
        server = await asyncio.to_thread(postgres_server.PostgresServer, None, "trust")
        stack.callback(server.remove)
        proxy = await _start_proxy(stack, server.port)
        proxied = server.url.replace(f":{server.port}/", f":{proxy.port}/")
        yield StoreSetup(
            [*[server.url] * (replicas - 1), proxied],
            (
                ("store crashes", faults.crash_postgres(server)),
                ("store frozen", faults.freeze_postgres(server)),
                ("store unreachable", faults.disconnect([proxy])),
                ("responses lost", faults.drop_responses([proxy])),
            ),
        )


@asynccontextmanager
async def create_postgres_with_small_disk(folder: Path, replicas: int) -> AsyncIterator[StoreSetup]:
    """Only its tables are on a small disk: it can still reject writes."""
    with disks.mount_small_disk(POSTGRES_MEGABYTES) as disk:
        async with _run_postgres(VACUUMING, disk, Path(tempfile.mkdtemp(prefix="fairlead-wal-"))) as server:
            yield StoreSetup([server.url] * replicas, (("disk full", disks.fill_tables(disk)),))


@asynccontextmanager
async def create_postgres_with_small_log(folder: Path, replicas: int) -> AsyncIterator[StoreSetup]:
    """Only its log is on a small disk: without space for its log it ends."""
    with disks.mount_small_disk(POSTGRES_MEGABYTES) as disk:
        wal = disk / "wal"
        wal.mkdir()
        async with _run_postgres(GROWING_LOG, None, wal) as server:
            yield StoreSetup([server.url] * replicas, (("disk full", disks.fill_log(server, disk)),))


@asynccontextmanager
async def _run_postgres(
    settings: dict[str, str], folder: Path | None, wal: Path
) -> AsyncIterator[postgres_server.PostgresServer]:
    postgres_server.require_postgres()
    server = await asyncio.to_thread(postgres_server.PostgresServer, settings, "trust", None, folder, wal)
    try:
        yield server
    finally:
        server.remove()


@asynccontextmanager
async def create_etcd(folder: Path, replicas: int) -> AsyncIterator[StoreSetup]:
    """Three members. The last replica reaches them through proxies that can be disconnected."""
    async with AsyncExitStack() as stack:
        cluster = await _start_etcd(stack, folder)
        proxies = [await _start_proxy(stack, member.port) for member in cluster.members]
        proxied = ",".join(f"127.0.0.1:{proxy.port}" for proxy in proxies)
        yield StoreSetup(
            [*[f"etcd:{cluster.url('faults')}"] * (replicas - 1), f"etcd://{proxied}/faults"],
            (
                ("store crashes", faults.kill_all_members(cluster)),
                ("member killed", faults.kill_member(cluster)),
                ("member frozen", faults.freeze_member(cluster)),
                ("etcd's leader killed", etcd_members.kill_leader(cluster)),
                ("etcd's leader frozen", etcd_members.freeze_leader(cluster)),
                ("store unreachable", faults.disconnect(proxies)),
                ("responses lost", faults.drop_responses(proxies)),
            ),
        )


@asynccontextmanager
async def create_small_etcd(folder: Path, replicas: int) -> AsyncIterator[StoreSetup]:
    """Each of the three members has a small disk."""
    async with AsyncExitStack() as stack:
        folders = [folder / "etcd" / f"m{number}" for number in range(3)]
        member_disks = [
            stack.enter_context(disks.mount_small_disk(ETCD_MEGABYTES, folder_of_member))
            for folder_of_member in folders
        ]
        cluster = await _start_etcd(stack, folder)
        yield StoreSetup(
            [f"etcd:{cluster.url('faults')}"] * replicas,
            (
                ("a member's disk full", disks.fill_one_member(cluster, member_disks)),
                ("all members' disks full", disks.fill_all_members(cluster, member_disks)),
            ),
        )


@asynccontextmanager
async def create_etcd_with_quota(folder: Path, replicas: int) -> AsyncIterator[StoreSetup]:
    async with AsyncExitStack() as stack:
        cluster = await _start_etcd(stack, folder, f"--quota-backend-bytes={16 * 1024 * 1024}")
        yield StoreSetup(
            [f"etcd:{cluster.url('faults')}"] * replicas, (("quota reached", etcd_members.reach_quota(cluster)),)
        )


async def _start_etcd(stack: AsyncExitStack, folder: Path, *options: str) -> etcd_server.EtcdCluster:
    return await stack.enter_async_context(etcd_server.running_etcd(folder / "etcd", 3, list(options)))


async def _start_proxy(stack: AsyncExitStack, port: int) -> EtcdProxy:
    proxy = EtcdProxy(port)
    await proxy.start()
    stack.push_async_callback(proxy.stop)
    return proxy
