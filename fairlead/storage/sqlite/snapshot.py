"""What a database file holds, read beside the server that has it open. Called by `open_snapshot`.

The lock on the file is the server's. SQLite itself lets others read, and a transaction that only reads sees one moment
for as long as it lasts. Meanwhile the server's log (`-wal`) cannot be shortened, so it grows by what is written.
"""

import asyncio
import os
import sqlite3
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import quote

from fairlead.storage.contract import Record, Unavailable
from fairlead.storage.copying import Snapshot
from fairlead.storage.keys import unpack
from fairlead.storage.sqlite.file import BUSY_SECONDS, SEQUENCE_BITS, explain, is_ours

ROWS = 500
REVISION = "SELECT max((SELECT coalesce(max(id), 0) FROM log) >> ?, (SELECT value FROM meta WHERE name = 'compacted'))"
STATE = """
    SELECT key, value, id FROM log AS row
    WHERE id = (SELECT max(id) FROM log WHERE key = row.key) AND value IS NOT NULL
    ORDER BY key
"""


@asynccontextmanager
async def snapshot(path: str) -> AsyncIterator[Snapshot]:
    """Raises Unavailable, with a message that says what to do."""
    connection = await asyncio.to_thread(_connect, path)
    try:
        yield await asyncio.to_thread(_begin, path, connection)
    finally:
        connection.close()


def _connect(path: str) -> sqlite3.Connection:
    """Never makes a file. Opened for writing all the same: only then does SQLite tidy up its log after a server that
    was killed, and, for root, give the files that it makes for that to the owner of the database."""
    name = os.path.realpath(path)
    if not os.path.exists(name):
        raise Unavailable(f"{name}: no such file; name the server's folder with --data, or its store with --store")
    address = f"file:{quote(name)}?mode=rw"
    try:
        return sqlite3.connect(address, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise Unavailable(explain(name, error)) from error


def _begin(name: str, connection: sqlite3.Connection) -> Snapshot:
    try:
        connection.execute("PRAGMA query_only = ON")
        connection.execute("BEGIN")
        if not is_ours(name, connection):
            raise Unavailable(f"{name}: holds nothing; name the server's folder with --data, or its store with --store")
        (revision,) = connection.execute(REVISION, (SEQUENCE_BITS,)).fetchone()
    except sqlite3.Error as error:
        raise Unavailable(explain(name, error)) from error
    return Snapshot(revision, _records(name, connection))


async def _records(name: str, connection: sqlite3.Connection) -> AsyncGenerator[Record]:
    try:
        rows = await asyncio.to_thread(connection.execute, STATE)
        while piece := await asyncio.to_thread(rows.fetchmany, ROWS):
            for key, value, id in piece:
                yield Record(unpack(key), value, id >> SEQUENCE_BITS)
    except sqlite3.Error as error:
        raise Unavailable(explain(name, error)) from error
