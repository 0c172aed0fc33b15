"""Stores that must fulfil the contract. Add a new one to STORES, and all contract tests run on it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from fairlead.core.crypto.encryption import EncryptionKey, Keyring
from fairlead.storage.contract import Store
from fairlead.storage.encrypted import EncryptedStore
from fairlead.storage.open import open_store
from tests.harness.etcd_server import open_etcd
from tests.harness.postgres_server import open_postgres
from tests.harness.socket_store import open_socket_store


async def open_encrypted(folder: Path) -> Store:
    """Opens an encrypted memory store; about half of the values count as credentials."""
    keyring = Keyring([EncryptionKey("tests", bytes(32))], "tests")
    return EncryptedStore(await open_store("memory:"), keyring, lambda key, value: sum(value) % 2 == 0)


STORES: dict[str, Callable[[Path], Awaitable[Store]]] = {
    "memory": lambda folder: open_store("memory:"),
    "sqlite": lambda folder: open_store(f"sqlite:{folder}/store.db"),
    "encrypted": open_encrypted,
    "socket": open_socket_store,
    "postgres": open_postgres,
    "etcd": open_etcd,
}


@pytest.fixture(params=STORES)
def open_store_in(request: pytest.FixtureRequest) -> Callable[[Path], Awaitable[Store]]:
    """Opens a store of each kind in the given folder."""
    return STORES[request.param]


@pytest.fixture
async def store(open_store_in: Callable[[Path], Awaitable[Store]], tmp_path: Path) -> AsyncIterator[Store]:
    store = await open_store_in(tmp_path)
    yield store
    await store.close()
