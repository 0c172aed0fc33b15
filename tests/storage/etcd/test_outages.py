"""storage/etcd: outages of connections and members, and restored backups, lose or repeat no commit."""

import asyncio
import shutil
import signal
import socket
from collections.abc import AsyncIterator, Sequence
from itertools import count, pairwise
from pathlib import Path

import pytest

from fairlead.storage.contract import (
    FIRST_REVISION,
    Compacted,
    Event,
    Record,
    RevisionConflict,
    Store,
    StoreUnavailable,
    Write,
)
from fairlead.storage.etcd import EtcdStore, parse_address
from fairlead.storage.etcd.address import UnknownOutcome
from fairlead.storage.etcd.client import TXN, EtcdClient
from fairlead.storage.etcd.messages import TxnResponse, watch_request
from tests.harness.etcd_proxy import EtcdProxy
from tests.harness.etcd_server import EtcdCluster, open_etcd, running_etcd, shared_cluster
from tests.harness.free_ports import free_ports

A, B = ("things", "a"), ("things", "b")
NUMBERS = count()


@pytest.fixture
async def cluster(tmp_path: Path) -> EtcdCluster:
    await (await open_etcd(tmp_path)).close()
    return shared_cluster()


@pytest.fixture
def prefix() -> str:
    return f"etcd-outages/{next(NUMBERS)}"


@pytest.fixture
async def proxy(cluster: EtcdCluster) -> AsyncIterator[EtcdProxy]:
    proxy = EtcdProxy(cluster.members[0].port)
    await proxy.start()
    yield proxy
    await proxy.stop()


@pytest.fixture
async def store(proxy: EtcdProxy, prefix: str) -> AsyncIterator[EtcdStore]:
    """A store that connects through the proxy."""
    store = await EtcdStore.open(parse_address(f"//127.0.0.1:{proxy.port}/{prefix}", {}))
    yield store
    proxy.requests.set()
    proxy.responses.set()
    await store.close()


@pytest.fixture
async def direct(cluster: EtcdCluster, prefix: str, store: EtcdStore) -> AsyncIterator[EtcdStore]:
    """A second store on the same data whose connection is never cut."""
    direct = await cluster.open(prefix)
    yield direct
    await direct.close()


class EventRecorder:
    """Records every event from the first revision on."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.batches: list[Sequence[Event]] = []
        self._more = asyncio.Event()
        self._task = asyncio.create_task(self._record())

    async def _record(self) -> None:
        async for batch in self._store.watch((), FIRST_REVISION):
            self.batches.append(batch)
            self._more.set()

    async def wait_for_revision(self, revision: int) -> list[Event]:
        async with asyncio.timeout(30):
            while not self.batches or self.batches[-1][-1].revision < revision:
                self._more.clear()
                await self._more.wait()
        self._task.cancel()
        for earlier, later in pairwise(self.batches):
            assert earlier[-1].revision < later[0].revision
        return [event for batch in self.batches for event in batch]


async def wait_for_value(store: Store, value: bytes) -> Record:
    for _ in range(2_000):
        if (record := await store.read(A)) is not None and record.value == value:
            return record
        await asyncio.sleep(0.01)
    raise AssertionError("it was never written")


async def test_a_commit_whose_reply_was_lost_is_found_and_not_repeated(
    proxy: EtcdProxy, store: EtcdStore, direct: EtcdStore
) -> None:
    first = await store.commit([Write(A, b"1", 0)])
    proxy.responses.clear()
    commit = asyncio.create_task(store.commit([Write(A, b"2", first)]))
    written = await wait_for_value(direct, b"2")
    proxy.abort_connections()
    proxy.responses.set()
    assert await commit == written.revision
    assert await store.read(A) == written
    await store.check_writable()


async def test_a_commit_that_did_not_arrive_is_sent_again_once(
    proxy: EtcdProxy, store: EtcdStore, direct: EtcdStore
) -> None:
    first = await store.commit([Write(A, b"1", 0)])
    proxy.requests.clear()
    commit = asyncio.create_task(store.commit([Write(A, b"2", first)]))
    others = [asyncio.create_task(store.commit([Write(("k", str(n)), b"x", 0)])) for n in range(20)]
    await asyncio.sleep(0.1)
    proxy.abort_connections()
    proxy.requests.set()
    revision = await commit
    assert await direct.read(A) == Record(A, b"2", revision)
    revisions = {revision, *await asyncio.gather(*others)}
    events = await EventRecorder(direct).wait_for_revision(max(revisions))
    assert {event.revision for event in events} == {first, *revisions}
    assert len(events) == 22


async def test_a_commit_that_lost_to_another_while_disconnected_is_a_conflict(
    proxy: EtcdProxy, store: EtcdStore, direct: EtcdStore
) -> None:
    first = await store.commit([Write(A, b"1", 0)])
    proxy.requests.clear()
    commit = asyncio.create_task(store.commit([Write(A, b"own", first)]))
    await asyncio.sleep(0.05)
    winner = await direct.commit([Write(A, b"other", first)])
    proxy.abort_connections()
    proxy.requests.set()
    with pytest.raises(RevisionConflict) as caught:
        await commit
    assert (caught.value.expected, caught.value.actual) == (first, winner)


async def test_a_commit_that_arrives_after_it_was_given_up_has_no_effect(
    store: EtcdStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example a request between two members when the connection broke."""
    late: list[bytes] = []
    call = EtcdClient.call

    async def lose_first_request(client: EtcdClient, method: str, request: bytes, seconds: float = 5.0) -> bytes:
        if method == TXN and not late:
            late.append(request)
            raise UnknownOutcome("cut")
        return await call(client, method, request, seconds)

    monkeypatch.setattr(EtcdClient, "call", lose_first_request)
    created = await store.commit([Write(A, b"1", 0)])
    deleted = await store.commit([Write(A, None, created)])
    outcome = TxnResponse.parse(await call(store._client, TXN, late[0]))
    assert not outcome.succeeded
    assert await store.read(A) is None
    assert await store.revision() == deleted


