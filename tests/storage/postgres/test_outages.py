"""Real trouble with a real PostgreSQL: restarts, crashes, a machine that no longer answers, wrong passwords, TLS."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from fairlead.storage.contract import FIRST_REVISION, Event, Record, StoreUnavailable, Write
from fairlead.storage.postgres import PostgresStore, connection, follower, reader, writer
from fairlead.storage.postgres.connection import ERROR_ADVICE, explain_error, parse_address
from tests.fake_cluster.certificates import authority
from tests.harness.postgres_server import DATABASE, FAST, USER, Server, free_port, require_postgres, schema_for

A, B = ("a",), ("b",)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """One of its own, to be stopped and broken. Each test leaves it running."""
    require_postgres()
    own = authority().issue("127.0.0.1")
    files = {"server.crt": own.certificate, "server.key": own.key, "root.crt": authority().pem}
    started = Server({**FAST, "ssl": "on", "ssl_ca_file": "root.crt"}, files=files)
    yield started
    started.remove()


@pytest.fixture
def url(server: Server, tmp_path: Path) -> str:
    return f"{server.url}?schema={schema_for(tmp_path)}"


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    opened = await PostgresStore.open(url)
    yield opened
    await opened.close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that these tests wait for less."""
    for module in (reader, writer, follower):
        monkeypatch.setattr(module, "RETRY_TIMEOUT", 0.3)


class Load:
    """Writers that count, and a watch that must hear every number once, whatever happens meanwhile."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self._heard = asyncio.create_task(self._listen())
        self._stop = asyncio.Event()
        self._another = asyncio.Event()
        self.acknowledged: list[Event] = []
        self._writers = [asyncio.create_task(self._count(("w", str(n)))) for n in range(6)]

    async def finish(self) -> list[Event]:
        """Waits for ten commits more, and holds what the watch heard against what was acknowledged."""
        async with asyncio.timeout(30):
            for _ in range(10):
                self._another.clear()
                await self._another.wait()
            self._stop.set()
            await asyncio.gather(*self._writers)
            last = await self._store.commit([Write(("last",), b"", 0)])
            heard = await self._heard
        revisions = [event.revision for event in heard]
        assert revisions == list(range(FIRST_REVISION + 1, last + 1)), "ordered, unique, without a gap"
        assert set(self.acknowledged) <= set(heard)
        return heard

    async def _listen(self) -> list[Event]:
        heard: list[Event] = []
        async for batch in self._store.watch((), FIRST_REVISION):
            heard += batch
            if batch[-1].key == ("last",):
                break
        return heard

    async def _count(self, key: tuple[str, ...]) -> None:
        number = 0
        while not self._stop.is_set():
            try:
                record = await self._store.read(key)
                # A number written twice would show as a revision that was never acknowledged and not unknown either.
                number = int(record.value) + 1 if record else 0
                value = b"%d" % number
                revision = await self._store.commit([Write(key, value, record.revision if record else 0)])
                self.acknowledged.append(Event(key, value, revision))
                self._another.set()
            except StoreUnavailable:
                await asyncio.sleep(0.01)


def each_number_once(heard: list[Event]) -> bool:
    numbers: dict[tuple[str, ...], list[bytes | None]] = {}
    for event in heard[:-1]:
        numbers.setdefault(event.key, []).append(event.value)
    return all(values == [b"%d" % n for n in range(len(values))] for values in numbers.values())


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT])
async def test_a_restart_of_the_database_loses_nothing_and_repeats_nothing(
    how: signal.Signals, server: Server, store: PostgresStore
) -> None:
    load = Load(store)
    await asyncio.sleep(0.2)
    await asyncio.to_thread(server.stop, how)
    await asyncio.to_thread(server.start)
    assert each_number_once(await load.finish())
    await store.check_writable()


async def test_a_crash_in_the_middle_of_commits_loses_nothing_and_repeats_nothing(
    server: Server, store: PostgresStore
) -> None:
    """One of the server's processes is killed; it then throws out everybody and recovers from its log."""
    load = Load(store)
    pids = "SELECT pid FROM pg_stat_activity WHERE application_name = 'fairlead' AND query LIKE '%commit_group%'"
    for _ in range(2):
        found = ""
        while not found:  # on a busy machine it takes more than one look
            await asyncio.sleep(0.2)
            found = await asyncio.to_thread(server.sql, pids)
        os.kill(int(found.split()[0]), signal.SIGKILL)
        await asyncio.to_thread(server.wait)
    assert each_number_once(await load.finish())


