"""Scrubbing: what was forgotten is gone from the disk, too, and nothing else changes. Asked of every store."""

import asyncio

from fairlead.storage.contract import Record, Store, Write
from tests.storage.test_contract import A, B, drop, keys, put


async def test_scrubbing_changes_nothing_that_can_be_seen(store: Store) -> None:
    first = await put(store, A, b"1")
    await put(store, A, b"2")
    await put(store, B, b"gone")
    deleted = await drop(store, B)
    await store.compact(first)
    await store.purge_deleted()
    assert await store.oldest() == first
    assert await store.revision() == deleted
    assert list((await store.scan((), at=first)).records) == [Record(A, b"1", first)]
    assert keys(await store.scan(())) == [A]
    assert await put(store, B) == deleted + 1


async def test_commits_asked_for_while_the_disk_is_scrubbed_happen(store: Store) -> None:
    writes = [store.commit([Write(("k", str(n)), b"x", 0)]) for n in range(20)]
    await asyncio.gather(store.purge_deleted(), *writes)
    assert len(keys(await store.scan(()))) == 20
