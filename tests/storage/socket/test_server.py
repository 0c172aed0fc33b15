"""storage/socket/server.py: workers that do not read, and compaction that overtakes them."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fairlead.core.framed_socket import FramedConnection
from fairlead.storage.commit import PreparedCommit
from fairlead.storage.contract import FIRST_REVISION, Compacted, Event, Record, StoreUnavailable, Write
from fairlead.storage.socket import SocketStore, server
from fairlead.storage.view.view import View
from tests.storage.socket.owners import MIB, A, B, Owner, continue_reading, rewrite, run_owner, stop_reading
from tests.storage.view.views import build_entry

LARGE = [bytes([number]) * MIB for number in range(30)]
"""Values that together exceed what the owner keeps for a worker."""


@pytest.fixture
async def owner(tmp_path: Path) -> AsyncIterator[Owner]:
    async with run_owner(tmp_path) as owner:
        yield owner


@pytest.fixture
def worker_connections(monkeypatch: pytest.MonkeyPatch) -> list[server.WorkerConnection]:
    """The owner's ends of all connections."""
    connections: list[server.WorkerConnection] = []
    accept = server.StoreServer.accept

    def record(self: server.StoreServer, connection: FramedConnection) -> server.WorkerConnection:
        connections.append(accept(self, connection))
        return connections[-1]

    monkeypatch.setattr(server.StoreServer, "accept", record)
    return connections


async def read_until(worker: SocketStore, since: int, revision: int) -> list[Event]:
    events: list[Event] = []
    async with asyncio.timeout(30):
        async for batch in worker.watch((), since):
            events += batch
            if events[-1].revision >= revision:
                break
    return events


async def test_a_worker_that_does_not_read_costs_bounded_memory_and_then_catches_up(
    worker_connections: list[server.WorkerConnection], owner: Owner
) -> None:
    fast, slow = await owner.connect(), await owner.connect()
    follower = asyncio.create_task(read_until(slow, FIRST_REVISION, FIRST_REVISION + len(LARGE) + 1))
    await asyncio.sleep(0.01)
    stop_reading(slow)
    written = await rewrite(fast, A, LARGE)
    pending = max(connection._connection.pending_bytes for connection in worker_connections)
    assert server.MAX_BEHIND_BYTES < pending < server.MAX_BEHIND_BYTES + 4 * MIB
    assert not follower.done()
    continue_reading(slow)
    written += await rewrite(fast, B, [b"last"])
    assert await follower == written
    # Live again: nothing is sent twice or missed.
    later = await rewrite(fast, B, [b"1", b"2", b"3"], written[-1].revision)
    assert await read_until(slow, written[-1].revision, later[-1].revision) == later
    assert all(connection._catch_up_task is None for connection in worker_connections)


async def test_a_worker_that_catches_up_is_never_behind_its_own_commits(owner: Owner) -> None:
    fast, slow = await owner.connect(), await owner.connect()
    seen: list[Event] = []

    async def follow() -> None:
        async for batch in slow.watch((), FIRST_REVISION):
            seen.extend(batch)

    follower = asyncio.create_task(follow())
    await asyncio.sleep(0.01)
    stop_reading(slow)
    written = await rewrite(fast, A, LARGE)
    own = asyncio.create_task(slow.commit([Write(B, b"own", 0)]))
    await asyncio.sleep(0.05)
    continue_reading(slow)
    revision = await own
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert seen == [*written, Event(B, b"own", revision)]
    follower.cancel()


async def test_watches_of_a_worker_that_compaction_has_overtaken_expire(owner: Owner) -> None:
    fast, slow = await owner.connect(), await owner.connect()
    watch, idle = slow.watch((), FIRST_REVISION), slow.watch(("idle",), FIRST_REVISION)
    first = asyncio.ensure_future(anext(watch))
    waiting = asyncio.ensure_future(anext(idle))
    await asyncio.sleep(0.01)
    (start,) = await rewrite(fast, A, [b"start"])
    assert list(await first) == [start]
    stop_reading(slow)
    written = await rewrite(fast, A, LARGE, start.revision)
    await owner.store.compact(written[-1].revision)
    continue_reading(slow)
    with pytest.raises(Compacted) as caught:
        async with asyncio.timeout(30):
            while True:
                await anext(watch)
    assert caught.value.oldest == written[-1].revision
    with pytest.raises(Compacted):
        await waiting
    # A new watch works, and so do commits.
    live = asyncio.ensure_future(anext(slow.watch((), await slow.oldest())))
    await asyncio.sleep(0.01)
    later = await slow.commit([Write(B, b"later", 0)])
    assert list(await live) == [Event(B, b"later", later)]
    assert await slow.read(A) == Record(A, LARGE[-1], written[-1].revision)