async def test_while_the_database_is_away_everything_says_so_and_then_goes_on_by_itself(
    server: Server, store: PostgresStore, impatient: None
) -> None:
    good = await store.commit([Write(A, b"good", 0)])
    watch = store.watch((), FIRST_REVISION)
    assert list(await anext(watch)) == [Event(A, b"good", good)]
    await asyncio.to_thread(server.stop)
    with pytest.raises(StoreUnavailable, match="cannot be reached; check that it is running"):
        await store.commit([Write(B, b"x", 0)])
    for refused in (
        store.read(A),
        store.scan(()),
        store.revision(),
        store.compact(good),
        store.purge_deleted(),
        store.check_writable(),
    ):
        with pytest.raises(StoreUnavailable, match=f"PostgreSQL at 127.0.0.1:{server.port}/{DATABASE}: "):
            await refused
    await asyncio.to_thread(server.start)
    await store.check_writable()
    later = await store.commit([Write(A, b"better", good)])
    assert await store.read(A) == Record(A, b"better", later)
    assert list(await anext(watch)) == [Event(A, b"better", later)]


async def test_a_store_closes_while_the_database_is_away(server: Server, url: str, impatient: None) -> None:
    store = await PostgresStore.open(url)
    await store.commit([Write(A, b"x", 0)])
    await asyncio.to_thread(server.stop)
    waiting = asyncio.create_task(store.commit([Write(B, b"x", 0)]))
    await asyncio.sleep(0)
    async with asyncio.timeout(20):
        await store.close()
    with pytest.raises(StoreUnavailable):
        await waiting
    await asyncio.to_thread(server.start)


async def test_a_commit_that_nobody_answers_is_reported_as_unknown(
    server: Server, store: PostgresStore, impatient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = await store.commit([Write(A, b"good", 0)])
    monkeypatch.setattr(writer, "COMMIT_TIMEOUT", 0.3)
    monkeypatch.setattr(connection, "CONNECT_TIMEOUT", 0.3)
    server.pause()
    try:
        with pytest.raises(StoreUnavailable, match="unknown whether this write was committed, so check"):
            await store.commit([Write(A, b"perhaps", good)])
    finally:
        server.resume()
    monkeypatch.undo()
    async with asyncio.timeout(20):
        later = await store.commit([Write(B, b"x", 0)])
        events = [event async for batch in until(store, later) for event in batch]
    assert [event.revision for event in events] == list(range(FIRST_REVISION + 1, later + 1))
    assert [event.value for event in events] in ([b"good", b"x"], [b"good", b"perhaps", b"x"])


async def until(store: PostgresStore, revision: int) -> AsyncIterator[Any]:
    async for batch in store.watch((), FIRST_REVISION):
        yield batch
        if batch[-1].revision >= revision:
            return


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("correct%20horse", "wrong"), "password is rejected; correct it in the URL or in PGPASSWORD"),
        ((f"/{DATABASE}", "/nowhere"), "no such database; create it with `createdb`"),
        ((f"{USER}:", "nobody:"), "is rejected"),
        (("127.0.0.1:", f"127.0.0.1:{free_port()},127.0.0.1:"), ""),
        (("?", "?sslmode=verify-full&"), "TLS|certificate"),
    ],
)
async def test_what_is_wrong_at_the_start_is_said_with_what_to_do(
    change: tuple[str, str], message: str, url: str
) -> None:
    if not message:
        # Of several hosts, the one that answers is good enough.
        await (await PostgresStore.open(url.replace(*change))).close()
        return
    with pytest.raises((StoreUnavailable, ValueError), match=message) as caught:
        await PostgresStore.open(url.replace(*change))
    assert "correct%20horse" not in str(caught.value)
    assert "correct horse" not in str(caught.value)


async def test_a_database_that_does_not_run_is_refused_at_the_start() -> None:
    with pytest.raises(
        StoreUnavailable, match="cannot be reached; check that it is running, and that host and port are correct"
    ):
        await PostgresStore.open(f"postgres://127.0.0.1:{free_port()}/x")


