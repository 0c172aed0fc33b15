"""Read queries and the threads that run them, and snapshots of a file that a server has open.

Each query reads up to a revision that the event loop has already published, so reads never run ahead of watches. Rows
up to that revision do not change, but compaction may delete them, which the store checks afterwards.

`open_file_snapshot` reads a file beside the server that holds its lock. SQLite itself allows other readers, and a
read transaction sees one consistent state. The server's WAL (`-wal`) cannot be truncated meanwhile, so it grows.
"""

import asyncio
import os
import sqlite3
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing
from typing import TypeVar
from urllib.parse import quote

from fairlead.core.concurrency import SWITCH_INTERVAL
from fairlead.storage.commit import pack_key, prefix_range, unpack_key
from fairlead.storage.contract import Event, Key, Record, StoreUnavailable
from fairlead.storage.copy import Snapshot
from fairlead.storage.sqlite.database import BUSY_TIMEOUT, SEQUENCE_BITS, connect, explain_error, has_schema, last_id
from fairlead.storage.watch_feed import take_chunk

READER_THREADS = 2
"""More than one, so that a long scan does not block other reads."""

READ = "SELECT value, id FROM log WHERE key = ? AND id <= ? ORDER BY id DESC LIMIT 1"

# Checking for a later row is faster than finding the last row; startup does this for every object.
SCAN = """
    SELECT key, value, id FROM log AS row
    WHERE key >= :low AND key < :high AND id <= :last AND value IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM log WHERE key = row.key AND id > row.id AND id <= :last)
    ORDER BY key LIMIT :limit
"""

# The unary plus keeps SQLite from using the index on keys and then sorting; ids are already in history order.
REPLAY = "SELECT id, key, value FROM log WHERE id > ? AND id <= ? AND +key >= ? AND +key < ? ORDER BY id"

T = TypeVar("T")


class SqliteReaderPool:
    def __init__(self, path: str) -> None:
        self._path = path
        self._threads = ThreadPoolExecutor(READER_THREADS, thread_name_prefix="fairlead-read")
        self._thread_local = threading.local()
        self._connections: list[sqlite3.Connection] = []

    async def run_query(self, query: Callable[[sqlite3.Connection], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._run, query)

    def close(self) -> None:
        """Wait for running queries, then close."""
        self._threads.shutdown()
        while self._connections:
            self._connections.pop().close()

    def _run(self, query: Callable[[sqlite3.Connection], T]) -> T:
        try:
            with SWITCH_INTERVAL:
                return query(self._connection())
        except sqlite3.Error as error:
            raise StoreUnavailable(explain_error(self._path, error)) from error

    def _connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._thread_local, "connection", None)
        if connection is None:
            connection = connect(self._path)
            connection.execute("PRAGMA query_only = ON")
            self._thread_local.connection = connection
            self._connections.append(connection)
        return connection


def read_record(connection: sqlite3.Connection, key: Key, at: int) -> Record | None:
    row = connection.execute(READ, (pack_key(key), last_id(at))).fetchone()
    if row is None or row[0] is None:
        return None
    return Record(key, row[0], row[1] >> SEQUENCE_BITS)


def scan_records(
    connection: sqlite3.Connection, prefix: Key, after: Key | None, limit: int, at: int
) -> tuple[list[Record], bool]:
    """The records, and whether there are more."""
    low, high = prefix_range(prefix, after)
    parameters = {"low": low, "high": high, "last": last_id(at), "limit": limit + 1 if limit else -1}
    rows = connection.execute(SCAN, parameters).fetchall()
    more = bool(limit) and len(rows) > limit
    return [Record(unpack_key(key), value, id >> SEQUENCE_BITS) for key, value, id in rows[: limit or None]], more


def replay_events(connection: sqlite3.Connection, prefix: Key, since: int, upto: int) -> tuple[Sequence[Event], int]:
    low, high = prefix_range(prefix)
    # Closed immediately, also when stopped early: an open statement would block the checkpoint.
    with closing(connection.execute(REPLAY, (last_id(since), last_id(upto), low, high))) as rows:
        return take_chunk(_events(rows), upto)


def _events(rows: sqlite3.Cursor) -> Iterator[Event]:
    for id, key, value in rows:
        yield Event(unpack_key(key), value, id >> SEQUENCE_BITS)


FETCH_ROWS = 500
SELECT_REVISION = (
    "SELECT max((SELECT coalesce(max(id), 0) FROM log) >> ?, (SELECT value FROM meta WHERE name = 'compacted'))"
)
SELECT_STATE = """
    SELECT key, value, id FROM log AS row
    WHERE id = (SELECT max(id) FROM log WHERE key = row.key) AND value IS NOT NULL
    ORDER BY key
"""


@asynccontextmanager
async def open_file_snapshot(path: str) -> AsyncIterator[Snapshot]:
    """Raises StoreUnavailable with advice."""
    connection = await asyncio.to_thread(_connect_existing, path)
    try:
        yield await asyncio.to_thread(_begin_snapshot, path, connection)
    finally:
        connection.close()


async def read_file_record(path: str, key: Key) -> Record | None:
    """One record of a file that a server may have open. Raises StoreUnavailable with advice."""
    connection = await asyncio.to_thread(_connect_existing, path)
    try:
        snapshot = await asyncio.to_thread(_begin_snapshot, path, connection)
        return await asyncio.to_thread(read_record, connection, key, snapshot.revision)
    except sqlite3.Error as error:
        raise StoreUnavailable(explain_error(path, error)) from error
    finally:
        connection.close()


def check_file_exists(path: str) -> None:
    """Raises StoreUnavailable if there is no database. SQLite treats an empty file as a new database."""
    if not os.path.isfile(path) or not os.path.getsize(path):
        raise StoreUnavailable(f"{os.path.realpath(path)}: there is no database; check the path")


def _connect_existing(path: str) -> sqlite3.Connection:
    """Connect to an existing file.

    Opened read-write, because only then does SQLite recover the WAL of a killed server and, as root, give the files
    it creates for that to the owner of the database.
    """
    name = os.path.realpath(path)
    if not os.path.exists(name):
        raise StoreUnavailable(f"{name}: no such file; pass the server's folder with --data, or its store with --store")
    address = f"file:{quote(name)}?mode=rw"
    try:
        return sqlite3.connect(address, uri=True, timeout=BUSY_TIMEOUT, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise StoreUnavailable(explain_error(name, error)) from error


def _begin_snapshot(name: str, connection: sqlite3.Connection) -> Snapshot:
    try:
        connection.execute("PRAGMA query_only = ON")
        connection.execute("BEGIN")
        if not has_schema(name, connection):
            raise StoreUnavailable(f"{name}: is empty; pass the server's folder with --data, or its store with --store")
        (revision,) = connection.execute(SELECT_REVISION, (SEQUENCE_BITS,)).fetchone()
    except sqlite3.Error as error:
        raise StoreUnavailable(explain_error(name, error)) from error
    return Snapshot(revision, _iter_records(name, connection))


async def _iter_records(name: str, connection: sqlite3.Connection) -> AsyncGenerator[Record]:
    try:
        rows = await asyncio.to_thread(connection.execute, SELECT_STATE)
        while piece := await asyncio.to_thread(rows.fetchmany, FETCH_ROWS):
            for key, value, id in piece:
                yield Record(unpack_key(key), value, id >> SEQUENCE_BITS)
    except sqlite3.Error as error:
        raise StoreUnavailable(explain_error(name, error)) from error
