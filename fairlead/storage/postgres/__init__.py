"""The store for several replicas: one PostgreSQL database.

    store.py        PostgresStore: implements the contract
    writer.py       group commits: pending commits become one call of a database function
    reader.py       the read queries and their connection pool; the LISTEN connection, which delivers the commits of all
                    replicas to this process's watches, in order
    schema.py       tables, the commit function, migrations and compaction
    connection.py   connections: the URL, settings, and error messages

The database is a log, as with SQLite: every write is a row that is never updated; a deletion is a row without a
value.

Revisions are allocated by a database function under an advisory lock that it holds until its transaction ends. So
commits become visible in the order of their revisions. The lock is never held across a network round trip, so a
paused or disconnected replica cannot block the others. A counter row instead of the lock would leave a dead tuple per
commit, which could not be vacuumed during a long snapshot, such as a backup.
"""

from fairlead.storage.postgres.store import PostgresStore, check_store_exists

__all__ = ["PostgresStore", "check_store_exists"]
