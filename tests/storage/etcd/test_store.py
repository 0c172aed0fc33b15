"""storage/etcd/store.py: shared etcd clusters, several servers, and limits of etcd. The contract has its own tests."""

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
from tests.harness.etcd_server import EtcdCluster, open_etcd, running_etcd, shared_cluster

A, B = ("things", "a"), ("things", "b")
NUMBERS = count()
Watch = AsyncIterator[Sequence[Event]]


@pytest.fixture
async def cluster(tmp_path: Path) -> EtcdCluster:
    """The shared etcd, running."""
    await (await open_etcd(tmp_path)).close()
    return shared_cluster()


@pytest.fixture
def prefix() -> str:
    return f"etcd-tests/{next(NUMBERS)}"


@pytest.fixture
async def other_client(cluster: EtcdCluster) -> AsyncIterator[EtcdClient]:
    """A client of another program in the same etcd."""
    client = EtcdClient(parse_address(cluster.url(), {}))
    yield client
    await client.close()


async def write_other_keys(other_client: EtcdClient, times: int = 3) -> int:
    """Writes keys outside the prefix and returns etcd's revision."""
    for _ in range(times):
        await other_client.call_idempotent(TXN, txn_request([], [op_put(b"/others/key", b"x")]))
    return RangeResponse.parse(await other_client.call_idempotent(RANGE, range_request(b"/others/key"))).revision


async def read_events(watch: Watch, count: int) -> list[Event]:
    events: list[Event] = []
    async with asyncio.timeout(30):
        while len(events) < count:
            events += await anext(watch)
    return events


async def test_two_servers_see_the_commits_of_each_other(cluster: EtcdCluster, prefix: str) -> None:
    first_store, second_store = await cluster.open(prefix), await cluster.open(prefix)
    events = asyncio.create_task(read_events(second_store.watch((), FIRST_REVISION), 2))
    first = await first_store.commit([Write(A, b"1", 0)])
    assert await second_store.revision() == first
    assert await second_store.read(A) == Record(A, b"1", first)
    second = await second_store.commit([Write(A, b"2", first)])
    assert await events == [Event(A, b"1", first), Event(A, b"2", second)]
    assert await read_events(first_store.watch((), first), 1) == [Event(A, b"2", second)]
    await first_store.close()
    await second_store.close()


async def test_of_concurrent_writers_on_several_servers_one_wins_each_round(cluster: EtcdCluster, prefix: str) -> None:
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


async def test_a_reopened_store_continues_at_its_revision(cluster: EtcdCluster, prefix: str) -> None:
    store = await cluster.open(prefix)
    first = await store.commit([Write(A, b"1", 0)])
    second = await store.commit([Write(A, b"2", first)])
    await store.compact(first)
    await store.close()
    store = await cluster.open(prefix)
    assert (await store.revision(), await store.oldest()) == (second, first)
    assert await read_events(store.watch((), first), 1) == [Event(A, b"2", second)]
    await store.close()


async def test_a_store_can_start_at_a_given_revision(cluster: EtcdCluster, prefix: str) -> None:
    address = parse_address(cluster.url(prefix), {})
    for _ in range(2):
        store = await EtcdStore.open(address, first=5_000_000)
        assert await store.oldest() == 5_000_000
        await store.close()
    store = await EtcdStore.open(address)
    assert await store.commit([Write(A, b"x", 0)]) == 5_000_001
    await store.close()


async def test_writes_of_other_programs_are_not_visible(
    cluster: EtcdCluster, prefix: str, other_client: EtcdClient
) -> None:
    store, other_store = await cluster.open(prefix), await cluster.open(f"{prefix}-longer")
    watch = store.watch((), FIRST_REVISION)
    pending_events = asyncio.create_task(read_events(watch, 2))
    first = await store.commit([Write(A, b"1", 0)])
    await write_other_keys(other_client)
    await other_store.commit([Write(A, b"other", 0)])
    assert await store.revision() == first
    page = await store.scan(())
    assert (list(page.records), page.revision) == ([Record(A, b"1", first)], first)
    assert (await store.scan((), at=first + 2)).revision == first
    second = await store.commit([Write(B, b"2", 0)], [Precondition(A, first)])
    assert second > first + 3
    assert await pending_events == [Event(A, b"1", first), Event(B, b"2", second)]
    await store.close()
    await other_store.close()


async def test_a_compaction_by_another_program_removes_nothing_that_is_needed(
    cluster: EtcdCluster, prefix: str, other_client: EtcdClient
) -> None:
    store = await cluster.open(prefix)
    first = await store.commit([Write(A, b"1", 0)])
    second = await store.commit([Write(B, b"2", 0)])
    await other_client.call_idempotent(COMPACT, compaction_request(await write_other_keys(other_client)))
    assert (await store.oldest(), await store.revision()) == (second, second)
    with pytest.raises(Compacted) as caught:
        await store.scan((), at=first)
    assert (caught.value.requested, caught.value.oldest) == (first, second)
    page = await store.scan((), at=second)
    assert (list(page.records), page.revision) == ([Record(A, b"1", first), Record(B, b"2", second)], second)
    with pytest.raises(Compacted):
        await read_events(store.watch((), first), 1)
    pending_events = asyncio.create_task(read_events(store.watch((), second), 1))
    third = await store.commit([Write(A, None, first)])
    assert await pending_events == [Event(A, None, third)]
    assert await read_events(store.watch((), second), 1) == [Event(A, None, third)]
    await store.close()


