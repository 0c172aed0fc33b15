"""storage/postgres: restarts, crashes, an unresponsive server, wrong passwords and TLS with a real PostgreSQL."""

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
from fairlead.storage.postgres import PostgresStore, connection, reader, writer
from fairlead.storage.postgres.connection import ERROR_ADVICE, explain_error, parse_address
from tests.fake_cluster.certificates import get_authority
from tests.harness.free_ports import free_port
from tests.harness.postgres_server import DATABASE, FAST, USER, PostgresServer, require_postgres, schema_for

A, B = ("a",), ("b",)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server of this module, to be stopped and broken. Each test leaves it running."""
    require_postgres()
    certificate = get_authority().issue("127.0.0.1")
    files = {"server.crt": certificate.certificate, "server.key": certificate.key, "root.crt": get_authority().pem}
    server = PostgresServer({**FAST, "ssl": "on", "ssl_ca_file": "root.crt"}, files=files)
    yield server
    server.remove()


@pytest.fixture
def url(server: PostgresServer, tmp_path: Path) -> str:
    return f"{server.url}?schema={schema_for(tmp_path)}"


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    store = await PostgresStore.open(url)
    yield store
    await store.close()


@pytest.fixture
def short_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shortens the retry timeouts."""
    for module in (reader, writer, reader):
        monkeypatch.setattr(module, "RETRY_TIMEOUT", 0.3)


