"""The store for several replicas: an etcd cluster, over its v3 gRPC API.

    address.py    the URL etcd://host1:2379,host2:2379/prefix?ca=..., and etcd's errors
    client.py     connections with failover between members; TLS, authentication, timeouts
    messages.py   the protobuf messages we use; our keys in etcd's key space, and the mapping of revisions
    history.py    the oldest revision, compaction, replay of old events
    writer.py     commits, and resolving unknown outcomes
    store.py      EtcdStore: implements the contract

gRPC comes from grpcio. The dozen messages are encoded by hand, so neither generated code nor a protobuf library is
needed.

Every commit is one etcd transaction and has its revision. Besides its writes, each puts the key `head` with a unique
id. So the mod revision of head is that of the newest commit, even if others write to the same etcd; watchers
recognize commits by it; and a commit whose response was lost is found by its id.
"""

from fairlead.storage.etcd.address import EtcdAddress, parse_address
from fairlead.storage.etcd.store import EtcdStore, check_store_exists

__all__ = ["EtcdAddress", "EtcdStore", "check_store_exists", "parse_address"]
