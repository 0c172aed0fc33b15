"""The stores that have to keep the contract. A new one is a line in STORES, and every question is asked of it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from fairlead.core.crypto.encryption import EncryptionKey, Keyring
from fairlead.storage.contract import Store
from fairlead.storage.encrypted import EncryptedStore
from fairlead.storage.open import open_store
from tests.harness.etcd_server import open_etcd
from tests.harness.postgres_server import open_postgres


async def open_sealed(folder: Path) -> Store:
    """Over a store in memory; about half of the values are taken for credentials."""
    keyring = Keyring([EncryptionKey("tests", bytes(32))], "the tests")
    return EncryptedStore(await open_store("memory:"), keyring, lambda key, value: sum(value) % 2 == 0)


STORES: dict[str, Callable[[Path], Awaitable[Store]]] = {
    "memory": lambda folder: open_store("memory:"),
    "sqlite": lambda folder: open_store(f"sqlite:{folder}/store.db"),
    "sealed": open_sealed,
    "postgres": open_postgres,
    "etcd": open_etcd,
}


@pytest.fixture(params=STORES)
def open_one(request: pytest.FixtureRequest) -> Callable[[Path], Awaitable[Store]]:
    """Opens a store of each sort in the folder that it is given."""
    return STORES[request.param]


@pytest.fixture
async def store(open_one: Callable[[Path], Awaitable[Store]], tmp_path: Path) -> AsyncIterator[Store]:
    opened = await open_one(tmp_path)
    yield opened
    await opened.close()
