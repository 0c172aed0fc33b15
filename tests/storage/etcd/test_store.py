"""What is etcd's own about the etcd store: its neighbours, several servers, its limits. The contract is elsewhere."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from itertools import count
from pathlib import Path

import pytest

from fairlead.storage.contract import (
    FIRST_REVISION,
    Compacted,
    Event,
    Key,
    Precondition,
    Record,
    RevisionConflict,
    Store,
    StoreUnavailable,
    Write,
)
from fairlead.storage.etcd import EtcdStore, parse_address
from fairlead.storage.etcd.client import COMPACT, RANGE, TXN, EtcdClient
from fairlead.storage.etcd.messages import (
    RangeResponse,
    compaction_request,
    op_delete,
    op_put,
    range_request,
    txn_request,
)
from tests.harness.etcd_server import Cluster, open_etcd, running_etcd, shared

A, B = ("things", "a"), ("things", "b")
NUMBERS = count()
Watch = AsyncIterator[Sequence[Event]]


@pytest.fixture
async def cluster(tmp_path: Path) -> Cluster:
    """The shared server, running."""
    await (await open_etcd(tmp_path)).close()
    return shared()


@pytest.fixture
def prefix() -> str:
    return f"etcd-tests/{next(NUMBERS)}"


@pytest.fixture
async def stranger(cluster: Cluster) -> AsyncIterator[EtcdClient]:
    """Somebody else who uses the same etcd."""
    client = EtcdClient(parse_address(cluster.url(), {}))
    yield client
    await client.close()


async def write_elsewhere(stranger: EtcdClient, times: int = 3) -> int:
    """etcd's revision after it."""
    for _ in range(times):
        await stranger.call_idempotent(TXN, txn_request([], [op_put(b"/others/key", b"x")]))
    return RangeResponse.parse(await stranger.call_idempotent(RANGE, range_request(b"/others/key"))).revision


async def gather(watch: Watch, count: int) -> list[Event]:
    events: list[Event] = []
    async with asyncio.timeout(30):
        while len(events) < count:
            events += await anext(watch)
    return events


async def test_two_servers_see_the_commits_of_each_other(cluster: Cluster, prefix: str) -> None:
    one, other = await cluster.open(prefix), await cluster.open(prefix)
    heard = asyncio.create_task(gather(other.watch((), FIRST_REVISION), 2))
    first = await one.commit([Write(A, b"1", 0)])
    assert await other.revision() == first
    assert await other.read(A) == Record(A, b"1", first)
    second = await other.commit([Write(A, b"2", first)])
    assert await heard == [Event(A, b"1", first), Event(A, b"2", second)]
    assert await gather(one.watch((), first), 1) == [Event(A, b"2", second)]
    await one.close()
    await other.close()


async def test_of_writers_at_several_servers_one_wins_each_round(cluster: Cluster, prefix: str) -> None:
    stores = [await cluster.open(prefix) for _ in range(3)]
    start = 0
    for round in range(10):
        results = await asyncio.gather(
            *[store.commit([Write(A, b"%d" % round, start)]) for store in stores for _ in range(4)],
            return_exceptions=True,
        )
        [start] = [result for result in results if isinstance(result, int)]
        assert sum(isinstance(result, RevisionConflict) for result in results) == 11
    for store in stores:
        assert await store.revision() == start
        await store.close()


async def test_a_store_goes_on_where_it_was_when_it_is_opened_again(cluster: Cluster, prefix: str) -> None:
    store = await cluster.open(prefix)
    first = await store.commit([Write(A, b"1", 0)])
    second = await store.commit([Write(A, b"2", first)])
    await store.compact(first)
    await store.close()
    store = await cluster.open(prefix)
    assert (await store.revision(), await store.oldest()) == (second, first)
    assert await gather(store.watch((), first), 1) == [Event(A, b"2", second)]
    await store.close()