async def test_the_password_may_come_from_the_environment(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", "correct horse")
    await (await PostgresStore.open(url.replace(":correct%20horse", ""))).close()


async def test_a_user_without_rights_is_told_what_to_ask_for(server: Server, url: str) -> None:
    server.sql("CREATE ROLE poor LOGIN PASSWORD 'p'")
    with pytest.raises(
        StoreUnavailable, match=r"may not create the schema .* an administrator must run `CREATE SCHEMA"
    ):
        await PostgresStore.open(url.replace(f"{USER}:correct%20horse", "poor:p"))


async def test_certificates_of_both_sides_are_verified(server: Server, url: str, tmp_path: Path) -> None:
    own, stranger = authority().issue(common_name="a-replica"), authority("a stranger")
    files = {"root": authority().pem, "cert": own.certificate, "key": own.key, "stranger": stranger.pem}
    for name, content in files.items():
        (tmp_path / name).touch(mode=0o600)
        (tmp_path / name).write_text(content)
    good = f"{url}&sslmode=verify-full&sslrootcert={tmp_path}/root&sslcert={tmp_path}/cert&sslkey={tmp_path}/key"
    store = await PostgresStore.open(good)
    await store.commit([Write(A, b"x", 0)])
    shown = server.sql(
        "SELECT DISTINCT client_dn FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) "
        "WHERE application_name = 'fairlead' AND ssl"
    )
    assert shown == "/CN=a-replica"
    await store.close()
    with pytest.raises(StoreUnavailable, match="TLS fails; check sslmode, sslrootcert"):
        await PostgresStore.open(f"{url}&sslmode=verify-full&sslrootcert={tmp_path}/stranger")


@pytest.mark.parametrize(
    "url",
    [
        "postgres:",
        "postgres://",
        "postgres://host",
        "postgres://host/",
        "postgres:///db",
        "postgres://host/db?schema=A-B",
    ],
)
async def test_an_address_without_what_is_needed_is_refused(url: str) -> None:
    with pytest.raises(ValueError):
        await PostgresStore.open(url)


def test_both_names_of_the_scheme_are_known_and_the_password_is_not_shown() -> None:
    for scheme in ("postgres", "postgresql"):
        address = parse_address(f"{scheme}://me:secret@db.example:5433/fairlead?sslmode=require&schema=mine")
        assert address.name == "PostgreSQL at db.example:5433/fairlead"
        assert (address.schema, "schema=" in address.dsn, "sslmode=require" in address.dsn) == ("mine", False, True)


@pytest.mark.parametrize(("sort", "meaning"), ERROR_ADVICE, ids=[sort.__name__ for sort, _ in ERROR_ADVICE])
def test_every_error_that_is_known_is_explained(sort: type[Exception], meaning: str) -> None:
    failure = explain_error(parse_address("postgres://host/db"), sort("the details"))
    assert str(failure).startswith(f"PostgreSQL at host/db: {meaning} (")
    assert "the details" in str(failure)


async def test_a_standby_is_not_taken_for_the_database(url: str) -> None:
    """It would refuse every commit, and what it shows is the past."""
    url += "&default_transaction_read_only=on"
    with pytest.raises(StoreUnavailable, match="read-only, perhaps a standby; use the primary"):
        await PostgresStore.open(url)


STANDS_STILL = """
import asyncio, os, signal, sys
import asyncpg
from fairlead.storage.postgres import schema
from fairlead.storage.postgres.connection import parse_address

schema.PURGE_IDLE_TIMEOUT_MILLISECONDS = 1_000
execute = asyncpg.Connection.execute

async def stopping(self, query, *given, **more):
    answer = await execute(self, query, *given, **more)
    if "pg_advisory_lock" in query:
        os.kill(os.getpid(), signal.SIGSTOP)
    return answer

asyncpg.Connection.execute = stopping
asyncio.run(schema.purge_deleted(parse_address(sys.argv[1])))
"""


def _until_it_stands_still(pid: int) -> None:
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        time.sleep(0.01)


async def test_a_replica_that_stands_still_while_it_scrubs_holds_nobody_up_for_long(
    store: PostgresStore, url: str
) -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", STANDS_STILL, url)
    try:
        await asyncio.to_thread(_until_it_stands_still, process.pid)
        async with asyncio.timeout(60):
            while True:
                with suppress(StoreUnavailable):  # while the lock is held
                    await store.commit([Write(A, b"1", 0)])
                    break
    finally:
        process.kill()
        await process.wait()