async def test_a_commit_with_an_unknown_outcome_reports_so(
    proxy: EtcdProxy, store: EtcdStore, direct: EtcdStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.storage.etcd.writer.RETRY_TIMEOUT", 0.5)
    proxy.responses.clear()
    commit = asyncio.create_task(store.commit([Write(A, b"1", 0)]))
    await wait_for_value(direct, b"1")
    port = proxy.port
    await proxy.stop()
    with pytest.raises(StoreUnavailable, match="unknown whether the write was committed"):
        await commit
    proxy.port = port
    proxy.responses.set()
    await proxy.start()
    await store.check_writable()
    assert await store.commit([Write(B, b"2", 0)]) == await direct.revision()


async def test_a_watch_survives_many_disconnects_without_gaps_or_duplicates(
    proxy: EtcdProxy, store: EtcdStore, direct: EtcdStore
) -> None:
    recorder = EventRecorder(store)
    revisions: list[int] = []
    for number in range(60):
        writer = store if number % 2 else direct
        revisions.append(await writer.commit([Write(("k", str(number), part), b"x", 0) for part in "ab"]))
        if number % 10 == 5:
            proxy.abort_connections()
    events = await recorder.wait_for_revision(revisions[-1])
    assert [event.revision for event in events] == [revision for revision in revisions for _ in "ab"]


async def test_a_watch_that_missed_compacted_events_raises_compacted(
    proxy: EtcdProxy, store: EtcdStore, direct: EtcdStore
) -> None:
    revision = await store.commit([Write(A, b"1", 0)])
    watch = store.watch((), FIRST_REVISION)
    assert len(await anext(watch)) == 1
    port = proxy.port
    await proxy.stop()
    for _ in range(5):
        revision = await direct.commit([Write(A, b"2", revision)])
    await direct.compact(revision)
    proxy.port = port
    await proxy.start()
    async with asyncio.timeout(20):
        with pytest.raises(Compacted):
            await anext(watch)
    last = await direct.commit([Write(A, b"3", revision)])
    async with asyncio.timeout(20):
        assert await anext(store.watch((), revision)) == [Event(A, b"3", last)]


async def test_a_disconnected_watch_that_missed_nothing_survives_a_compaction(
    proxy: EtcdProxy, store: EtcdStore, direct: EtcdStore, cluster: EtcdCluster, prefix: str
) -> None:
    revision = await store.commit([Write(A, b"1", 0)])
    watch = store.watch((), FIRST_REVISION)
    assert await anext(watch) == [Event(A, b"1", revision)]
    port = proxy.port
    await proxy.stop()
    other_store = await cluster.open(f"{prefix}-other")
    for number in range(5):
        other_revision = await other_store.commit([Write(("k", str(number)), b"x", 0)])
    await other_store.compact(other_revision)
    await other_store.close()
    proxy.port = port
    await proxy.start()
    last = await store.commit([Write(A, b"2", revision)])
    async with asyncio.timeout(20):
        assert await anext(watch) == [Event(A, b"2", last)]


async def test_an_unreachable_etcd_is_reported_as_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EtcdClient.call_idempotent, "__defaults__", (0.5,))
    [port] = free_ports(1)
    with pytest.raises(StoreUnavailable, match=f"etcd at 127.0.0.1:{port} cannot be reached"):
        await EtcdStore.open(parse_address(f"//127.0.0.1:{port}", {}))