async def test_the_view_of_a_worker_recovers_from_being_overtaken(owner: Owner) -> None:
    fast, slow = await owner.connect(), await owner.connect()
    key = ("g", "things", "", "a")
    view = View(slow, build_entry)
    await view.start()
    stop_reading(slow)
    written = await rewrite(fast, key, LARGE)
    assert not view.is_current()
    await owner.store.compact(written[-1].revision)
    continue_reading(slow)
    async with asyncio.timeout(30):
        await view.wait_current()
    entry = view.get(key)
    assert entry is not None
    assert entry.revision == written[-1].revision
    assert view.is_current()
    await view.stop()


async def test_a_batch_that_does_not_fit_into_the_owners_own_queue_is_delivered(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.storage.watch_feed.MAX_PENDING_BYTES", 1000)
    one, two = await owner.connect(), await owner.connect()
    follower = asyncio.create_task(read_until(two, FIRST_REVISION, FIRST_REVISION + 200))
    await asyncio.sleep(0.01)
    revisions = await asyncio.gather(*[one.commit([Write(("k", str(n)), bytes(500), 0)]) for n in range(200)])
    assert two.local_revision() == max(revisions)
    assert [event.revision for event in await follower] == sorted(revisions)


async def test_workers_continue_when_compaction_overtakes_the_owners_own_queue(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only possible if one transaction is larger than the queue."""
    one, two = await owner.connect(), await owner.connect()
    monkeypatch.setattr("fairlead.storage.watch_feed.MAX_PENDING_BYTES", 1000)
    feed = owner.store._feed  # type: ignore[attr-defined]
    publish = feed.publish

    def publish_and_compact(revision: int, events: list[Event]) -> None:
        publish(revision, events)
        feed.set_oldest(revision)

    monkeypatch.setattr(feed, "publish", publish_and_compact)
    revisions = await asyncio.gather(*[one.commit([Write(("k", str(n)), bytes(500), 0)]) for n in range(200)])
    monkeypatch.setattr(feed, "publish", publish)
    assert two.local_revision() == max(revisions)
    with pytest.raises(Compacted):
        await anext(two.watch((), FIRST_REVISION))
    later = await rewrite(one, A, [b"1", b"2"])
    assert await read_until(two, max(revisions), later[-1].revision) == later


@pytest.mark.parametrize("follows_history", [False, True])
async def test_no_response_is_sent_before_the_newest_revision_is_shared(
    worker_connections: list[server.WorkerConnection], owner: Owner, follows_history: bool
) -> None:
    """A worker that catches up can have seen a commit before the owner has published its revision."""
    worker = await owner.connect()
    connection = worker_connections[0]
    follower = connection._server._follower
    follower.cancel()
    await asyncio.wait([follower])
    commit = asyncio.create_task(worker.commit([Write(A, b"x", 0)]))
    await anext(owner.store.watch((), FIRST_REVISION))
    connection._advance(FIRST_REVISION + 1)
    await asyncio.sleep(0.05)
    assert not commit.done()
    if follows_history:
        # As after an interruption of the live feed.
        connection._server.live_revision = FIRST_REVISION + 1
        connection.start_catch_up()
    else:
        connection._server._publish([Event(A, b"x", FIRST_REVISION + 1)])
    async with asyncio.timeout(30):
        assert await commit == FIRST_REVISION + 1


async def test_workers_do_not_wait_for_an_owner_that_has_failed(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(events: object) -> bytes:
        raise RuntimeError("a programming error")

    worker = await owner.connect()
    monkeypatch.setattr(server, "encode_feed", fail)
    with pytest.raises(StoreUnavailable, match="the write may have happened"):
        await worker.commit([Write(A, b"x", 0)])


async def test_a_worker_that_has_ended_is_removed_and_its_commits_happen(
    worker_connections: list[server.WorkerConnection], owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = await owner.connect(), await owner.connect()
    submit = owner.store.submit_commit
    submitted = asyncio.Event()

    def record(commit: PreparedCommit) -> "asyncio.Future[int]":
        submitted.set()
        return submit(commit)

    monkeypatch.setattr(owner.store, "submit_commit", record)
    commits = [asyncio.create_task(one.commit([Write(("k", str(n)), b"x", 0)])) for n in range(50)]
    await submitted.wait()
    one._link.connection.abort()
    results = await asyncio.gather(*commits, return_exceptions=True)
    assert len([result for result in results if isinstance(result, StoreUnavailable | int)]) == 50
    assert len(await read_until(two, FIRST_REVISION, FIRST_REVISION + 50)) == 50
    assert worker_connections[0]._server.workers == {worker_connections[1]}
