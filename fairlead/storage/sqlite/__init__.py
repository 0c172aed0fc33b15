"""The store for one server: one SQLite file, opened by one process.

    store.py      SqliteStore: implements the contract on the event loop and passes work to the threads below
    writer.py     the writer thread, which combines pending commits into one transaction
    reader.py     the reader threads, each with its own connection; snapshots of a file in use
    database.py   opens the file: lock, pragmas, schema; error messages

The database is a log. Every write is a row that is never updated; a deletion is a row without a value. The state at a
revision is the last row of each key up to it. Compaction deletes rows that no readable revision needs.
"""

from fairlead.storage.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