async def test_a_store_can_begin_where_another_one_ended(cluster: Cluster, prefix: str) -> None:
    address = parse_address(cluster.url(prefix), {})
    for _ in range(2):
        store = await EtcdStore.open(address, first=5_000_000)
        assert await store.oldest() == 5_000_000
        await store.close()
    store = await EtcdStore.open(address)
    assert await store.commit([Write(A, b"x", 0)]) == 5_000_001
    await store.close()


async def test_what_others_write_to_the_same_etcd_does_not_show(
    cluster: Cluster, prefix: str, stranger: EtcdClient
) -> None:
    store, neighbour = await cluster.open(prefix), await cluster.open(f"{prefix}-longer")
    watch = store.watch((), FIRST_REVISION)
    heard = asyncio.create_task(gather(watch, 2))
    first = await store.commit([Write(A, b"1", 0)])
    await write_elsewhere(stranger)
    await neighbour.commit([Write(A, b"not ours", 0)])
    assert await store.revision() == first
    page = await store.scan(())
    assert (list(page.records), page.revision) == ([Record(A, b"1", first)], first)
    assert (await store.scan((), at=first + 2)).revision == first
    second = await store.commit([Write(B, b"2", 0)], [Precondition(A, first)])
    assert second > first + 3
    assert await heard == [Event(A, b"1", first), Event(B, b"2", second)]
    await store.close()
    await neighbour.close()


async def test_what_others_compact_beyond_our_newest_commit_takes_nothing_that_we_need(
    cluster: Cluster, prefix: str, stranger: EtcdClient
) -> None:
    store = await cluster.open(prefix)
    first = await store.commit([Write(A, b"1", 0)])
    second = await store.commit([Write(B, b"2", 0)])
    await stranger.call_idempotent(COMPACT, compaction_request(await write_elsewhere(stranger)))
    assert (await store.oldest(), await store.revision()) == (second, second)
    with pytest.raises(Compacted) as caught:
        await store.scan((), at=first)
    assert (caught.value.requested, caught.value.oldest) == (first, second)
    page = await store.scan((), at=second)
    assert (list(page.records), page.revision) == ([Record(A, b"1", first), Record(B, b"2", second)], second)
    with pytest.raises(Compacted):
        await gather(store.watch((), first), 1)
    heard = asyncio.create_task(gather(store.watch((), second), 1))
    third = await store.commit([Write(A, None, first)])
    assert await heard == [Event(A, None, third)]
    assert await gather(store.watch((), second), 1) == [Event(A, None, third)]
    await store.close()


async def test_a_server_that_starts_after_others_compacted_reads_everything(
    cluster: Cluster, prefix: str, stranger: EtcdClient
) -> None:
    store = await cluster.open(prefix)
    first = await store.commit([Write(A, b"1", 0)])
    await store.close()
    await stranger.call_idempotent(COMPACT, compaction_request(await write_elsewhere(stranger)))
    store = await cluster.open(prefix)
    assert (await store.oldest(), await store.revision()) == (first, first)
    heard = asyncio.create_task(gather(store.watch((), first), 1))
    second = await store.commit([Write(B, b"2", 0)])
    assert await heard == [Event(B, b"2", second)]
    await store.close()


