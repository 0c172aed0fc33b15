"""PostgreSQL beyond the contract: several replicas on one database, its schema, and answers that get lost."""

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
from fairlead.storage.postgres import PostgresStore, follower, reader
from fairlead.storage.postgres.connection import parse_address
from fairlead.storage.postgres.schema import MIGRATIONS, sweep
from fairlead.storage.postgres.writer import WriterSession
from tests.harness.postgres_server import address_in, schema_for, shared_server

A, B = ("things", "a"), ("things", "b")
Opened = Callable[[], Awaitable[PostgresStore]]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return address_in(tmp_path)


@pytest.fixture
async def replica(url: str) -> AsyncIterator[Opened]:
    """Opens one more store on the same database."""
    opened: list[PostgresStore] = []

    async def open_another() -> PostgresStore:
        opened.append(await PostgresStore.open(url))
        return opened[-1]

    yield open_another
    for store in opened:
        await store.close()


@pytest.fixture
def run_sql(tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """As an administrator, in the schema of this test."""
    yield lambda statement: shared_server().sql(f"SET search_path = {schema_for(tmp_path)}; {statement}")


async def listen(store: PostgresStore, last: tuple[str, ...], since: int = FIRST_REVISION) -> list[Event]:
    """Everything up to the event of a key."""
    heard: list[Event] = []
    async with asyncio.timeout(30):
        async for batch in store.watch((), since):
            heard += batch
            if batch[-1].key == last:
                break
    return heard


async def test_replicas_see_each_others_commits_at_once(replica: Opened) -> None:
    one, two = await replica(), await replica()
    first = await one.commit([Write(A, b"1", 0)])
    assert await two.read(A) == Record(A, b"1", first)
    assert await two.revision() == first
    second = await two.commit([Write(A, b"2", first)], [Precondition(B, 0)])
    assert second == first + 1
    assert list((await one.scan(())).records) == [Record(A, b"2", second)]
    with pytest.raises(RevisionConflict) as caught:
        await one.commit([Write(A, b"3", first)])
    assert (caught.value.expected, caught.value.actual) == (first, second)
    await two.compact(second)
    assert await one.oldest() == second
    with pytest.raises(Compacted):
        await one.scan((), at=first)


async def test_of_many_replicas_that_write_the_same_key_exactly_one_wins(replica: Opened) -> None:
    stores = [await replica() for _ in range(4)]
    held = 0
    for _ in range(10):
        wishes = [store.commit([Write(A, b"x", held)]) for store in stores for _ in range(3)]
        results = await asyncio.gather(*wishes, return_exceptions=True)
        (held,) = [result for result in results if isinstance(result, int)]
        assert (
            sum(isinstance(result, RevisionConflict) and result.actual == held for result in results) == len(wishes) - 1
        )


async def count_up(store: PostgresStore, name: str, rounds: int, log: list[Event]) -> None:
    """Two keys at once; says what was acknowledged."""
    held = 0
    for number in range(rounds):
        changes = [Write((name, part), b"%d" % number, held) for part in ("one", "two")]
        held = await store.commit(changes)
        log += [Event(change.key, change.value, held) for change in changes]


async def test_all_replicas_watch_one_history_while_all_of_them_write(replica: Opened) -> None:
    stores = [await replica() for _ in range(3)]
    watches = [asyncio.create_task(listen(store, ("last",))) for store in stores]
    log: list[Event] = []
    await asyncio.gather(*[count_up(stores[n % 3], f"w{n}", 30, log) for n in range(12)])
    last = await stores[1].commit([Write(("last",), b"x", 0)])
    log.append(Event(("last",), b"x", last))
    log.sort(key=lambda event: event.revision)
    for watch in watches:
        assert await watch == log
    assert [*dict.fromkeys(event.revision for event in log)] == list(range(FIRST_REVISION + 1, last + 1))


async def test_what_another_replica_commits_is_with_the_watchers_before_a_later_commit_is_answered(
    replica: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower.PostgresFollower, "_on_notify", lambda *_: None)
    monkeypatch.setattr(follower, "POLL_SECONDS", 60)
    one, two = await replica(), await replica()
    heard = asyncio.create_task(listen(one, B))
    await two.commit([Write(A, b"theirs", 0)])
    await one.commit([Write(B, b"mine", 0)])
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert heard.done()
    assert [event.key for event in heard.result()] == [A, B]


async def test_a_commit_that_waits_for_anothers_events_is_answered_though_the_store_is_closing(
    replica: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower.PostgresFollower, "_on_notify", lambda *_: None)
    monkeypatch.setattr(follower, "POLL_SECONDS", 60)
    one, two = await replica(), await replica()
    theirs = await two.commit([Write(A, b"theirs", 0)])
    mine = asyncio.create_task(one.commit([Write(B, b"mine", 0)]))
    await asyncio.sleep(0)
    await one.close()
    assert await mine == theirs + 1


async def test_a_notification_that_is_lost_delays_but_does_not_hide(
    replica: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower.PostgresFollower, "_on_notify", lambda *_: None)
    monkeypatch.setattr(follower, "POLL_SECONDS", 0.05)
    one, two = await replica(), await replica()
    heard = asyncio.create_task(listen(one, A))
    await asyncio.sleep(0.2)
    revision = await two.commit([Write(A, b"x", 0)])
    assert await heard == [Event(A, b"x", revision)]


async def test_a_replica_that_compaction_has_overtaken_tells_its_watchers_and_goes_on(
    replica: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = await replica(), await replica()
    first = await two.commit([Write(A, b"0", 0)])
    watch = one.watch((), FIRST_REVISION)
    assert [event.key for event in await anext(watch)] == [A]
    away = asyncio.Event()
    catch_up = follower.PostgresFollower._catch_up

    async def wait(self: follower.PostgresFollower, connection: Any) -> None:
        if self is one._follower:
            await away.wait()
        await catch_up(self, connection)

    monkeypatch.setattr(follower.PostgresFollower, "_catch_up", wait)
    waiting = asyncio.ensure_future(anext(watch))
    await asyncio.sleep(0)
    newest = await two.commit([Write(A, b"2", await two.commit([Write(A, b"1", first)]))])
    await two.compact(newest)
    away.set()
    with pytest.raises(Compacted):
        await waiting
    last = await two.commit([Write(B, b"after", 0)])
    assert await listen(one, B, since=newest) == [Event(B, b"after", last)]


async def test_a_question_that_is_overtaken_by_own_commits_and_their_compaction_disturbs_no_watcher(
    replica: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await replica()
    first = await store.commit([Write(A, b"0", 0)])
    watch = store.watch((), FIRST_REVISION)
    assert [event.revision for event in await anext(watch)] == [first]
    asked, go_on = asyncio.Event(), asyncio.Event()
    replay = reader.replay_events

    async def dawdle(connection: Any, prefix: Any, since: int, upto: int) -> Any:
        if upto == reader.MAX_REVISION:
            asked.set()
            await go_on.wait()
        return await replay(connection, prefix, since, upto)

    monkeypatch.setattr(follower, "replay_events", dawdle)
    store._follower._signal.wake()
    await asked.wait()
    second = await store.commit([Write(A, b"1", first)])
    await store.compact(second)
    feed = store._follower.feed
    go_on.set()
    third = await store.commit([Write(A, b"2", second)])
    assert [event.revision for event in await anext(watch)] == [second, third]
    assert store._follower.feed is feed


async def test_replicas_that_start_at_the_same_time_on_an_empty_database_make_one_schema(replica: Opened) -> None:
    stores = await asyncio.gather(*[replica() for _ in range(6)])
    revisions = await asyncio.gather(*[store.commit([Write((str(n),), b"x", 0)]) for n, store in enumerate(stores)])
    assert sorted(revisions) == list(range(FIRST_REVISION + 1, FIRST_REVISION + 7))


async def test_a_database_of_a_newer_version_is_refused_and_left_alone(
    replica: Opened, url: str, run_sql: Callable[[str], str]
) -> None:
    await replica()
    run_sql(f"UPDATE store SET version = {len(MIGRATIONS) + 1}")
    with pytest.raises(StoreUnavailable, match=r"newer version of Fairlead .* install that version again"):
        await PostgresStore.open(url)


async def test_a_schema_with_other_tables_is_refused_and_left_alone(
    url: str, tmp_path: Path, run_sql: Callable[[str], str]
) -> None:
    run_sql(f"CREATE SCHEMA {schema_for(tmp_path)}; CREATE TABLE log (mine text)")
    with pytest.raises(StoreUnavailable, match="another program's tables; select another one"):
        await PostgresStore.open(url)
    assert run_sql("SELECT count(*) FROM log") == "0"


async def test_a_database_that_has_gone_back_in_time_is_no_longer_trusted(
    replica: Opened, run_sql: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "POLL_SECONDS", 0.05)
    store = await replica()
    await store.commit([Write(A, b"x", 0)])
    run_sql("DELETE FROM log")
    with pytest.raises(StoreUnavailable, match="gone back"):
        async with asyncio.timeout(10):
            while True:
                await store.read(A)
    for refused in (store.commit([Write(B, b"x", 0)]), store.read(A), store.check_writable()):
        with pytest.raises(StoreUnavailable, match=r"gone back .* restart the server"):
            await refused


@pytest.mark.parametrize(("wish", "given"), [("off", "on"), ("local", "local"), ("remote_apply", "remote_apply")])
async def test_commits_wait_for_the_disk_whatever_the_database_says(
    wish: str, given: str, replica: Opened, url: str
) -> None:
    await replica()
    async with session(f"{url}&synchronous_commit={wish}") as opened:
        assert await opened._connection.fetchval("SHOW synchronous_commit") == given


async def test_a_key_too_long_for_the_index_is_a_programming_error(replica: Opened) -> None:
    store = await replica()
    with pytest.raises(ValueError, match="at most"):
        await store.commit([Write(("x" * 3_000,), b"x", 0)])


async def test_history_is_swept_in_many_steps_by_several_replicas_at_once(
    replica: Opened, run_sql: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.storage.postgres.schema.SWEEP_ROWS", 3)
    one, two = await replica(), await replica()
    log: list[Event] = []
    await asyncio.gather(*[count_up(one, f"w{n}", 20, log) for n in range(4)])
    newest = await one.commit([Write(("w0", "one"), None, max(e.revision for e in log if e.key == ("w0", "one")))])
    await asyncio.gather(one.compact(newest), two.compact(newest - 10), two.compact(newest))
    assert run_sql("SELECT count(*) FROM log") == "7"
    assert len((await two.scan(())).records) == 7
    assert await two._readers.run_query(sweep) is False


async def test_a_few_rows_are_found_by_index_even_without_statistics(replica: Opened) -> None:
    """Otherwise a plan may read and sort all of the table for them: seconds instead of milliseconds."""
    store = await replica()
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


# --- answers that get lost -------------------------------------------------------------------------------------------


@asynccontextmanager
async def session(url: str) -> AsyncIterator[WriterSession]:
    opened = await WriterSession.open(parse_address(url))
    yield opened
    opened.close()


@pytest.mark.parametrize("happened", [True, False])
async def test_a_commit_whose_answer_is_lost_happens_exactly_once(
    happened: bool, replica: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await replica()
    commit, calls = WriterSession.commit, 0

    async def break_off(self: WriterSession, *arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > 1:
            return await commit(self, *arguments)
        if happened:
            await commit(self, *arguments)
        raise ConnectionResetError("the cable was cut")

    monkeypatch.setattr(WriterSession, "commit", break_off)
    wishes = [store.commit([Write((str(n),), b"x", 0)]) for n in range(5)]
    assert await asyncio.gather(*wishes) == [FIRST_REVISION + 1 + n for n in range(5)]
    assert calls == (1 if happened else 2)
    await store.commit([Write(A, b"x", 0)])
    assert [event.revision for event in await listen(store, A)] == [FIRST_REVISION + 1 + n for n in range(6)]


async def test_a_group_that_was_given_up_cannot_happen_later(replica: Opened, url: str) -> None:
    store = await replica()
    async with session(url) as late, session(url) as other:
        number = late.next_group_id()
        assert await other.resolve_group(*number) is None
        with pytest.raises(asyncpg.UniqueViolationError):
            await late.commit([prepare_commit([Write(A, b"x", 0)], [])], "nobody")
        assert await other.resolve_group(*number) is None
    assert await store.read(A) is None
    assert await store.revision() == FIRST_REVISION


async def test_looking_up_a_group_tells_what_became_of_each_commit(replica: Opened, url: str) -> None:
    store = await replica()
    there = await store.commit([Write(A, b"x", 0)])
    async with session(url) as lost, session(url) as other:
        number = lost.next_group_id()
        group = [prepare_commit([Write(A, b"y", 0)], []), prepare_commit([Write(B, b"y", 0)], [])]
        outcome = await lost.commit(group, "nobody")
        assert await other.resolve_group(*number) == outcome
        assert (outcome.base, outcome.revisions, outcome.conflict_positions[0], outcome.actual[0]) == (
            there,
            [None, there + 1],
            0,
            there,
        )


async def test_connections_that_are_cut_again_and_again_lose_and_repeat_nothing(
    replica: Opened, run_sql: Callable[[str], str]
) -> None:
    one, two = await replica(), await replica()
    watches = [asyncio.create_task(listen(store, ("last",))) for store in (one, two)]
    log: list[Event] = []
    writers = asyncio.gather(*[count_up((one, two)[n % 2], f"w{n}", 60, log) for n in range(8)])
    cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'fairlead'"
    cuts = 0
    while not writers.done():
        cuts += int(await asyncio.to_thread(run_sql, cut))
        await asyncio.sleep(0.2)
    await writers
    last = await one.commit([Write(("last",), b"x", 0)])
    log.append(Event(("last",), b"x", last))
    log.sort(key=lambda event: event.revision)
    assert cuts
    for watch in watches:
        assert await watch == log
