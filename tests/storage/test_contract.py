"""storage/contract.py: commits, reads, scans and compaction of every store. Watches: `test_contract_watch.py`."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from fairlead.storage.contract import (
    FIRST_REVISION,
    Compacted,
    Page,
    Precondition,
    Record,
    RevisionConflict,
    Store,
    StoreUnavailable,
    Write,
)
from tests.storage.contract_writes import A, B, C, delete, keys_of, put


async def test_an_empty_store_is_at_the_first_revision(store: Store) -> None:
    assert await store.revision() == FIRST_REVISION
    assert await store.oldest() == FIRST_REVISION
    assert await store.scan(()) == Page([], FIRST_REVISION, has_more=False)
    assert await store.scan((), at=FIRST_REVISION) == Page([], FIRST_REVISION, has_more=False)


async def test_revisions_before_the_first_are_compacted(store: Store) -> None:
    with pytest.raises(Compacted) as caught:
        await store.scan((), at=1)
    assert (caught.value.requested, caught.value.oldest) == (1, FIRST_REVISION)


async def test_a_commit_is_read_back_with_its_revision(store: Store) -> None:
    revision = await store.commit([Write(A, b"\x00\xffany bytes", 0)])
    assert revision > FIRST_REVISION
    assert await store.read(A) == Record(A, b"\x00\xffany bytes", revision)
    assert await store.revision() == revision


async def test_an_empty_value_is_a_value(store: Store) -> None:
    revision = await store.commit([Write(A, b"", 0)])
    assert await store.read(A) == Record(A, b"", revision)


async def test_a_missing_key_reads_as_none(store: Store) -> None:
    assert await store.read(A) is None


async def test_every_commit_gets_a_greater_revision(store: Store) -> None:
    first = await put(store, A)
    second = await put(store, B)
    third = await put(store, A)
    assert FIRST_REVISION < first < second < third


async def test_creating_an_existing_key_is_a_conflict(store: Store) -> None:
    actual = await put(store, A, b"old")
    with pytest.raises(RevisionConflict) as caught:
        await store.commit([Write(A, b"new", 0)])
    assert (caught.value.key, caught.value.expected, caught.value.actual) == (A, 0, actual)
    assert await store.read(A) == Record(A, b"old", actual)
    assert await store.revision() == actual


async def test_updating_with_a_stale_revision_is_a_conflict(store: Store) -> None:
    stale = await put(store, A)
    actual = await put(store, A)
    with pytest.raises(RevisionConflict) as caught:
        await store.commit([Write(A, b"new", stale)])
    assert (caught.value.expected, caught.value.actual) == (stale, actual)


async def test_updating_or_deleting_a_missing_key_is_a_conflict(store: Store) -> None:
    for value in (b"new", None):
        with pytest.raises(RevisionConflict) as caught:
            await store.commit([Write(A, value, 1234)])
        assert (caught.value.expected, caught.value.actual) == (1234, 0)


async def test_deleting_with_a_stale_revision_is_a_conflict(store: Store) -> None:
    stale = await put(store, A)
    await put(store, A, b"kept")
    with pytest.raises(RevisionConflict):
        await store.commit([Write(A, None, stale)])
    record = await store.read(A)
    assert record is not None
    assert record.value == b"kept"


async def test_a_deleted_key_is_absent_and_can_be_created_again(store: Store) -> None:
    created = await put(store, A)
    deleted = await delete(store, A)
    assert await store.read(A) is None
    with pytest.raises(RevisionConflict):
        await store.commit([Write(A, b"x", deleted)])
    with pytest.raises(RevisionConflict):
        await store.commit([Write(A, b"x", created)])
    again = await store.commit([Write(A, b"again", 0)])
    assert await store.read(A) == Record(A, b"again", again)


async def test_a_precondition_that_matches_allows_the_commit(store: Store) -> None:
    revision_of_a = await put(store, A)
    revision = await store.commit([Write(B, b"x", 0)], [Precondition(A, revision_of_a), Precondition(C, 0)])
    assert await store.read(B) == Record(B, b"x", revision)
    record = await store.read(A)
    assert record is not None
    assert record.revision == revision_of_a, "a precondition does not write"


@pytest.mark.parametrize("expected", [0, 1, 999_999])
async def test_a_precondition_that_does_not_match_rejects_the_whole_commit(store: Store, expected: int) -> None:
    revision_of_a = await put(store, A)
    with pytest.raises(RevisionConflict) as caught:
        await store.commit([Write(B, b"x", 0)], [Precondition(A, expected)])
    assert (caught.value.key, caught.value.expected, caught.value.actual) == (A, expected, revision_of_a)
    assert await store.read(B) is None


async def test_a_conflicting_write_is_reported_before_a_precondition(store: Store) -> None:
    await put(store, A)
    await put(store, B)
    with pytest.raises(RevisionConflict) as caught:
        await store.commit([Write(C, b"x", 0), Write(B, b"x", 0)], [Precondition(A, 0)])
    assert caught.value.key == B


async def test_all_writes_of_a_commit_have_the_same_revision(store: Store) -> None:
    old = await put(store, A)
    revision = await store.commit([Write(B, b"b", 0), Write(A, None, old), Write(C, b"c", 0)])
    page = await store.scan(())
    assert list(page.records) == [Record(B, b"b", revision), Record(C, b"c", revision)]
    assert page.revision == revision


async def test_a_conflict_in_one_key_rejects_the_whole_commit(store: Store) -> None:
    revision = await put(store, C)
    with pytest.raises(RevisionConflict):
        await store.commit([Write(A, b"x", 0), Write(B, b"x", 0), Write(C, b"x", 0)])
    assert keys_of(await store.scan(())) == [C]
    assert await store.revision() == revision


@pytest.mark.parametrize(
    ("changes", "checks"),
    [
        ([], []),
        ([], [Precondition(A, 0)]),
        ([Write(A, b"x", 0), Write(A, b"y", 0)], []),
        ([Write(A, b"x", 0)], [Precondition(A, 0)]),
        ([Write(A, b"x", 0)], [Precondition(B, 0), Precondition(B, 0)]),
        ([Write(A, None, 0)], []),
        ([Write(("lone surrogate", "\ud800"), b"x", 0)], []),
    ],
)
async def test_a_malformed_commit_is_a_programming_error(
    store: Store, changes: list[Write], checks: list[Precondition]
) -> None:
    with pytest.raises(ValueError):
        await store.commit(changes, checks)
    assert await store.revision() == FIRST_REVISION


async def test_only_one_of_many_concurrent_writers_wins(store: Store) -> None:
    start = await put(store, A)
    results = await asyncio.gather(
        *[store.commit([Write(A, str(number).encode(), start)]) for number in range(50)], return_exceptions=True
    )
    won = [result for result in results if isinstance(result, int)]
    assert len(won) == 1
    assert sum(isinstance(result, RevisionConflict) for result in results) == 49
    assert await store.read(A) == Record(A, str(results.index(won[0])).encode(), won[0])


async def test_concurrent_commits_get_distinct_revisions(store: Store) -> None:
    """The store may choose the order: a caller that needs one waits for each commit."""
    revisions = await asyncio.gather(*[store.commit([Write(("k", str(n)), b"x", 0)]) for n in range(200)])
    assert len(set(revisions)) == len(revisions)
    assert await store.revision() == max(revisions)


async def test_a_cancelled_commit_does_not_affect_others(store: Store) -> None:
    tasks = [asyncio.create_task(store.commit([Write(("k", str(n)), b"x", 0)])) for n in range(20)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(result, int) for result in results[1::2])
    assert await store.commit([Write(("last",), b"x", 0)]) == await store.revision()


async def test_scans_are_sorted_by_the_parts_of_keys(store: Store) -> None:
    unordered = [("b",), ("a", "b"), ("a",), ("a\x00",), ("a", ""), ("a!",), ("ab",), ("é",), ("", "z"), ("a", "\x00")]
    for key in unordered:
        await put(store, key)
    assert keys_of(await store.scan(())) == sorted(unordered)


async def test_a_prefix_matches_whole_parts_of_keys_only(store: Store) -> None:
    inside = [("a",), ("a", ""), ("a", "\x00"), ("a", "b"), ("a", "b", "c"), ("a", "\U0010ffff")]
    outside = [(), ("",), ("ab",), ("a\x00",), ("a\x00", "b"), ("a\x00b",), ("A",), ("b", "a")]
    for key in inside + outside:
        await put(store, key)
    assert keys_of(await store.scan(("a",))) == sorted(inside)
    assert keys_of(await store.scan(("a", "b"))) == [("a", "b"), ("a", "b", "c")]
    assert keys_of(await store.scan(("a\x00",))) == [("a\x00",), ("a\x00", "b")]
    assert keys_of(await store.scan(("",))) == [("",)]


async def test_a_scan_continues_after_a_key_whether_it_exists_or_not(store: Store) -> None:
    for name in "abde":
        await put(store, ("p", name))
    assert keys_of(await store.scan(("p",), after=("p", "b"))) == [("p", "d"), ("p", "e")]
    assert keys_of(await store.scan(("p",), after=("p", "c"))) == [("p", "d"), ("p", "e")]
    assert keys_of(await store.scan(("p",), after=("a",)))[0] == ("p", "a")
    assert keys_of(await store.scan(("p",), after=("z",))) == []


async def test_a_limit_truncates_the_page_and_sets_has_more(store: Store) -> None:
    for name in "abcd":
        await put(store, ("p", name))
    await put(store, ("q", "not of the prefix"))
    page = await store.scan(("p",), limit=3)
    assert (len(page.records), page.has_more) == (3, True)
    page = await store.scan(("p",), after=("p", "c"), limit=3)
    assert (keys_of(page), page.has_more) == ([("p", "d")], False)
    assert not (await store.scan(("p",), limit=4)).has_more
    assert not (await store.scan(("p",))).has_more


async def test_deleted_records_do_not_count_toward_the_limit(store: Store) -> None:
    for name in "abc":
        await put(store, ("p", name))
    await delete(store, ("p", "b"))
    page = await store.scan(("p",), limit=2)
    assert (keys_of(page), page.has_more) == ([("p", "a"), ("p", "c")], False)


async def test_a_scan_at_an_old_revision_shows_the_old_state(store: Store) -> None:
    first = await put(store, A, b"1")
    second = await put(store, B, b"2")
    third = await put(store, A, b"3")
    fourth = await delete(store, B)
    assert list((await store.scan((), at=FIRST_REVISION)).records) == []
    assert list((await store.scan((), at=first)).records) == [Record(A, b"1", first)]
    assert list((await store.scan((), at=second)).records) == [Record(A, b"1", first), Record(B, b"2", second)]
    assert list((await store.scan((), at=third)).records) == [Record(A, b"3", third), Record(B, b"2", second)]
    assert list((await store.scan((), at=fourth)).records) == [Record(A, b"3", third)]
    assert (await store.scan((), at=second)).revision == second


async def test_a_scan_at_a_future_revision_returns_the_current_revision(store: Store) -> None:
    revision = await put(store, A)
    page = await store.scan((), at=revision + 1_000)
    assert (keys_of(page), page.revision) == ([A], revision)


async def test_pages_are_one_snapshot_despite_concurrent_writes(store: Store) -> None:
    before = [("p", f"{number:03}") for number in range(0, 100, 2)]
    for key in before:
        await put(store, key, b"before")

    async def disturb() -> None:
        for number in range(100):
            key = ("p", f"{number:03}")
            if number % 4 == 0:
                await delete(store, key)
            else:
                await put(store, key, b"after")

    page = await store.scan(("p",), limit=7)
    writer = asyncio.create_task(disturb())
    records = list(page.records)
    while page.has_more:
        await asyncio.sleep(0)
        page = await store.scan(("p",), after=records[-1].key, limit=7, at=page.revision)
        records += page.records
    await writer
    assert [record.key for record in records] == before
    assert {record.value for record in records} == {b"before"}


async def test_compaction_removes_older_states_and_keeps_the_given_one(store: Store) -> None:
    first = await put(store, A, b"1")
    await put(store, B, b"gone later")
    await delete(store, B)
    second = await put(store, A, b"2")
    third = await put(store, A, b"3")
    await store.compact(second)
    assert await store.oldest() == second
    with pytest.raises(Compacted) as caught:
        await store.scan((), at=second - 1)
    assert (caught.value.requested, caught.value.oldest) == (second - 1, second)
    assert first < second - 1
    assert list((await store.scan((), at=second)).records) == [Record(A, b"2", second)]
    assert list((await store.scan((), at=third)).records) == [Record(A, b"3", third)]
    assert await store.read(A) == Record(A, b"3", third)


async def test_compaction_keeps_old_records_that_are_still_current(store: Store) -> None:
    old = await put(store, B, b"old")
    for _ in range(20):
        newest = await put(store, A)
    await store.compact(newest)
    assert await store.read(B) == Record(B, b"old", old)
    assert await store.commit([Write(B, b"new", old)]) > newest


async def test_a_compacted_deletion_stays_deleted(store: Store) -> None:
    await put(store, A)
    deleted = await delete(store, A)
    await store.compact(deleted)
    assert await store.read(A) is None
    assert keys_of(await store.scan((), at=deleted)) == []
    assert await store.revision() == deleted
    assert await store.commit([Write(A, b"again", 0)]) > deleted


async def test_compaction_never_moves_backwards_or_beyond_the_current_revision(store: Store) -> None:
    for _ in range(5):
        newest = await put(store, A)
    await store.compact(newest - 1)
    await store.compact(newest - 3)
    assert await store.oldest() == newest - 1
    await store.compact(newest + 1_000_000)
    assert await store.oldest() == newest
    assert await put(store, A) == newest + 1


async def test_scans_see_every_record_during_concurrent_compaction(store: Store) -> None:
    expected = [("k", f"{number:02}") for number in range(20)]
    for key in expected:
        await put(store, key)

    async def rewrite() -> None:
        for round in range(15):
            await asyncio.gather(*[put(store, key, b"%d" % round) for key in expected])
            await store.compact(await store.revision())

    writer = asyncio.create_task(rewrite())
    while not writer.done():
        assert keys_of(await store.scan(())) == expected
        assert await store.read(expected[7]) is not None
    await writer


async def test_check_writable_passes_on_a_working_store(store: Store) -> None:
    await store.check_writable()


async def test_a_closed_store_finishes_pending_commits_and_rejects_new_ones(
    open_store_in: Callable[[Path], Awaitable[Store]], tmp_path: Path
) -> None:
    store = await open_store_in(tmp_path)
    pending = [asyncio.create_task(store.commit([Write(("k", str(n)), b"x", 0)])) for n in range(50)]
    await asyncio.sleep(0)
    await asyncio.gather(store.close(), store.close())
    assert len(set(await asyncio.gather(*pending))) == 50
    commit = store.commit([Write(A, b"x", 0)])
    for operation in (
        store.read(A),
        store.scan(()),
        commit,
        store.compact(1),
        store.purge_deleted(),
        store.check_writable(),
    ):
        with pytest.raises(StoreUnavailable):
            await operation
    await store.close()
