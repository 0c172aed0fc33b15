"""Opens a database file: lock, pragmas and schema; and explains SQLite errors.

`SqliteStore.open` calls this in a thread.
"""

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fairlead.storage.contract import FIRST_REVISION, StoreUnavailable
from fairlead.storage.data_version import LayoutNeeds, check_layout

SCHEMA_VERSION = 1
SCHEMA_RELEASE = "0.1.0"
"""The first release that knows this version."""
APPLICATION_ID = 0x46414952
"""Written to the file's header, to recognize our databases."""

BUSY_TIMEOUT = 2.0
"""How long to wait for another process, such as an SQLite shell, that holds SQLite's own lock."""

SEQUENCE_BITS = 20
"""A row's id is its commit's revision, with the position within the commit in the low bits, so ids sort by history."""

PRAGMAS = """
    PRAGMA auto_vacuum = INCREMENTAL;    -- takes effect only before the first page is written
    PRAGMA journal_mode = WAL;           -- readers and the writer do not block each other
    PRAGMA synchronous = FULL;           -- a commit is on the disk before it is acknowledged
    PRAGMA fullfsync = ON;               -- on macOS, also flush the disk's own cache
    PRAGMA wal_autocheckpoint = 4000;    -- about 16 MB of log, then back into the file
    PRAGMA journal_size_limit = 67108864;
    PRAGMA cache_size = -32768;          -- 32 MB of pages
    PRAGMA secure_delete = ON;           -- overwrite deleted content; the default depends on the build
"""

SCHEMA = f"""
    CREATE TABLE log (
        id INTEGER PRIMARY KEY,      -- revision << {SEQUENCE_BITS} | position within the commit
        key BLOB NOT NULL,           -- packed, see commit.py
        value BLOB,                  -- NULL: the key was deleted
        previous INTEGER NOT NULL    -- the id that this row supersedes, 0 if none
    );
    CREATE UNIQUE INDEX log_key ON log (key, id);
    CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
    INSERT INTO meta VALUES
        ('schema', {SCHEMA_VERSION}),
        ('release', '{SCHEMA_RELEASE}'),    -- for the message of older programs; a text despite the type of the column
        ('compacted', {FIRST_REVISION}),    -- the oldest readable revision
        ('swept', 0);                       -- up to this id, compacted rows are deleted
    PRAGMA application_id = {APPLICATION_ID};
"""

SET_COMPACTED = "UPDATE meta SET value = ? WHERE name = 'compacted'"

# Two queries, the first on the index only: much faster than searching the last row of each key.
SELECT_ROWS = "SELECT key, id FROM log ORDER BY key, id"
SELECT_DELETIONS = "SELECT key, id FROM log WHERE value IS NULL"

ERROR_ADVICE = {
    sqlite3.SQLITE_FULL: "the disk is full; free some space, and the store recovers by itself",
    sqlite3.SQLITE_READONLY: "the file is read-only; make it and its folder writable for the server's user",
    sqlite3.SQLITE_IOERR: "the disk reports an error; check the system log, and quotas and limits on file sizes",
    sqlite3.SQLITE_BUSY: "another program holds the database; close its connection, and the store recovers by itself",
    sqlite3.SQLITE_CANTOPEN: "the file cannot be opened; make it readable and writable for the server's user",
    sqlite3.SQLITE_NOTADB: "this is not a database; use another path, or restore the file from a backup",
    sqlite3.SQLITE_CORRUPT: "the database is damaged; stop the server and restore the file from a backup",
}


@dataclass(frozen=True, slots=True)
class Database:
    """An open database file, and the state that the writer needs."""

    path: str
    lock: int
    connection: sqlite3.Connection
    newest_ids: dict[bytes, int]
    """The id of the newest row of every existing key."""
    revision: int
    compacted: int
    swept: int


def first_id(revision: int) -> int:
    return revision << SEQUENCE_BITS


def last_id(revision: int) -> int:
    return (revision + 1 << SEQUENCE_BITS) - 1


