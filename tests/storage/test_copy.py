"""storage/copy.py: restores are complete or marked unfinished, use higher revisions, and replace nothing unasked."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import pytest

from fairlead.storage.contract import FIRST_REVISION, Compacted, Key, Precondition, Store, StoreUnavailable, Write
from fairlead.storage.copy import (
    MAX_BATCH_BYTES,
    MAX_BATCH_RECORDS,
    REVISION_GAP,
    UNFINISHED_KEY,
    StoreNotEmpty,
    check_empty,
    first_revision_after,
    frozen_records,
    restore_records,
    take_snapshot,
)
from fairlead.storage.memory import MemoryStore
from fairlead.storage.open import open_for_restore, open_store
from tests.harness.durable_stores import ADDRESSES

EACH_BACKEND = pytest.mark.parametrize("backend", ADDRESSES)
RECORDS: dict[Key, bytes] = {("g", "things", "", f"{number:04}"): b"%d" % number for number in range(950)}


async def iter_records(records: dict[Key, bytes], error: Exception | None = None) -> AsyncGenerator[tuple[Key, bytes]]:
    for key, value in records.items():
        yield key, value
    if error is not None:
        raise error


async def contents(store: Store) -> dict[Key, bytes]:
    return {record.key: record.value for record in (await store.scan(())).records}


class RecordingStore(MemoryStore):
    """Records its commits."""

    def __init__(self) -> None:
        super().__init__()
        self.commits: list[Sequence[Write]] = []

    async def commit(self, changes: Sequence[Write], checks: Sequence[Precondition] = ()) -> int:
        self.commits.append(changes)
        return await super().commit(changes, checks)


@EACH_BACKEND
async def test_a_restored_store_has_all_records_at_higher_revisions_and_no_history(
    backend: str, tmp_path: Path
) -> None:
    url = await ADDRESSES[backend](tmp_path / "store")
    first = first_revision_after(5_000)
    store = await open_for_restore(url, first)
    summary = await restore_records(store, iter_records(RECORDS))
    await store.close()
    store = await open_store(url)
    page = await store.scan(())
    assert {record.key: record.value for record in page.records} == RECORDS
    assert all(record.revision > 5_000 + REVISION_GAP for record in page.records)
    assert (summary.count, summary.revision) == (950, page.revision)
    assert await store.oldest() == summary.revision
    for old in (5_000, first, summary.revision - 1):
        with pytest.raises(Compacted):
            await anext(aiter(store.watch((), old)))
    assert await store.commit([Write(("new",), b"x", 0)]) > summary.revision
    await store.close()


@EACH_BACKEND
async def test_the_revision_of_an_existing_store_is_raised(backend: str, tmp_path: Path) -> None:
    url = await ADDRESSES[backend](tmp_path / "store")
    store = await open_store(url)
    revision = 0
    for number in range(5):
        revision = await store.commit([Write(("a",), b"%d" % number, revision)])
    await store.close()
    for first in (9_000, 7_000, FIRST_REVISION):
        store = await open_for_restore(url, first)
        assert await store.revision() == 9_000
        assert await contents(store) == {("a",): b"4"}
        with pytest.raises(Compacted):
            await anext(aiter(store.watch((), revision)))
        await store.close()
    store = await open_store(url)
    record = await store.read(("a",))
    assert record is not None
    newest = await store.commit([Write(("a",), b"5", record.revision)])
    assert 9_000 < newest < 9_100
    await store.compact(newest)
    assert await contents(store) == {("a",): b"5"}
    await store.close()


@EACH_BACKEND
async def test_a_store_with_records_is_not_replaced_unless_requested(backend: str, tmp_path: Path) -> None:
    url = await ADDRESSES[backend](tmp_path / "store")
    store = await open_store(url)
    existing: dict[Key, bytes] = {("g", "things", "", "0001"): b"old", ("z",): b"older"}
    revision = await store.commit([Write(key, value, 0) for key, value in existing.items()])
    with pytest.raises(StoreNotEmpty, match=f"at revision {revision}"):
        await restore_records(store, iter_records(RECORDS))
    assert (await contents(store), await store.revision()) == (existing, revision)
    await restore_records(store, iter_records(RECORDS), replace=True)
    assert await contents(store) == RECORDS
    await store.close()


@EACH_BACKEND
async def test_an_unfinished_restore_cannot_be_opened_until_it_is_repeated(backend: str, tmp_path: Path) -> None:
    url = await ADDRESSES[backend](tmp_path / "store")
    store = await open_for_restore(url)
    with pytest.raises(RuntimeError):
        await restore_records(store, iter_records(RECORDS, RuntimeError()))
    await store.close()
    with pytest.raises(StoreUnavailable, match="the store is incomplete"):
        await open_store(url)
    store = await open_for_restore(url)
    with pytest.raises(StoreNotEmpty, match="did not finish"):
        await check_empty(store)
    with pytest.raises(StoreNotEmpty, match="did not finish"):
        await restore_records(store, iter_records(RECORDS))
    await restore_records(store, iter_records(RECORDS), replace=True)
    await store.close()
    store = await open_store(url)
    assert await contents(store) == RECORDS
    await store.close()


@pytest.mark.parametrize("failure", [RuntimeError(), None])
async def test_a_store_is_not_changed_by_an_empty_or_failing_source(failure: Exception | None) -> None:
    store = MemoryStore()
    await store.commit([Write(("z",), b"there", 0)])
    with pytest.raises(StoreUnavailable if failure is None else RuntimeError):
        await restore_records(store, iter_records({}, failure), replace=True)
    assert await contents(store) == {("z",): b"there"}


async def test_an_incomplete_store_stays_marked_when_the_source_fails() -> None:
    store = MemoryStore()
    for records in (RECORDS, {}):
        with pytest.raises(RuntimeError):
            await restore_records(store, iter_records(records, RuntimeError()), replace=True)
        assert await store.read(UNFINISHED_KEY) is not None


async def test_batches_fit_the_limits_of_every_store() -> None:
    store = RecordingStore()
    large: dict[Key, bytes] = {("z", str(number)): bytes(MAX_BATCH_BYTES // 2) for number in range(5)}
    await restore_records(store, iter_records(RECORDS | large | {("zz",): bytes(2 * MAX_BATCH_BYTES)}))
    batches = [commit for commit in store.commits if commit[0].key != UNFINISHED_KEY]
    assert max(len(commit) for commit in batches) == MAX_BATCH_RECORDS
    sizes = [sum(len(change.value or b"") for change in commit) for commit in batches]
    assert sorted(sizes)[-2:] == [MAX_BATCH_BYTES, 2 * MAX_BATCH_BYTES]


async def test_concurrent_writes_to_the_target_are_detected() -> None:
    store = MemoryStore()

    async def write_concurrently(key: Key) -> AsyncGenerator[tuple[Key, bytes]]:
        for pair in RECORDS.items():
            yield pair
        await store.commit([Write(key, b"other", 0)])
        yield ("z", "b"), b"own"

    for key in (("z", "b"), ("z", "c")):
        with pytest.raises(StoreUnavailable, match="stop all servers"):
            await restore_records(store, write_concurrently(key), replace=True)
    assert await store.read(UNFINISHED_KEY) is not None


async def test_concurrent_writes_to_the_source_are_detected() -> None:
    source = MemoryStore()
    await source.commit([Write(("a",), b"1", 0), Write(("b",), b"2", 0)])
    records = frozen_records(source, await take_snapshot(source))
    assert (await anext(records)).key == ("a",)
    await source.commit([Write(("c",), b"3", 0)])
    assert (await anext(records)).key == ("b",)
    with pytest.raises(StoreUnavailable, match="modified in the meantime"):
        await anext(records)


async def test_a_compaction_of_the_source_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead.storage.copy.PAGE_SIZE", 1)
    source = MemoryStore()
    await source.commit([Write(("a",), b"1", 0), Write(("b",), b"2", 0)])
    records = (await take_snapshot(source)).records
    assert (await anext(records)).key == ("a",)
    await source.compact(await source.commit([Write(("c",), b"3", 0)]))
    with pytest.raises(StoreUnavailable, match="history_seconds"):
        await anext(records)


async def test_two_concurrent_restores_do_not_mix(tmp_path: Path) -> None:
    store = await open_for_restore(f"sqlite:{tmp_path}/store.db")
    other = dict.fromkeys(RECORDS, b"other")
    results = await asyncio.gather(
        restore_records(store, iter_records(RECORDS)),
        restore_records(store, iter_records(other)),
        return_exceptions=True,
    )
    # One can replace the other's marker just in time for both to fail. Then the store says so: no server starts on it.
    failed = [isinstance(result, (StoreUnavailable, StoreNotEmpty)) for result in results]
    if all(failed):
        assert await store.read(UNFINISHED_KEY) is not None
    else:
        assert sorted(failed) == [False, True]
        assert await contents(store) == (RECORDS if failed[1] else other)
    await store.close()