async def test_a_server_started_after_a_foreign_compaction_reads_everything(
    cluster: EtcdCluster, prefix: str, other_client: EtcdClient
) -> None:
    store = await cluster.open(prefix)
    first = await store.commit([Write(A, b"1", 0)])
    await store.close()
    await other_client.call_idempotent(COMPACT, compaction_request(await write_other_keys(other_client)))
    store = await cluster.open(prefix)
    assert (await store.oldest(), await store.revision()) == (first, first)
    pending_events = asyncio.create_task(read_events(store.watch((), first), 1))
    second = await store.commit([Write(B, b"2", 0)])
    assert await pending_events == [Event(B, b"2", second)]
    await store.close()


async def test_many_records_are_read_in_chunks_of_one_snapshot(
    cluster: EtcdCluster, prefix: str, monkeypatch: pytest.MonkeyPatch
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


async def test_a_large_commit_is_one_batch_of_a_watch(cluster: EtcdCluster, prefix: str) -> None:
    """Large enough for etcd to split it into fragments."""
    store = await cluster.open(prefix)
    changes = [Write(("k", f"{number:02}"), bytes(14_000), 0) for number in range(100)]
    revision = await store.commit(changes)
    await store.commit([Write(("k", f"{number:02}"), bytes(14_001), revision) for number in range(100)])
    async with asyncio.timeout(30):
        batch = await anext(store.watch((), FIRST_REVISION))
    assert [event.revision for event in batch].count(revision) == 100
    assert len(batch) in (100, 200)
    await store.close()


async def test_a_commit_with_too_many_keys_for_etcd_explains_the_limit(cluster: EtcdCluster, prefix: str) -> None:
    store = await cluster.open(prefix)
    assert await store.commit([Write(("k", str(number)), b"x", 0) for number in range(126)]) == FIRST_REVISION + 1
    with pytest.raises(StoreUnavailable, match="--max-txn-ops"):
        await store.commit([Write(("l", str(number)), b"x", 0) for number in range(127)])
    assert await store.revision() == FIRST_REVISION + 1
    await store.check_writable()
    await store.close()


async def test_a_value_too_large_for_etcd_explains_the_limit(cluster: EtcdCluster, prefix: str) -> None:
    store = await cluster.open(prefix)
    for size in (1_600_000, 3_000_000):
        with pytest.raises(StoreUnavailable, match="--max-request-bytes"):
            await store.commit([Write(A, bytes(size), 0)])
    assert await store.read(A) is None
    await store.close()


async def test_a_prefix_deleted_under_a_running_server_is_not_written_to(
    cluster: EtcdCluster, prefix: str, other_client: EtcdClient
) -> None:
    store = await cluster.open(prefix)
    first = await store.commit([Write(A, b"1", 0)])
    for key in ("head", "format"):
        await other_client.call_idempotent(TXN, txn_request([], [op_delete(f"/{prefix}/{key}".encode())]))
    for attempt in (store.commit([Write(A, b"2", first)]), store.revision(), store.scan(())):
        with pytest.raises(StoreUnavailable, match="deleted"):
            await attempt
    await store.close()


async def test_a_prefix_with_keys_of_another_program_is_rejected(
    cluster: EtcdCluster, prefix: str, other_client: EtcdClient
) -> None:
    await other_client.call_idempotent(TXN, txn_request([], [op_put(f"/{prefix}/format".encode(), b"other")]))
    with pytest.raises(StoreUnavailable, match="another program"):
        await cluster.open(prefix)


@pytest.mark.parametrize(
    ("needs", "message"),
    [
        (b"", "install that version again"),
        (b',"minimum":2,"release":"9.1.0"', r"layout 2, this one knows 1\); install Fairlead 9\.1\.0 or newer"),
    ],
    ids=["unknown release", "known release"],
)
async def test_a_store_of_a_newer_version_is_rejected(
    cluster: EtcdCluster, prefix: str, other_client: EtcdClient, needs: bytes, message: str
) -> None:
    value = b'{"version":2,"first":1000' + needs + b"}"
    await other_client.call_idempotent(TXN, txn_request([], [op_put(f"/{prefix}/format".encode(), value)]))
    with pytest.raises(StoreUnavailable, match=message):
        await cluster.open(prefix)


async def test_a_newer_layout_that_this_version_can_use_is_accepted(
    cluster: EtcdCluster, prefix: str, other_client: EtcdClient
) -> None:
    await (await cluster.open(prefix)).close()
    key, value = f"/{prefix}/format".encode(), b'{"version":2,"first":1000,"minimum":1,"release":"0.1.0"}'
    await other_client.call_idempotent(TXN, txn_request([], [op_put(key, value)]))
    store = await cluster.open(prefix)
    await store.commit([Write(("a",), b"1", 0)])
    await store.close()


async def test_a_full_etcd_rejects_writes_with_an_explanation_and_recovers(tmp_path: Path) -> None:
    async with running_etcd(tmp_path, extra=["--quota-backend-bytes=200000"]) as full:
        store: Store = await full.open()
        with pytest.raises(StoreUnavailable, match="quota"):
            for number in range(2_000):  # etcd checks its size only periodically
                await store.commit([Write(("k", str(number)), bytes(20_000), 0)])
        with pytest.raises(StoreUnavailable, match="quota"):
            await store.check_writable()
        assert (await store.scan((), limit=1)).has_more
        full.stop()
        full.members[0].command.remove("--quota-backend-bytes=200000")
        full.members[0].start()
        await full.wait_until_ready()
        full.etcdctl("alarm", "disarm")
        await store.check_writable()
        assert await store.commit([Write(A, b"x", 0)]) == await store.revision()
        await store.close()
