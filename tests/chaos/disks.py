"""Faults of full disks. A small disk is a tmpfs, which only root may mount."""

import asyncio
import random
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from tests.chaos.deployment import Deployment
from tests.chaos.faults import Fault
from tests.chaos.probes import check_reads, write_until, write_until_accepted, write_until_rejected
from tests.harness.etcd_server import EtcdCluster
from tests.harness.postgres_server import PostgresServer as Postgres


@contextmanager
def mount_small_disk(megabytes: int, folder: Path | None = None) -> Iterator[Path]:
    """Mounts a file system of a few megabytes. Without a folder, every user can enter it: PostgreSQL does not run as
    root, and has a folder of its own in it."""
    mount_point = folder or Path(tempfile.mkdtemp(prefix="fairlead-disk-"))
    mount_point.mkdir(parents=True, exist_ok=True)
    if shutil.which("mount") is None:
        pytest.skip("mount is not installed")
    mode = 700 if folder else 755
    options = ("-t", "tmpfs", "-o", f"size={megabytes}m,mode={mode}", "fairlead-faults", str(mount_point))
    result = subprocess.run(["mount", *options], capture_output=True, text=True, check=False)
    if result.returncode:
        mount_point.rmdir()
        pytest.skip(f"a small file system cannot be mounted: {result.stderr.strip()}")
    try:
        yield mount_point
    finally:
        subprocess.run(["umount", str(mount_point)], check=True)
        mount_point.rmdir()


@contextmanager
def fill_up(disk: Path) -> Iterator[None]:
    """Fills the disk to the last byte during the context."""
    filler = disk / "filler"
    try:
        with filler.open("wb", buffering=0) as file:
            for size in (1 << 20, 4096):
                with suppress(OSError):  # no space for this block
                    while True:
                        file.write(bytes(size))
        yield
    finally:
        filler.unlink()


def fill_disk(disk: Path) -> Fault:
    async def fault(deployment: Deployment) -> None:
        with fill_up(disk):
            await asyncio.sleep(random.uniform(0.5, 1.5))

    return fault


def fill_disk_and_kill(disk: Path) -> Fault:
    async def fault(deployment: Deployment) -> None:
        with fill_up(disk):
            await asyncio.sleep(random.uniform(0.2, 1.0))
            for replica in deployment.replicas:
                replica.kill()
        for replica in deployment.replicas:
            replica.start()

    return fault


def fill_tables(disk: Path) -> Fault:
    """PostgreSQL has space for its log but not for its tables: it rejects writes and serves reads."""

    async def fault(deployment: Deployment) -> None:
        with fill_up(disk):
            await write_until_rejected(deployment, "its disk is full")
            await check_reads(deployment)
            await asyncio.sleep(random.uniform(0.0, 1.0))
        await write_until_accepted(deployment)

    return fault


def fill_log(server: Postgres, disk: Path) -> Fault:
    """PostgreSQL has no space for its log, and ends. It is restarted when there is space again."""

    async def fault(deployment: Deployment) -> None:
        assert server.process is not None
        with fill_up(disk):
            await write_until_rejected(deployment)
            await write_until(
                deployment,
                lambda: server.process is not None and server.process.poll() is not None,
                "PostgreSQL to end",
            )
        await asyncio.to_thread(server.start)
        await write_until_accepted(deployment)

    return fault


def fill_one_member(cluster: EtcdCluster, disks: Sequence[Path]) -> Fault:
    """One member ends, and the others continue."""

    async def fault(deployment: Deployment) -> None:
        number = random.randrange(len(disks))
        member = cluster.members[number]
        with fill_up(disks[number]):
            await write_until(deployment, member.has_ended, "a member without space to end")
            await write_until_accepted(deployment)
        member.start()

    return fault


def fill_all_members(cluster: EtcdCluster, disks: Sequence[Path]) -> Fault:
    """All members end. They are restarted when there is space again, as service managers do."""

    async def fault(deployment: Deployment) -> None:
        with ExitStack() as stack:
            for disk in disks:
                stack.enter_context(fill_up(disk))
            await write_until(
                deployment, lambda: sum(each.has_ended() for each in cluster.members) > 1, "most members to end"
            )
            await write_until_rejected(deployment)
        for member in cluster.members:
            member.kill()
            member.start()
        await write_until_accepted(deployment)

    return fault
