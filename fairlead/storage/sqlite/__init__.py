"""The store for one server: one SQLite file, one process that has it open.

    store.py     SqliteStore: the contract, in the event loop's thread, and the way from there to the threads below
    writer.py    the one thread that writes: takes all commits that wait and makes one transaction of them
    reader.py    the few threads that read, each with a connection of its own
    file.py      opening: the lock, the settings, the schema; and what SQLite's errors mean for people

The file is a log. Every change is one row that is never altered; a deletion is a row without a value. A state is, for
each key, the last row up to a revision; history is the rows after one. Compaction deletes rows that no state shows.
"""

from fairlead.storage.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