async def test_an_unreachable_member_is_skipped(cluster: EtcdCluster, prefix: str) -> None:
    [port] = free_ports(1)
    address = parse_address(f"//127.0.0.1:{port},{cluster.members[0].endpoint}/{prefix}", {})
    store = await EtcdStore.open(address)
    assert await store.commit([Write(A, b"x", 0)]) == FIRST_REVISION + 1
    await store.close()


async def test_a_watch_cancelled_before_it_is_connected_ends() -> None:
    """gRPC alone would wait forever, and the server would get no more events."""
    with socket.create_server(("127.0.0.1", 0)) as unresponsive:
        client = EtcdClient(
            parse_address(f"//127.0.0.1:{unresponsive.getsockname()[1]},127.0.0.1:{free_ports(1)[0]}/x", {})
        )

        async def follow() -> None:
            async for _ in client.watch(watch_request(b"a", b"b", 1)):
                pass

        following = asyncio.create_task(follow())
        accepted, _ = await asyncio.to_thread(unresponsive.accept)
        with accepted:
            client.fail_over(0)
            with pytest.raises(UnknownOutcome, match="given up"):
                async with asyncio.timeout(20):
                    await following
            await client.close()


async def test_a_restart_of_etcd_loses_nothing(tmp_path: Path) -> None:
    async with running_etcd(tmp_path) as cluster:
        store = await cluster.open()
        recorder = EventRecorder(store)
        acknowledged = {}
        for number in range(30):
            if number % 10 == 5:
                cluster.members[0].kill()
                cluster.members[0].start()
            acknowledged[await store.commit([Write(("k", str(number)), b"x", 0)])] = str(number)
        events = await recorder.wait_for_revision(max(acknowledged))
        assert {event.revision: event.key[1] for event in events} == acknowledged
        assert len(events) == 30
        await store.close()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
async def test_commits_continue_when_a_member_fails(
    tmp_path: Path, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stops each member in turn, so also the leader and the member the store is connected to."""
    monkeypatch.setattr(EtcdClient.call, "__defaults__", (0.5,))
    async with running_etcd(tmp_path, 3) as cluster:
        stores = [await cluster.open(), await cluster.open(members=cluster.members[::-1])]
        recorders = [EventRecorder(store) for store in stores]
        writers = [asyncio.create_task(count_up(store, str(key))) for key, store in enumerate(stores)]
        for member in cluster.members:
            await asyncio.sleep(0.3)
            member.send(number)
            await asyncio.sleep(0.7)
            if number is signal.SIGKILL:
                member.kill()
                member.start()
            else:
                member.send(signal.SIGCONT)
        for writer in writers:
            writer.cancel()
        await asyncio.gather(*writers, return_exceptions=True)
        last = await stores[0].commit([Write(("end",), b"", 0)])
        for recorder in recorders:
            check_counts(await recorder.wait_for_revision(last), len(stores))
        for store in stores:
            await store.close()


async def count_up(store: Store, name: str) -> None:
    """Increments a counter, so that lost, repeated or invented commits are found."""
    revision = 0
    for number in count(1):
        revision = await store.commit([Write(("count", name), str(number).encode(), revision)])


def check_counts(events: list[Event], writers: int) -> None:
    assert len({event.revision for event in events}) == len(events)
    for name in range(writers):
        counted = [int(event.value or b"0") for event in events if event.key == ("count", str(name))]
        assert counted == list(range(1, len(counted) + 1))
        assert len(counted) > 3


async def test_a_running_store_detects_an_etcd_restored_from_an_older_backup(tmp_path: Path) -> None:
    async with running_etcd(tmp_path) as cluster:
        [member] = cluster.members
        store = await cluster.open()
        first = await store.commit([Write(A, b"1", 0)])
        member.kill()
        shutil.copytree(member.folder / "data", tmp_path / "backup")
        member.start()
        await cluster.wait_until_ready()
        for number in range(2):
            await store.commit([Write(("lost", str(number)), b"x", 0)])
        member.kill()
        shutil.rmtree(member.folder / "data")
        shutil.move(tmp_path / "backup", member.folder / "data")
        member.start()
        await cluster.wait_until_ready()
        # The same revisions, but a different history.
        other = await cluster.open()
        for number in range(3):
            await other.commit([Write(("other", str(number)), b"x", 0)])
        await other.close()
        with pytest.raises(StoreUnavailable, match="restored from a backup"):
            for _ in range(2_000):
                await store.read(A)
                await asyncio.sleep(0.01)
        await store.close()
        store = await cluster.open()
        assert await store.read(A) == Record(A, b"1", first)
        await store.close()
