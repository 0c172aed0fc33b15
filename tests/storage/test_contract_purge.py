"""storage/contract.py: purge_deleted() erases compacted data from the disk and changes nothing else, in every store."""

import asyncio

from fairlead.storage.contract import Record, Store, Write
from tests.storage.contract_writes import A, B, delete, keys_of, put


async def test_purging_changes_nothing_visible(store: Store) -> None:
    first = await put(store, A, b"1")
    await put(store, A, b"2")
    await put(store, B, b"gone")
    deleted = await delete(store, B)
    await store.compact(first)
    await store.purge_deleted()
    assert await store.oldest() == first
    assert await store.revision() == deleted
    assert list((await store.scan((), at=first)).records) == [Record(A, b"1", first)]
    assert keys_of(await store.scan(())) == [A]
    assert await put(store, B) == deleted + 1


async def test_commits_succeed_during_a_purge(store: Store) -> None:
    writes = [store.commit([Write(("k", str(n)), b"x", 0)]) for n in range(20)]
    await asyncio.gather(store.purge_deleted(), *writes)
    assert len(keys_of(await store.scan(()))) == 20
