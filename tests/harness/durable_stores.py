"""Addresses of durable stores of each type."""

import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.harness.etcd_server import open_etcd, shared_cluster
from tests.harness.postgres_server import address_for


async def sqlite_address(folder: Path) -> str:
    return f"sqlite:{folder}.db"


async def postgres_address(folder: Path) -> str:
    return address_for(folder)


async def etcd_address(folder: Path) -> str:
    # Opened once, which waits for the server that all tests share.
    await (await open_etcd(folder)).close()
    return f"etcd:{shared_cluster().url('durable/' + hashlib.sha256(str(folder).encode()).hexdigest()[:16])}"


ADDRESSES: dict[str, Callable[[Path], Awaitable[str]]] = {
    "sqlite": sqlite_address,
    "postgres": postgres_address,
    "etcd": etcd_address,
}
