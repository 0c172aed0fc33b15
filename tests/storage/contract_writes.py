"""Keys and writes for tests of the storage contract."""

from fairlead.storage.contract import (
    Key,
    Page,
    Store,
    Write,
)

A, B, C = ("things", "a"), ("things", "b"), ("things", "c")


async def put(store: Store, key: Key, value: bytes = b"x") -> int:
    """Writes a key regardless of its current value."""
    record = await store.read(key)
    return await store.commit([Write(key, value, record.revision if record else 0)])


async def delete(store: Store, key: Key) -> int:
    record = await store.read(key)
    assert record is not None
    return await store.commit([Write(key, None, record.revision)])


def keys_of(page: Page) -> list[Key]:
    return [record.key for record in page.records]
