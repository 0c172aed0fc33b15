"""The store for several servers: an etcd cluster, over its v3 gRPC API.

    address.py   etcd://host1:2379,host2:2379/prefix?ca=... -> what to connect to, and as whom
    client.py    the connections: one member at a time, the next one when it fails; TLS, login, deadlines
    failures.py  what etcd's errors mean, for us and for people
    messages.py  the few messages we exchange, over wire.py, the few rules of protobuf that they need
    layout.py    our keys in etcd's key space, and our revisions beside etcd's
    history.py   what etcd still remembers: the oldest revision, compaction, old events read back
    follower.py  the one live watch of this process, which survives everything but a compaction
    writer.py    commits, and what became of them when the connection broke
    store.py     EtcdStore: the contract

gRPC comes from grpcio; the messages are our own: a dozen, whose format cannot change, so that no generated code and no
protobuf library is needed for them.

Every commit is one etcd transaction, and its revision is the transaction's. Beside its changes each one puts `head`,
with an id that no other commit has. So head's own revision is that of the newest commit, whoever else writes to the
same etcd; a watcher recognises commits by it; and a commit whose answer was lost is found again by its id.
"""

from fairlead.storage.etcd.address import Address, parse_address
from fairlead.storage.etcd.store import EtcdStore

__all__ = ["Address", "EtcdStore", "parse_address"]
