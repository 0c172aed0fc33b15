"""The store for several replicas: one PostgreSQL database, any number of processes that use it at the same time.

    store.py       PostgresStore: the contract, and who of the others does what
    writer.py      commits: all that wait become one call of one function in the database; lost answers are looked up
    session.py     the writer's connection
    follower.py    the connection that listens: brings every replica's commits to this process's watches, in order
    reader.py      the queries, and the few connections that they run on
    compaction.py  forgetting history, in small steps
    schema.py      the tables and the function; bringing an older database up to date
    address.py     the URL, connecting, and what PostgreSQL's errors mean for people

The database is a log, as with SQLite: every change is one row that is never altered; a deletion is a row without value.

Revisions are given out by a function in the database that holds one advisory lock until its transaction ends. So they
become visible in their own order, whichever process writes. The function is a single call: the lock is never held
across the network, and a replica that is stopped, slow or cut off cannot keep the others from writing.
An advisory lock rather than a counter's row: a row that every commit updates leaves a dead version each time, and while
anybody holds an old snapshot open (a backup does, for hours) all of them would have to be walked through.
"""

from fairlead.storage.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