def explain_error(path: str, error: sqlite3.Error) -> str:
    # The low byte is the primary result code, which is as specific as the advice.
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    meaning = ERROR_ADVICE.get(
        code, "SQLite reports an error; if it persists, restart the server, or restore the file from a backup"
    )
    return f"{path}: {meaning} ({error})"


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Run the block in a transaction."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.rollback()


def open_database(path: Path, first: int = FIRST_REVISION) -> Database:
    """Open the file; its revision is then at least `first`. Raises StoreUnavailable with advice."""
    # Different paths to one file must use the same lock.
    name = os.path.realpath(path)
    if not os.path.isdir(os.path.dirname(name)):
        raise StoreUnavailable(f"{name}: the folder does not exist; create it, or use another path")
    lock = _lock(name)
    try:
        _create_file(name)
        return _load_database(name, lock, first)
    except sqlite3.Error as error:
        os.close(lock)
        raise StoreUnavailable(explain_error(name, error)) from error
    except BaseException:
        os.close(lock)
        raise


def connect(path: str) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=BUSY_TIMEOUT, isolation_level=None, check_same_thread=False)


def _lock(name: str) -> int:
    """A lock that the kernel releases when the process ends. The lock file itself stays."""
    with _translate_os_errors(f"{name}.lock"):
        lock = os.open(f"{name}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(lock, 32).decode(errors="replace").strip() or "unknown"
        os.close(lock)
        message = (
            f"{name}: in use by another server (process {holder}); stop that one, or choose another "
            "folder with --data, or another store with --store"
        )
        raise StoreUnavailable(message) from None
    with _translate_os_errors(f"{name}.lock"):
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    return lock


def _create_file(name: str) -> None:
    """Create the file with mode 0600, and report missing permissions before SQLite does."""
    with _translate_os_errors(name):
        os.close(os.open(name, os.O_RDWR | os.O_CREAT, 0o600))


@contextmanager
def _translate_os_errors(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        advice = "make the file and its folder writable for the server's user, or use another path"
        raise StoreUnavailable(f"{name}: cannot be opened for writing ({error.strerror}); {advice}") from error


def _load_database(name: str, lock: int, first: int) -> Database:
    connection = connect(name)
    try:
        # Check first: do not change the pragmas of a foreign database.
        empty = not has_schema(name, connection)
        connection.executescript(PRAGMAS)
        if empty:
            connection.executescript(f"BEGIN IMMEDIATE; {SCHEMA}; COMMIT;")
        meta = dict(connection.execute("SELECT name, value FROM meta"))
        (last,) = connection.execute("SELECT max(id) FROM log").fetchone()
        # The newest row may have been compacted, but the revision is never below the compacted one.
        revision = max((last or 0) >> SEQUENCE_BITS, meta["compacted"])
        if revision < first:
            connection.execute(SET_COMPACTED, (first,))
            revision = meta["compacted"] = first
        return Database(
            path=name,
            lock=lock,
            connection=connection,
            newest_ids=_load_newest_ids(connection),
            revision=revision,
            compacted=meta["compacted"],
            swept=meta["swept"],
        )
    except BaseException:
        connection.close()
        raise


def _load_newest_ids(connection: sqlite3.Connection) -> dict[bytes, int]:
    """The id of the last row of every key, except for deleted keys."""
    newest: dict[bytes, int] = dict(connection.execute(SELECT_ROWS))
    for key, id in connection.execute(SELECT_DELETIONS):
        if newest.get(key) == id:
            del newest[key]
    return newest


def has_schema(name: str, connection: sqlite3.Connection) -> bool:
    """Whether the file has our schema; False if it is empty. Raises StoreUnavailable for other databases."""
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if not tables:
        return False
    (owner,) = connection.execute("PRAGMA application_id").fetchone()
    if owner != APPLICATION_ID:
        raise StoreUnavailable(f"{name}: this is another program's database; use another path")
    (version,) = connection.execute("SELECT value FROM meta WHERE name = 'schema'").fetchone()
    release = connection.execute("SELECT value FROM meta WHERE name = 'release'").fetchone()
    check_layout(name, version, SCHEMA_VERSION, LayoutNeeds(version, str(release[0]) if release else ""))
    return True
