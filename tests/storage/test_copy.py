"""Filling a store: all or visibly unfinished, far above the old revisions, and never over what is there unasked."""

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
from tests.harness.durable_stores import DURABLE

SORTS = pytest.mark.parametrize("sort", DURABLE)
SOME: dict[Key, bytes] = {("g", "things", "", f"{number:04}"): b"%d" % number for number in range(950)}


async def given(records: dict[Key, bytes], then: Exception | None = None) -> AsyncGenerator[tuple[Key, bytes]]:
    for key, value in records.items():
        yield key, value
    if then is not None:
        raise then


async def contents(store: Store) -> dict[Key, bytes]:
    return {record.key: record.value for record in (await store.scan(())).records}


class Counting(MemoryStore):
    """Keeps the sizes of the commits that it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.commits: list[Sequence[Write]] = []

    async def commit(self, changes: Sequence[Write], checks: Sequence[Precondition] = ()) -> int:
        self.commits.append(changes)
        return await super().commit(changes, checks)


@SORTS
async def test_a_filled_store_holds_everything_above_all_old_revisions_and_no_history(
    sort: str, tmp_path: Path
) -> None:
    url = await DURABLE[sort](tmp_path / "store")
    first = first_revision_after(5_000)
    store = await open_for_restore(url, first)
    filled = await restore_records(store, given(SOME))
    await store.close()
    store = await open_store(url)
    page = await store.scan(())
    assert {record.key: record.value for record in page.records} == SOME
    assert all(record.revision > 5_000 + REVISION_GAP for record in page.records)
    assert (filled.count, filled.revision) == (950, page.revision)
    assert await store.oldest() == filled.revision
    for old in (5_000, first, filled.revision - 1):
        with pytest.raises(Compacted):
            await anext(aiter(store.watch((), old)))
    assert await store.commit([Write(("new",), b"x", 0)]) > filled.revision
    await store.close()


@SORTS
async def test_a_store_that_stands_lower_is_raised_and_goes_on_from_there(sort: str, tmp_path: Path) -> None:
    url = await DURABLE[sort](tmp_path / "store")
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
    found = await store.read(("a",))
    assert found is not None
    newest = await store.commit([Write(("a",), b"5", found.revision)])
    assert 9_000 < newest < 9_100
    await store.compact(newest)
    assert await contents(store) == {("a",): b"5"}
    await store.close()


@SORTS
async def test_a_store_that_holds_something_is_left_as_it_is_unless_asked(sort: str, tmp_path: Path) -> None:
    url = await DURABLE[sort](tmp_path / "store")
    store = await open_store(url)
    there: dict[Key, bytes] = {("g", "things", "", "0001"): b"old", ("z",): b"older"}
    revision = await store.commit([Write(key, value, 0) for key, value in there.items()])
    with pytest.raises(StoreNotEmpty, match=f"at revision {revision}"):
        await restore_records(store, given(SOME))
    assert (await contents(store), await store.revision()) == (there, revision)
    await restore_records(store, given(SOME), replace=True)
    assert await contents(store) == SOME
    await store.close()


@SORTS
async def test_what_was_not_finished_is_no_store_until_it_is(sort: str, tmp_path: Path) -> None:
    url = await DURABLE[sort](tmp_path / "store")
    store = await open_for_restore(url)
    with pytest.raises(RuntimeError):
        await restore_records(store, given(SOME, RuntimeError()))
    await store.close()
    with pytest.raises(StoreUnavailable, match="the store is incomplete"):
        await open_store(url)
    store = await open_for_restore(url)
    with pytest.raises(StoreNotEmpty, match="did not finish"):
        await check_empty(store)
    with pytest.raises(StoreNotEmpty, match="did not finish"):
        await restore_records(store, given(SOME))
    await restore_records(store, given(SOME), replace=True)
    await store.close()
    store = await open_store(url)
    assert await contents(store) == SOME
    await store.close()


@pytest.mark.parametrize("failure", [RuntimeError(), None])
async def test_a_store_is_left_as_it_is_where_nothing_comes(failure: Exception | None) -> None:
    store = MemoryStore()
    await store.commit([Write(("z",), b"there", 0)])
    with pytest.raises(StoreUnavailable if failure is None else RuntimeError):
        await restore_records(store, given({}, failure), replace=True)
    assert await contents(store) == {("z",): b"there"}


async def test_a_store_that_holds_only_a_part_stays_marked_where_nothing_comes() -> None:
    store = MemoryStore()
    for records in (SOME, {}):
        with pytest.raises(RuntimeError):
            await restore_records(store, given(records, RuntimeError()), replace=True)
        assert await store.read(UNFINISHED_KEY) is not None


async def test_commits_are_no_larger_than_every_store_takes() -> None:
    store = Counting()
    large: dict[Key, bytes] = {("z", str(number)): bytes(MAX_BATCH_BYTES // 2) for number in range(5)}
    await restore_records(store, given(SOME | large | {("zz",): bytes(2 * MAX_BATCH_BYTES)}))
    filling = [commit for commit in store.commits if commit[0].key != UNFINISHED_KEY]
    assert max(len(commit) for commit in filling) == MAX_BATCH_RECORDS
    weights = [sum(len(change.value or b"") for change in commit) for commit in filling]
    assert sorted(weights)[-2:] == [MAX_BATCH_BYTES, 2 * MAX_BATCH_BYTES]


async def test_somebody_else_who_writes_meanwhile_is_noticed() -> None:
    store = MemoryStore()

    async def disturbed(key: Key) -> AsyncGenerator[tuple[Key, bytes]]:
        for pair in SOME.items():
            yield pair
        await store.commit([Write(key, b"theirs", 0)])
        yield ("z", "b"), b"ours"

    for key in (("z", "b"), ("z", "c")):
        with pytest.raises(StoreUnavailable, match="stop all servers"):
            await restore_records(store, disturbed(key), replace=True)
    assert await store.read(UNFINISHED_KEY) is not None


async def test_a_source_that_is_written_to_meanwhile_is_refused() -> None:
    source = MemoryStore()
    await source.commit([Write(("a",), b"1", 0), Write(("b",), b"2", 0)])
    records = frozen_records(source, await take_snapshot(source))
    assert (await anext(records)).key == ("a",)
    await source.commit([Write(("c",), b"3", 0)])
    assert (await anext(records)).key == ("b",)
    with pytest.raises(StoreUnavailable, match="modified in the meantime"):
        await anext(records)


async def test_a_source_whose_history_is_forgotten_meanwhile_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead.storage.copy.PAGE_SIZE", 1)
    source = MemoryStore()
    await source.commit([Write(("a",), b"1", 0), Write(("b",), b"2", 0)])
    records = (await take_snapshot(source)).records
    assert (await anext(records)).key == ("a",)
    await source.compact(await source.commit([Write(("c",), b"3", 0)]))
    with pytest.raises(StoreUnavailable, match="history_seconds"):
        await anext(records)


async def test_two_who_fill_a_store_at_once_do_not_mix(tmp_path: Path) -> None:
    store = await open_for_restore(f"sqlite:{tmp_path}/store.db")
    other = dict.fromkeys(SOME, b"other")
    results = await asyncio.gather(
        restore_records(store, given(SOME)), restore_records(store, given(other)), return_exceptions=True
    )
    assert sorted(isinstance(result, (StoreUnavailable, StoreNotEmpty)) for result in results) == [False, True]
    assert await contents(store) in (SOME, other)
    await store.close()
