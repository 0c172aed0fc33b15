"""storage/socket: what a worker sees of its own commits, of those of other workers, and of an owner that ends.

`test_contract.py` tests the contract itself.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fairlead.storage.commit import PreparedCommit
from fairlead.storage.contract import (
    FIRST_REVISION,
    Compacted,
    Event,
    Precondition,
    Record,
    RevisionConflict,
    Store,
    StoreUnavailable,
    Write,
)
from fairlead.storage.memory import MemoryStore
from fairlead.storage.socket import SocketStore, client, serve_store, server
from fairlead.storage.socket.frames import SCAN
from fairlead.storage.wrapper import StoreWrapper
from tests.harness.socket_store import build_shared_revision
from tests.storage.socket.owners import MIB, A, B, C, Owner, rewrite, run_owner, serve


@pytest.fixture
async def owner(tmp_path: Path) -> AsyncIterator[Owner]:
    async with run_owner(tmp_path) as owner:
        yield owner


async def test_workers_see_each_others_commits(owner: Owner) -> None:
    one, two = await owner.connect(), await owner.connect()
    revision = await one.commit([Write(A, b"1", 0)])
    assert two.local_revision() == revision
    assert await two.revision() == revision
    assert await two.read(A) == Record(A, b"1", revision)
    watch = two.watch((), FIRST_REVISION)
    assert list(await anext(watch)) == [Event(A, b"1", revision)]
    with pytest.raises(RevisionConflict) as caught:
        await two.commit([Write(B, b"2", 0)], [Precondition(A, 1)])
    assert (caught.value.key, caught.value.expected, caught.value.actual) == (A, 1, revision)
    later = await two.commit([Write(A, b"2", revision)])
    assert one.local_revision() == later
    assert list(await anext(watch)) == [Event(A, b"2", later)]


async def test_the_newest_revision_is_shared_before_a_commit_returns(owner: Owner) -> None:
    """A read that begins after another worker's commit has returned must know that it has to wait for it."""
    one, two = await owner.connect(), await owner.connect()

    async def write(number: int) -> None:
        revision = 0
        for _ in range(30):
            revision = await one.commit([Write(("k", str(number)), b"x", revision)])
            known = two.local_revision()
            assert known is not None
            assert known >= revision

    await asyncio.gather(*[write(number) for number in range(20)])


async def test_a_worker_has_the_commits_before_every_response(owner: Owner) -> None:
    """Also before a conflict, so that a retry starts from the state that has caused it."""
    one, two = await owner.connect(), await owner.connect()
    seen = 0

    async def follow() -> None:
        nonlocal seen
        async for batch in two.watch((), FIRST_REVISION):
            seen = batch[-1].revision

    follower = asyncio.create_task(follow())
    await asyncio.sleep(0.01)
    revision = 0
    for number in range(30):
        revision = await one.commit([Write(A, b"%d" % number, revision)])
        with pytest.raises(RevisionConflict):
            await two.commit([Write(A, b"x", 0)])
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert seen == revision
    follower.cancel()


async def test_values_of_many_megabytes_pass(owner: Owner) -> None:
    one, two = await owner.connect(), await owner.connect()
    large = os.urandom(12 * MIB)
    watch = two.watch((), FIRST_REVISION)
    live = asyncio.ensure_future(anext(watch))
    await asyncio.sleep(0.01)
    revision = await one.commit([Write(A, large, 0), Write(B, large[:MIB], 0)])
    assert await one.read(A) == Record(A, large, revision)
    expected = [Event(A, large, revision), Event(B, large[:MIB], revision)]
    assert list(await live) == expected
    assert list(await anext(one.watch((), FIRST_REVISION))) == expected
    assert [len(record.value) for record in (await two.scan(())).records] == [12 * MIB, MIB]