async def test_many_records_come_in_one_snapshot_though_etcd_is_asked_in_chunks(
    cluster: Cluster, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.storage.etcd.store.CHUNK_RECORDS", 10)
    store = await cluster.open(prefix)
    keys: list[Key] = [("k", f"{number:03}") for number in range(50)]
    await store.commit([Write(key, b"old", 0) for key in keys])
    scan = asyncio.create_task(store.scan(()))
    record = await store.read(keys[-1])
    assert record is not None
    await store.commit([Write(keys[-1], b"new", record.revision)])
    for page in (await scan, await store.scan((), at=record.revision)):
        assert [each.key for each in page.records] == keys
        assert not page.has_more
        assert page.records[-1].value == (b"old" if page.revision == record.revision else b"new")
    page = await store.scan((), limit=25)
    assert (len(page.records), page.has_more) == (25, True)
    await store.close()


async def test_a_large_commit_reaches_its_watchers_whole(cluster: Cluster, prefix: str) -> None:
    """Large enough for etcd to tear it into fragments."""
    store = await cluster.open(prefix)
    changes = [Write(("k", f"{number:02}"), bytes(14_000), 0) for number in range(100)]
    revision = await store.commit(changes)
    await store.commit([Write(("k", f"{number:02}"), bytes(14_001), revision) for number in range(100)])
    async with asyncio.timeout(30):
        batch = await anext(store.watch((), FIRST_REVISION))
    assert [event.revision for event in batch].count(revision) == 100
    assert len(batch) in (100, 200)
    await store.close()


async def test_a_commit_with_more_keys_than_etcd_takes_says_how_to_allow_it(cluster: Cluster, prefix: str) -> None:
    store = await cluster.open(prefix)
    assert await store.commit([Write(("k", str(number)), b"x", 0) for number in range(126)]) == FIRST_REVISION + 1
    with pytest.raises(StoreUnavailable, match="--max-txn-ops"):
        await store.commit([Write(("l", str(number)), b"x", 0) for number in range(127)])
    assert await store.revision() == FIRST_REVISION + 1
    await store.check_writable()
    await store.close()


async def test_a_value_larger_than_etcd_takes_says_how_to_allow_it(cluster: Cluster, prefix: str) -> None:
    store = await cluster.open(prefix)
    for size in (1_600_000, 3_000_000):
        with pytest.raises(StoreUnavailable, match="--max-request-bytes"):
            await store.commit([Write(A, bytes(size), 0)])
    assert await store.read(A) is None
    await store.close()


async def test_a_prefix_that_was_deleted_under_the_server_is_not_written_to(
    cluster: Cluster, prefix: str, stranger: EtcdClient
) -> None:
    store = await cluster.open(prefix)
    first = await store.commit([Write(A, b"1", 0)])
    for key in ("head", "format"):
        await stranger.call_idempotent(TXN, txn_request([], [op_delete(f"/{prefix}/{key}".encode())]))
    for attempt in (store.commit([Write(A, b"2", first)]), store.revision(), store.scan(())):
        with pytest.raises(StoreUnavailable, match="deleted"):
            await attempt
    await store.close()


async def test_a_prefix_of_some_other_program_is_left_alone(
    cluster: Cluster, prefix: str, stranger: EtcdClient
) -> None:
    await stranger.call_idempotent(TXN, txn_request([], [op_put(f"/{prefix}/format".encode(), b"theirs")]))
    with pytest.raises(StoreUnavailable, match="another program"):
        await cluster.open(prefix)


async def test_a_store_of_a_newer_version_is_left_alone(cluster: Cluster, prefix: str, stranger: EtcdClient) -> None:
    value = b'{"version":2,"first":1000}'
    await stranger.call_idempotent(TXN, txn_request([], [op_put(f"/{prefix}/format".encode(), value)]))
    with pytest.raises(StoreUnavailable, match="newer version"):
        await cluster.open(prefix)


async def test_an_etcd_out_of_room_refuses_writes_in_words_and_recovers(tmp_path: Path) -> None:
    async with running_etcd(tmp_path, extra=["--quota-backend-bytes=200000"]) as full:
        store: Store = await full.open()
        with pytest.raises(StoreUnavailable, match="quota"):
            for number in range(2_000):  # etcd looks at its size now and then only
                await store.commit([Write(("k", str(number)), bytes(20_000), 0)])
        with pytest.raises(StoreUnavailable, match="quota"):
            await store.check_writable()
        assert (await store.scan((), limit=1)).has_more
        full.stop()
        full.members[0].command.remove("--quota-backend-bytes=200000")
        full.members[0].start()
        await full.ready()
        full.etcdctl("alarm", "disarm")
        await store.check_writable()
        assert await store.commit([Write(A, b"x", 0)]) == await store.revision()
        await store.close()
