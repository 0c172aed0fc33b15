"""storage/postgres/store.py: several replicas on one database, the schema, and lost replies."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from fairlead.storage.commit import prefix_range, prepare_commit
from fairlead.storage.contract import (
    FIRST_REVISION,
    Compacted,
    Event,
    Precondition,
    Record,
    RevisionConflict,
    StoreUnavailable,
    Write,
)
from fairlead.storage.postgres import PostgresStore, reader
from fairlead.storage.postgres.connection import parse_address
from fairlead.storage.postgres.schema import MIGRATIONS, sweep
from fairlead.storage.postgres.writer import WriterSession
from tests.harness.postgres_server import address_for, schema_for, shared_server

A, B = ("things", "a"), ("things", "b")
OpenReplica = Callable[[], Awaitable[PostgresStore]]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return address_for(tmp_path)


@pytest.fixture
async def open_replica(url: str) -> AsyncIterator[OpenReplica]:
    """Opens another store on the same database."""
    stores: list[PostgresStore] = []

    async def open_another_store() -> PostgresStore:
        stores.append(await PostgresStore.open(url))
        return stores[-1]

    yield open_another_store
    for store in stores:
        await store.close()


@pytest.fixture
def run_sql(tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """Runs SQL as an administrator in the schema of this test."""
    yield lambda statement: shared_server().sql(f"SET search_path = {schema_for(tmp_path)}; {statement}")


async def read_until(store: PostgresStore, last: tuple[str, ...], since: int = FIRST_REVISION) -> list[Event]:
    """Returns all events up to that of the key `last`."""
    events: list[Event] = []
    async with asyncio.timeout(30):
        async for batch in store.watch((), since):
            events += batch
            if batch[-1].key == last:
                break
    return events


async def test_replicas_see_each_others_commits_at_once(open_replica: OpenReplica) -> None:
    first_store, second_store = await open_replica(), await open_replica()
    first = await first_store.commit([Write(A, b"1", 0)])
    assert await second_store.read(A) == Record(A, b"1", first)
    assert await second_store.revision() == first
    second = await second_store.commit([Write(A, b"2", first)], [Precondition(B, 0)])
    assert second == first + 1
    assert list((await first_store.scan(())).records) == [Record(A, b"2", second)]
    with pytest.raises(RevisionConflict) as caught:
        await first_store.commit([Write(A, b"3", first)])
    assert (caught.value.expected, caught.value.actual) == (first, second)
    await second_store.compact(second)
    assert await first_store.oldest() == second
    with pytest.raises(Compacted):
        await first_store.scan((), at=first)


async def test_of_many_replicas_writing_the_same_key_exactly_one_wins(open_replica: OpenReplica) -> None:
    stores = [await open_replica() for _ in range(4)]
    revision = 0
    for _ in range(10):
        commits = [store.commit([Write(A, b"x", revision)]) for store in stores for _ in range(3)]
        results = await asyncio.gather(*commits, return_exceptions=True)
        (revision,) = [result for result in results if isinstance(result, int)]
        assert (
            sum(isinstance(result, RevisionConflict) and result.actual == revision for result in results)
            == len(commits) - 1
        )


async def count_up(store: PostgresStore, name: str, rounds: int, log: list[Event]) -> None:
    """Writes two keys per commit and logs the acknowledged events."""
    revision = 0
    for number in range(rounds):
        changes = [Write((name, part), b"%d" % number, revision) for part in ("one", "two")]
        revision = await store.commit(changes)
        log += [Event(change.key, change.value, revision) for change in changes]


async def test_all_replicas_watch_the_same_history_under_concurrent_writes(open_replica: OpenReplica) -> None:
    stores = [await open_replica() for _ in range(3)]
    watches = [asyncio.create_task(read_until(store, ("last",))) for store in stores]
    log: list[Event] = []
    await asyncio.gather(*[count_up(stores[n % 3], f"w{n}", 30, log) for n in range(12)])
    last = await stores[1].commit([Write(("last",), b"x", 0)])
    log.append(Event(("last",), b"x", last))
    log.sort(key=lambda event: event.revision)
    for watch in watches:
        assert await watch == log
    assert [*dict.fromkeys(event.revision for event in log)] == list(range(FIRST_REVISION + 1, last + 1))


async def test_events_of_another_replica_are_delivered_before_a_later_commit_returns(
    open_replica: OpenReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader.PostgresFollower, "_on_notify", lambda *_: None)
    monkeypatch.setattr(reader, "POLL_SECONDS", 60)
    first_store, second_store = await open_replica(), await open_replica()
    events = asyncio.create_task(read_until(first_store, B))
    await second_store.commit([Write(A, b"other", 0)])
    await first_store.commit([Write(B, b"own", 0)])
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert events.done()
    assert [event.key for event in events.result()] == [A, B]


async def test_a_commit_that_waits_for_events_completes_while_the_store_closes(
    open_replica: OpenReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader.PostgresFollower, "_on_notify", lambda *_: None)
    monkeypatch.setattr(reader, "POLL_SECONDS", 60)
    first_store, second_store = await open_replica(), await open_replica()
    other_revision = await second_store.commit([Write(A, b"other", 0)])
    own_commit = asyncio.create_task(first_store.commit([Write(B, b"own", 0)]))
    await asyncio.sleep(0)
    await first_store.close()
    assert await own_commit == other_revision + 1


async def test_a_lost_notification_delays_events_but_loses_none(
    open_replica: OpenReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader.PostgresFollower, "_on_notify", lambda *_: None)
    monkeypatch.setattr(reader, "POLL_SECONDS", 0.05)
    first_store, second_store = await open_replica(), await open_replica()
    events = asyncio.create_task(read_until(first_store, A))
    await asyncio.sleep(0.2)
    revision = await second_store.commit([Write(A, b"x", 0)])
    assert await events == [Event(A, b"x", revision)]


async def test_a_replica_overtaken_by_compaction_ends_its_watches_and_continues(
    open_replica: OpenReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    first_store, second_store = await open_replica(), await open_replica()
    first = await second_store.commit([Write(A, b"0", 0)])
    watch = first_store.watch((), FIRST_REVISION)
    assert [event.key for event in await anext(watch)] == [A]
    resume = asyncio.Event()
    catch_up = reader.PostgresFollower._catch_up

    async def wait(self: reader.PostgresFollower, connection: Any) -> None:
        if self is first_store._follower:
            await resume.wait()
        await catch_up(self, connection)

    monkeypatch.setattr(reader.PostgresFollower, "_catch_up", wait)
    pending = asyncio.ensure_future(anext(watch))
    await asyncio.sleep(0)
    newest = await second_store.commit([Write(A, b"2", await second_store.commit([Write(A, b"1", first)]))])
    await second_store.compact(newest)
    resume.set()
    with pytest.raises(Compacted):
        await pending
    last = await second_store.commit([Write(B, b"after", 0)])
    assert await read_until(first_store, B, since=newest) == [Event(B, b"after", last)]


async def test_a_replay_overtaken_by_own_commits_and_compaction_disturbs_no_watch(
    open_replica: OpenReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_replica()
    first = await store.commit([Write(A, b"0", 0)])
    watch = store.watch((), FIRST_REVISION)
    assert [event.revision for event in await anext(watch)] == [first]
    started, resume = asyncio.Event(), asyncio.Event()
    replay = reader.replay_events

    async def delay_replay(connection: Any, prefix: Any, since: int, upto: int) -> Any:
        if upto == reader.MAX_REVISION:
            started.set()
            await resume.wait()
        return await replay(connection, prefix, since, upto)

    monkeypatch.setattr(reader, "replay_events", delay_replay)
    store._follower._signal.wake()
    await started.wait()
    second = await store.commit([Write(A, b"1", first)])
    await store.compact(second)
    feed = store._follower.feed
    resume.set()
    third = await store.commit([Write(A, b"2", second)])
    assert [event.revision for event in await anext(watch)] == [second, third]
    assert store._follower.feed is feed


async def test_replicas_that_start_together_create_one_schema(open_replica: OpenReplica) -> None:
    stores = await asyncio.gather(*[open_replica() for _ in range(6)])
    revisions = await asyncio.gather(*[store.commit([Write((str(n),), b"x", 0)]) for n, store in enumerate(stores)])
    assert sorted(revisions) == list(range(FIRST_REVISION + 1, FIRST_REVISION + 7))


@pytest.mark.parametrize(
    ("comment", "message"),
    [
        ("NULL", "install that version again"),
        ("""'{"minimum":2,"release":"9.1.0"}'""", r"layout 2, this one knows 1\); install Fairlead 9\.1\.0 or newer"),
    ],
)
async def test_a_database_of_a_newer_version_is_rejected_and_not_changed(
    open_replica: OpenReplica, url: str, run_sql: Callable[[str], str], comment: str, message: str
) -> None:
    await open_replica()
    run_sql(f"UPDATE store SET version = {len(MIGRATIONS) + 1}; COMMENT ON TABLE store IS {comment}")
    with pytest.raises(StoreUnavailable, match=f"newer version of Fairlead .*{message}"):
        await PostgresStore.open(url)


async def test_a_newer_layout_that_this_version_can_use_is_accepted(
    open_replica: OpenReplica, run_sql: Callable[[str], str]
) -> None:
    await open_replica()
    run_sql(f"UPDATE store SET version = {len(MIGRATIONS) + 1}")
    await (await open_replica()).commit([Write(("a",), b"1", 0)])
    assert run_sql("SELECT version FROM store") == str(len(MIGRATIONS) + 1)


async def test_a_schema_with_other_tables_is_rejected_and_not_changed(
    url: str, tmp_path: Path, run_sql: Callable[[str], str]
) -> None:
    run_sql(f"CREATE SCHEMA {schema_for(tmp_path)}; CREATE TABLE log (line text)")
    with pytest.raises(StoreUnavailable, match="another program's tables; select another one"):
        await PostgresStore.open(url)
    assert run_sql("SELECT count(*) FROM log") == "0"


async def test_a_database_that_lost_commits_is_no_longer_used(
    open_replica: OpenReplica, run_sql: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "POLL_SECONDS", 0.05)
    store = await open_replica()
    await store.commit([Write(A, b"x", 0)])
    run_sql("DELETE FROM log")
    with pytest.raises(StoreUnavailable, match="gone back"):
        async with asyncio.timeout(40):
            while True:
                await store.read(A)
    for operation in (store.commit([Write(B, b"x", 0)]), store.read(A), store.check_writable()):
        with pytest.raises(StoreUnavailable, match=r"gone back .* restart the server"):
            await operation


@pytest.mark.parametrize(("setting", "expected"), [("off", "on"), ("local", "local"), ("remote_apply", "remote_apply")])
async def test_commits_are_synchronous_whatever_the_database_setting(
    setting: str, expected: str, open_replica: OpenReplica, url: str
) -> None:
    await open_replica()
    async with open_session(f"{url}&synchronous_commit={setting}") as session:
        assert await session._connection.fetchval("SHOW synchronous_commit") == expected


async def test_a_key_too_long_for_the_index_is_a_programming_error(open_replica: OpenReplica) -> None:
    store = await open_replica()
    with pytest.raises(ValueError, match="at most"):
        await store.commit([Write(("x" * 3_000,), b"x", 0)])


async def test_history_is_compacted_in_steps_by_several_replicas_at_once(
    open_replica: OpenReplica, run_sql: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.storage.postgres.schema.SWEEP_ROWS", 3)
    first_store, second_store = await open_replica(), await open_replica()
    log: list[Event] = []
    await asyncio.gather(*[count_up(first_store, f"w{n}", 20, log) for n in range(4)])
    newest = await first_store.commit(
        [Write(("w0", "one"), None, max(e.revision for e in log if e.key == ("w0", "one")))]
    )
    await asyncio.gather(first_store.compact(newest), second_store.compact(newest - 10), second_store.compact(newest))
    assert run_sql("SELECT count(*) FROM log") == "7"
    assert len((await second_store.scan(())).records) == 7
    assert await second_store._readers.run_query(sweep) is False


async def test_a_few_rows_are_found_by_index_even_without_statistics(open_replica: OpenReplica) -> None:
    """Otherwise the planner may read and sort the whole table: seconds instead of milliseconds."""
    store = await open_replica()
    await store.commit([Write((str(n),), b"x", 0) for n in range(5_000)])

    async def plan(query: str, *arguments: object) -> str:
        rows = await store._readers.run_query(lambda connection: connection.fetch(f"EXPLAIN {query}", *arguments))
        return "\n".join(row[0] for row in rows)

    scan = await plan(reader.SCAN, *prefix_range(()), reader.MAX_REVISION, 10)
    replay = await plan(reader.REPLAY, FIRST_REVISION, reader.MAX_REVISION, *prefix_range(()))
    assert "Index Scan using log_key on log" in scan
    assert "Index Scan using log_pkey on log" in replay
    assert "log_key" not in replay
    assert "Seq Scan on log" not in scan + replay


# --- lost replies ----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def open_session(url: str) -> AsyncIterator[WriterSession]:
    session = await WriterSession.open(parse_address(url))
    yield session
    session.close()


@pytest.mark.parametrize("committed", [True, False])
async def test_a_commit_whose_reply_is_lost_happens_exactly_once(
    committed: bool, open_replica: OpenReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_replica()
    commit, calls = WriterSession.commit, 0

    async def lose_reply(self: WriterSession, *arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > 1:
            return await commit(self, *arguments)
        if committed:
            await commit(self, *arguments)
        raise ConnectionResetError("the cable was cut")

    monkeypatch.setattr(WriterSession, "commit", lose_reply)
    commits = [store.commit([Write((str(n),), b"x", 0)]) for n in range(5)]
    assert await asyncio.gather(*commits) == [FIRST_REVISION + 1 + n for n in range(5)]
    assert calls == (1 if committed else 2)
    await store.commit([Write(A, b"x", 0)])
    assert [event.revision for event in await read_until(store, A)] == [FIRST_REVISION + 1 + n for n in range(6)]


async def test_a_group_that_was_given_up_cannot_be_committed_later(open_replica: OpenReplica, url: str) -> None:
    store = await open_replica()
    async with open_session(url) as late, open_session(url) as other:
        number = late.next_group_id()
        assert await other.resolve_group(*number) is None
        with pytest.raises(asyncpg.UniqueViolationError):
            await late.commit([prepare_commit([Write(A, b"x", 0)], [])], "tests")
        assert await other.resolve_group(*number) is None
    assert await store.read(A) is None
    assert await store.revision() == FIRST_REVISION


async def test_resolving_a_group_returns_the_outcome_of_each_commit(open_replica: OpenReplica, url: str) -> None:
    store = await open_replica()
    revision = await store.commit([Write(A, b"x", 0)])
    async with open_session(url) as lost, open_session(url) as other:
        number = lost.next_group_id()
        group = [prepare_commit([Write(A, b"y", 0)], []), prepare_commit([Write(B, b"y", 0)], [])]
        outcome = await lost.commit(group, "tests")
        assert await other.resolve_group(*number) == outcome
        assert (outcome.base, outcome.revisions, outcome.conflict_positions[0], outcome.actual[0]) == (
            revision,
            [None, revision + 1],
            0,
            revision,
        )


async def test_repeatedly_cut_connections_lose_and_repeat_nothing(
    open_replica: OpenReplica, run_sql: Callable[[str], str]
) -> None:
    first_store, second_store = await open_replica(), await open_replica()
    watches = [asyncio.create_task(read_until(store, ("last",))) for store in (first_store, second_store)]
    log: list[Event] = []
    writers = asyncio.gather(*[count_up((first_store, second_store)[n % 2], f"w{n}", 60, log) for n in range(8)])
    cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'fairlead'"
    cuts = 0
    while not writers.done():
        cuts += int(await asyncio.to_thread(run_sql, cut))
        await asyncio.sleep(0.2)
    await writers
    last = await first_store.commit([Write(("last",), b"x", 0)])
    log.append(Event(("last",), b"x", last))
    log.sort(key=lambda event: event.revision)
    assert cuts
    for watch in watches:
        assert await watch == log
