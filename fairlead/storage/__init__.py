"""Revisioned bytes under tuple keys: the lowest room of the house, below it there is only the disk.

    contract.py       the whole promise and its errors, on one page; what everybody above imports
    open.py           "sqlite:/var/lib/fairlead.db" -> Store
    memory.py         a store for tests and trials
    sqlite/           the store for one server: one file on its disk
    postgres/ etcd/   the stores for several servers; fenced.py: over one of them, for whoever leads
    view.py           the picture in memory that reads are served from; watchers.py: who hears of changes to it
    retention.py      the background task that forgets old history
    copying.py        from one store to another; backup.py: a store as one file
    sealed.py         a store over another that encrypts credentials; resealing.py: keeps them under the active key

    keys.py           tuple keys <-> bytes of the same order
    commits.py        what makes a commit well-formed, and where it conflicts
    feed.py           replay, then live: the watch of every store

`docs/storage.md` tells the same story for people who run a store or want to add one.
"""