async def test_a_commit_that_fits_into_no_frame_is_a_programming_error(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = await owner.connect()
    monkeypatch.setattr(client, "MAX_COMMIT_BYTES", 1000)
    with pytest.raises(ValueError, match="at most 1,000 bytes; split it"):
        await worker.commit([Write(A, bytes(1000), 0)])
    assert await worker.commit([Write(A, bytes(900), 0)]) == FIRST_REVISION + 1


async def test_errors_of_the_owners_store_keep_their_type(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = await owner.connect()
    monkeypatch.setattr("fairlead.storage.sqlite.store.SEQUENCE_BITS", 2)
    with pytest.raises(ValueError, match="fewer than 4 writes; split it"):
        await worker.commit([Write(("k", str(number)), b"", 0) for number in range(4)])
    await owner.store.close()
    for operation in (worker.read(A), worker.scan(()), worker.compact(1), worker.check_writable(), worker.oldest()):
        try:
            assert await operation == FIRST_REVISION
        except StoreUnavailable as error:
            assert str(error) == "the store is closed"
    with pytest.raises(StoreUnavailable, match=r"^the store is closed$"):
        await worker.commit([Write(A, b"x", 0)])


async def test_expected_revisions_outside_of_the_range_of_revisions_are_conflicts(owner: Owner) -> None:
    worker = await owner.connect()
    for expected in (1 << 70, -(1 << 70)):
        with pytest.raises(RevisionConflict) as caught:
            await worker.commit([Write(A, b"x", expected)])
        assert (caught.value.expected, caught.value.actual) == (expected, 0)
        with pytest.raises(RevisionConflict) as caught:
            await worker.commit([Write(A, b"x", 0)], [Precondition(B, expected)])
        assert (caught.value.key, caught.value.expected) == (B, expected)
    assert (await worker.scan((), at=1 << 70, limit=1 << 70)).revision == FIRST_REVISION
    await worker.compact(1 << 70)
    with pytest.raises(Compacted):
        await worker.scan((), at=-(1 << 70))


async def test_a_scan_of_many_records_is_one_snapshot_in_pieces(owner: Owner) -> None:
    worker = await owner.connect()
    keys = [("k", f"{number:06}") for number in range(30_000)]
    for start in range(0, len(keys), 10_000):
        await owner.store.commit([Write(key, b"old", 0) for key in keys[start : start + 10_000]])
    page = asyncio.ensure_future(worker.scan(()))
    await asyncio.sleep(0.01)
    await worker.commit([Write((*keys[-1], "later"), b"new", 0)])
    records = (await page).records
    assert [record.key for record in records] == keys
    assert {record.value for record in records} == {b"old"}
    limited = await worker.scan((), limit=2_500, after=keys[10])
    assert ([record.key for record in limited.records], limited.has_more) == (keys[11:2_511], True)


async def test_a_scan_is_split_by_size_too(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = await owner.connect()
    keys = [("k", f"{number:02}") for number in range(20)]
    await worker.commit([Write(key, bytes(MIB), 0) for key in keys])
    responses: list[int] = []
    scan = server.EXECUTORS[SCAN]

    async def measure(store: Store, id: int, frame: bytes) -> bytes:
        response = await scan(store, id, frame)
        responses.append(len(response))
        return response

    monkeypatch.setitem(server.EXECUTORS, SCAN, measure)
    assert [record.key for record in (await worker.scan(())).records] == keys
    assert len(responses) == 5
    assert max(responses) < 5 * MIB
    page = await worker.scan((), limit=6)
    assert ([record.key for record in page.records], page.has_more) == (keys[:6], True)
    page = await worker.scan((), limit=20)
    assert (len(page.records), page.has_more) == (20, False)


async def test_a_scan_that_is_overtaken_by_compaction_starts_again(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "SCAN_RECORDS", 1)
    worker = await owner.connect()
    first = await worker.commit([Write(A, b"1", 0), Write(B, b"1", 0), Write(C, b"1", 0)])
    scan = server.EXECUTORS[SCAN]
    calls = 0

    async def interrupt(store: Store, id: int, frame: bytes) -> bytes:
        nonlocal calls
        calls += 1
        if calls == 2:
            await store.compact(await store.commit([Write(C, b"2", first)]))
        return await scan(store, id, frame)

    monkeypatch.setitem(server.EXECUTORS, SCAN, interrupt)
    page = await worker.scan(())
    assert [record.value for record in page.records] == [b"1", b"1", b"2"]
    with pytest.raises(Compacted) as caught:
        await worker.scan((), at=first)
    assert (caught.value.requested, caught.value.oldest) == (first, page.revision)


async def test_a_cancelled_caller_frees_its_place_and_others_are_not_affected(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.storage.socket.client.MAX_SENT_COMMITS", 2)
    worker = await owner.connect()
    tasks = [asyncio.create_task(worker.commit([Write(("k", str(n)), b"x", 0)])) for n in range(20)]
    scans = [asyncio.create_task(worker.scan(())) for _ in range(20)]
    await asyncio.sleep(0)
    for task in [*tasks[::2], *scans[::2]]:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(result, int) for result in results[1::2])
    await asyncio.gather(*scans, return_exceptions=True)
    found = [record.key for record in (await worker.scan(())).records]
    # The first two were sent before they were cancelled; the others were not.
    assert sorted(found) == sorted([("k", "0"), *[("k", str(n)) for n in range(1, 20, 2)]])
    await asyncio.gather(*[worker.commit([Write(("again", str(n)), b"x", 0)]) for n in range(20)])


async def test_an_owner_that_ends_finishes_requests_and_then_every_call_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()
    submit = store.submit_commit
    submitted = asyncio.Event()

    def submit_slowly(commit: PreparedCommit) -> "asyncio.Future[int]":
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(0.1, lambda: done.set_result(submit(commit).result()))
        submitted.set()
        return done

    async with serve(store, tmp_path) as owner:
        worker = await SocketStore.connect(owner.path, owner.shared)
        ended = asyncio.create_task(worker.wait_lost())
        revision = await worker.commit([Write(A, b"1", 0)])
        watch = worker.watch((), revision)
        live = asyncio.ensure_future(anext(watch))
        monkeypatch.setattr(store, "submit_commit", submit_slowly)
        pending = asyncio.create_task(worker.commit([Write(B, b"1", 0)]))
        await submitted.wait()
        assert not ended.done()
    await ended
    assert await pending == revision + 1
    assert list(await live) == [Event(B, b"1", revision + 1)]
    for call in (worker.read(A), worker.scan(()), worker.commit([Write(C, b"1", 0)]), worker.oldest(), anext(watch)):
        with pytest.raises(StoreUnavailable, match="the process that owns the store has ended"):
            await call
    assert worker.local_revision() == revision + 1, "what the worker has read stays current: nothing else can write"
    await worker.close()
    assert [batch async for batch in worker.watch((), revision)] == []


async def test_calls_whose_response_is_lost_say_that_the_write_may_have_happened(owner: Owner) -> None:
    worker = await owner.connect()
    commit = asyncio.create_task(worker.commit([Write(A, b"1", 0)]))
    scan = asyncio.create_task(worker.scan(()))
    await asyncio.sleep(0)
    worker._link.connection.abort()
    with pytest.raises(StoreUnavailable, match=r"has ended; .* the write may have happened"):
        await commit
    with pytest.raises(StoreUnavailable, match=r"restarts$"):
        await scan


async def test_workers_of_a_former_owner_are_fenced(owner: Owner) -> None:
    worker = await owner.connect()
    await worker.commit([Write(A, b"1", 0)])
    owner.shared.begin_epoch(FIRST_REVISION)
    assert worker.local_revision() is None
    for call in (worker.read(A), worker.scan(()), worker.commit([Write(B, b"1", 0)]), worker.revision()):
        with pytest.raises(StoreUnavailable, match="the store has a new owner"):
            await call
    assert await owner.store.read(B) is None


async def test_a_worker_with_other_shared_memory_than_its_owner_does_not_start(owner: Owner) -> None:
    with pytest.raises(StoreUnavailable, match="the store has a new owner"):
        await SocketStore.connect(owner.path, build_shared_revision())


async def test_a_worker_without_an_owner_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match=r"store\.socket: cannot connect to the owner of the store"):
        await SocketStore.connect(tmp_path / "store.socket", build_shared_revision())


async def test_a_store_that_belongs_to_no_single_process_is_not_served(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="workers open it themselves"):
        async with serve_store(StoreWrapper(MemoryStore()), tmp_path / "store.socket", build_shared_revision()):
            pass


async def test_every_commit_of_a_busy_server_reaches_every_worker(owner: Owner) -> None:
    workers = [await owner.connect() for _ in range(3)]

    async def follow(worker: SocketStore) -> list[Event]:
        events: list[Event] = []
        async for batch in worker.watch((), FIRST_REVISION):
            events += batch
            if len(events) == 3 * 10 * 20:
                break
        return events

    followers = [asyncio.create_task(follow(worker)) for worker in workers]
    written = await asyncio.gather(
        *[
            rewrite(worker, (str(number), str(task)), [b"%d" % value for value in range(20)])
            for number, worker in enumerate(workers)
            for task in range(10)
        ]
    )
    expected = sorted((event for events in written for event in events), key=lambda event: event.revision)
    for follower in followers:
        assert await follower == expected