class Load:
    """Writers that count, and a watch that must get every number exactly once."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self._events = asyncio.create_task(self._watch())
        self._stop = asyncio.Event()
        self._committed = asyncio.Event()
        self.acknowledged: list[Event] = []
        self._writers = [asyncio.create_task(self._count(("w", str(n)))) for n in range(6)]

    async def finish(self) -> list[Event]:
        """Waits for ten more commits and compares the watched events with the acknowledged ones."""
        async with asyncio.timeout(30):
            for _ in range(10):
                self._committed.clear()
                await self._committed.wait()
            self._stop.set()
            await asyncio.gather(*self._writers)
            last = await self._store.commit([Write(("last",), b"", 0)])
            events = await self._events
        revisions = [event.revision for event in events]
        assert revisions == list(range(FIRST_REVISION + 1, last + 1)), "ordered, unique, without a gap"
        assert set(self.acknowledged) <= set(events)
        return events

    async def _watch(self) -> list[Event]:
        events: list[Event] = []
        async for batch in self._store.watch((), FIRST_REVISION):
            events += batch
            if batch[-1].key == ("last",):
                break
        return events

    async def _count(self, key: tuple[str, ...]) -> None:
        number = 0
        while not self._stop.is_set():
            try:
                record = await self._store.read(key)
                # A number written twice shows as a revision that was never acknowledged.
                number = int(record.value) + 1 if record else 0
                value = b"%d" % number
                revision = await self._store.commit([Write(key, value, record.revision if record else 0)])
                self.acknowledged.append(Event(key, value, revision))
                self._committed.set()
            except StoreUnavailable:
                await asyncio.sleep(0.01)


def has_each_number_once(events: list[Event]) -> bool:
    numbers: dict[tuple[str, ...], list[bytes | None]] = {}
    for event in events[:-1]:
        numbers.setdefault(event.key, []).append(event.value)
    return all(values == [b"%d" % n for n in range(len(values))] for values in numbers.values())


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGQUIT])
async def test_a_restart_of_the_database_loses_nothing_and_repeats_nothing(
    signal_number: signal.Signals, server: PostgresServer, store: PostgresStore
) -> None:
    load = Load(store)
    await asyncio.sleep(0.2)
    await asyncio.to_thread(server.stop, signal_number)
    await asyncio.to_thread(server.start)
    assert has_each_number_once(await load.finish())
    await store.check_writable()


async def test_a_crash_during_commits_loses_nothing_and_repeats_nothing(
    server: PostgresServer, store: PostgresStore
) -> None:
    """Kills one backend process; PostgreSQL then closes all connections and recovers from its log."""
    load = Load(store)
    pids = "SELECT pid FROM pg_stat_activity WHERE application_name = 'fairlead' AND query LIKE '%commit_group%'"
    for _ in range(2):
        found = ""
        while not found:  # under load this takes several attempts
            await asyncio.sleep(0.2)
            found = await asyncio.to_thread(server.sql, pids)
        os.kill(int(found.split()[0]), signal.SIGKILL)
        await asyncio.to_thread(server.wait_until_ready)
    assert has_each_number_once(await load.finish())


async def test_operations_fail_while_the_database_is_down_and_work_again_afterwards(
    server: PostgresServer, store: PostgresStore, short_timeouts: None
) -> None:
    good = await store.commit([Write(A, b"good", 0)])
    watch = store.watch((), FIRST_REVISION)
    assert list(await anext(watch)) == [Event(A, b"good", good)]
    await asyncio.to_thread(server.stop)
    with pytest.raises(StoreUnavailable, match="cannot be reached; check that it is running"):
        await store.commit([Write(B, b"x", 0)])
    for operation in (
        store.read(A),
        store.scan(()),
        store.revision(),
        store.compact(good),
        store.purge_deleted(),
        store.check_writable(),
    ):
        with pytest.raises(StoreUnavailable, match=f"PostgreSQL at 127.0.0.1:{server.port}/{DATABASE}: "):
            await operation
    await asyncio.to_thread(server.start)
    await store.check_writable()
    later = await store.commit([Write(A, b"better", good)])
    assert await store.read(A) == Record(A, b"better", later)
    assert list(await anext(watch)) == [Event(A, b"better", later)]


async def test_a_store_can_be_closed_while_the_database_is_down(
    server: PostgresServer, url: str, short_timeouts: None
) -> None:
    store = await PostgresStore.open(url)
    await store.commit([Write(A, b"x", 0)])
    await asyncio.to_thread(server.stop)
    pending = asyncio.create_task(store.commit([Write(B, b"x", 0)]))
    await asyncio.sleep(0)
    async with asyncio.timeout(20):
        await store.close()
    with pytest.raises(StoreUnavailable):
        await pending
    await asyncio.to_thread(server.start)


async def test_a_commit_without_a_reply_has_an_unknown_outcome(
    server: PostgresServer, store: PostgresStore, short_timeouts: None, monkeypatch: pytest.MonkeyPatch
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
        events = [event async for batch in watch_until(store, later) for event in batch]
    assert [event.revision for event in events] == list(range(FIRST_REVISION + 1, later + 1))
    assert [event.value for event in events] in ([b"good", b"x"], [b"good", b"perhaps", b"x"])


async def watch_until(store: PostgresStore, revision: int) -> AsyncIterator[Any]:
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
async def test_errors_at_the_start_explain_what_to_do(change: tuple[str, str], message: str, url: str) -> None:
    if not message:
        # One reachable host of several is enough.
        await (await PostgresStore.open(url.replace(*change))).close()
        return
    with pytest.raises((StoreUnavailable, ValueError), match=message) as caught:
        await PostgresStore.open(url.replace(*change))
    assert "correct%20horse" not in str(caught.value)
    assert "correct horse" not in str(caught.value)


async def test_an_unreachable_database_is_an_error_at_the_start() -> None:
    with pytest.raises(
        StoreUnavailable, match="cannot be reached; check that it is running, and that host and port are correct"
    ):
        await PostgresStore.open(f"postgres://127.0.0.1:{free_port()}/x")


async def test_the_password_can_come_from_the_environment(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", "correct horse")
    await (await PostgresStore.open(url.replace(":correct%20horse", ""))).close()


async def test_a_user_without_permissions_gets_an_explanation(server: PostgresServer, url: str) -> None:
    server.sql("CREATE ROLE poor LOGIN PASSWORD 'p'")
    with pytest.raises(
        StoreUnavailable, match=r"may not create the schema .* an administrator must run `CREATE SCHEMA"
    ):
        await PostgresStore.open(url.replace(f"{USER}:correct%20horse", "poor:p"))


async def test_server_and_client_certificates_are_verified(server: PostgresServer, url: str, tmp_path: Path) -> None:
    client, other_authority = get_authority().issue(common_name="a-replica"), get_authority("another CA")
    files = {"root": get_authority().pem, "cert": client.certificate, "key": client.key, "other": other_authority.pem}
    for name, content in files.items():
        (tmp_path / name).touch(mode=0o600)
        (tmp_path / name).write_text(content)
    good = f"{url}&sslmode=verify-full&sslrootcert={tmp_path}/root&sslcert={tmp_path}/cert&sslkey={tmp_path}/key"
    store = await PostgresStore.open(good)
    await store.commit([Write(A, b"x", 0)])
    subject = server.sql(
        "SELECT DISTINCT client_dn FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) "
        "WHERE application_name = 'fairlead' AND ssl"
    )
    assert subject == "/CN=a-replica"
    await store.close()
    with pytest.raises(StoreUnavailable, match="TLS fails; check sslmode, sslrootcert"):
        await PostgresStore.open(f"{url}&sslmode=verify-full&sslrootcert={tmp_path}/other")


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
async def test_an_incomplete_url_is_rejected(url: str) -> None:
    with pytest.raises(ValueError):
        await PostgresStore.open(url)


def test_both_url_schemes_are_accepted_and_the_password_is_not_shown() -> None:
    for scheme in ("postgres", "postgresql"):
        address = parse_address(f"{scheme}://me:secret@db.example:5433/fairlead?sslmode=require&schema=own")
        assert address.name == "PostgreSQL at db.example:5433/fairlead"
        assert (address.schema, "schema=" in address.dsn, "sslmode=require" in address.dsn) == ("own", False, True)


@pytest.mark.parametrize(
    ("error_type", "advice"), ERROR_ADVICE, ids=[error_type.__name__ for error_type, _ in ERROR_ADVICE]
)
def test_every_known_error_is_explained(error_type: type[Exception], advice: str) -> None:
    failure = explain_error(parse_address("postgres://host/db"), error_type("the details"))
    assert str(failure).startswith(f"PostgreSQL at host/db: {advice} (")
    assert "the details" in str(failure)


async def test_a_standby_is_rejected(url: str) -> None:
    """It rejects every commit, and its data may be outdated."""
    url += "&default_transaction_read_only=on"
    with pytest.raises(StoreUnavailable, match="read-only, perhaps a standby; use the primary"):
        await PostgresStore.open(url)


PAUSED_PURGE = """
import asyncio, os, signal, sys
import asyncpg
from fairlead.storage.postgres import schema
from fairlead.storage.postgres.connection import parse_address

schema.PURGE_IDLE_TIMEOUT_MILLISECONDS = 1_000
execute = asyncpg.Connection.execute

async def execute_and_stop(self, query, *arguments, **options):
    result = await execute(self, query, *arguments, **options)
    if "pg_advisory_lock" in query:
        os.kill(os.getpid(), signal.SIGSTOP)
    return result

asyncpg.Connection.execute = execute_and_stop
asyncio.run(schema.purge_deleted(parse_address(sys.argv[1])))
"""


def _wait_until_stopped(pid: int) -> None:
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        time.sleep(0.01)


async def test_a_replica_stopped_during_a_purge_does_not_block_others_for_long(store: PostgresStore, url: str) -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", PAUSED_PURGE, url)
    try:
        await asyncio.to_thread(_wait_until_stopped, process.pid)
        async with asyncio.timeout(60):
            while True:
                with suppress(StoreUnavailable):  # while the lock is held
                    await store.commit([Write(A, b"1", 0)])
                    break
    finally:
        process.kill()
        await process.wait()
