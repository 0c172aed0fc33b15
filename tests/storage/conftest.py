"""The stores that have to keep the contract. A new one is a line in STORES, and every question is asked of it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from fairlead.storage.contract import Store
from fairlead.storage.open import open_store

STORES: dict[str, Callable[[Path], Awaitable[Store]]] = {
    "memory": lambda folder: open_store("memory:"),
    "sqlite": lambda folder: open_store(f"sqlite:{folder}/store.db"),
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
