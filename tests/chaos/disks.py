"""Disks that are full. A small one is a tmpfs, which only root may mount."""

import asyncio
import random
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from tests.chaos.deployment import World
from tests.chaos.faults import Fault
from tests.chaos.probes import reads_go_on, until, until_accepted, until_refused
from tests.harness.etcd_server import EtcdCluster
from tests.harness.postgres_server import PostgresServer as Postgres


@contextmanager
def small_disk(megabytes: int, folder: Path | None = None) -> Iterator[Path]:
    """A file system of a few megabytes. Without a folder it is where every user may go, which PostgreSQL's must."""
    place = folder or Path(tempfile.mkdtemp(prefix="fairlead-disk-"))
    place.mkdir(parents=True, exist_ok=True)
    if shutil.which("mount") is None:
        pytest.skip("mount is not installed")
    options = ("-t", "tmpfs", "-o", f"size={megabytes}m,mode=700", "fairlead-faults", str(place))
    mounted = subprocess.run(["mount", *options], capture_output=True, text=True, check=False)
    if mounted.returncode:
        place.rmdir()
        pytest.skip(f"a small file system cannot be mounted: {mounted.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)
        place.rmdir()


@contextmanager
def filled(disk: Path) -> Iterator[None]:
    """To the last byte, meanwhile."""
    filler = disk / "filler"
    try:
        with filler.open("wb", buffering=0) as rest:
            for size in (1 << 20, 4096):
                with suppress(OSError):  # no room for so much
                    while True:
                        rest.write(bytes(size))
        yield
    finally:
        filler.unlink()


def fill_disk(disk: Path) -> Fault:
    async def fault(world: World) -> None:
        with filled(disk):
            await asyncio.sleep(random.uniform(0.5, 1.5))

    return fault


def fill_disk_and_kill(disk: Path) -> Fault:
    async def fault(world: World) -> None:
        with filled(disk):
            await asyncio.sleep(random.uniform(0.2, 1.0))
            for replica in world.replicas:
                replica.kill()
        for replica in world.replicas:
            replica.start()

    return fault


def fill_tables(disk: Path) -> Fault:
    """PostgreSQL has room for its log and none for its tables: it refuses to write, and everybody may read."""

    async def fault(world: World) -> None:
        with filled(disk):
            await until_refused(world, "its disk is full")
            await reads_go_on(world)
            await asyncio.sleep(random.uniform(0.0, 1.0))
        await until_accepted(world)

    return fault


def fill_log(server: Postgres, disk: Path) -> Fault:
    """PostgreSQL has no room for its log, and ends. When there is room again it is started, as service managers do."""

    async def fault(world: World) -> None:
        assert server.process is not None
        with filled(disk):
            await until_refused(world)
            await until(world, lambda: server.process is not None and server.process.poll() is not None, "its end")
        await asyncio.to_thread(server.start)
        await until_accepted(world)

    return fault


def fill_one_member(cluster: EtcdCluster, disks: Sequence[Path]) -> Fault:
    """It ends, and the others carry on."""

    async def fault(world: World) -> None:
        number = random.randrange(len(disks))
        member = cluster.members[number]
        with filled(disks[number]):
            await until(world, member.has_ended, "a member to end that has no room")
            await until_accepted(world)
        member.start()

    return fault


def fill_all_members(cluster: EtcdCluster, disks: Sequence[Path]) -> Fault:
    """They end. When there is room again they are started, as service managers do."""

    async def fault(world: World) -> None:
        with ExitStack() as stack:
            for disk in disks:
                stack.enter_context(filled(disk))
            await until(world, lambda: sum(each.has_ended() for each in cluster.members) > 1, "most members to end")
            await until_refused(world)
        for member in cluster.members:
            member.kill()
            member.start()
        await until_accepted(world)

    return fault
