"""Revisioned key-value storage: bytes under tuple keys, with transactions, watches and compaction.

contract.py            the Store protocol and its errors, which all other packages import
open.py                opens a store by URL, for example sqlite:/var/lib/fairlead.db
memory.py, sqlite/     stores for one server: in memory, and in one file
postgres/, etcd/       stores for several replicas
socket/                a store of one process that other processes of the same server use
encrypted.py           wraps a store with encryption at rest; reencrypt.py: background re-encryption
wrapper.py             forwards everything to another store, or only what the leader writes
view/                  the watch cache in memory that serves reads and watches
compaction.py          background compaction of history
copy.py, backup.py     copies between stores, and backup files
data_version.py        the version of the data; migration.py: migrates them to that of this program
commit.py              key encoding and commit validation; watch_feed.py: watches (both used by all stores)
fingerprints.py        detects replicas that are configured with different secrets
"""
