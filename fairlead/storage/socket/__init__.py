"""A store that one process owns and that other processes of the same server use, over a Unix socket.

    server.py            StoreServer, in the owner: serves its store to the workers, and sends them all commits
    requests.py          executes the requests of workers on the owner's store
    client.py            SocketStore, in a worker: implements the contract
    owner_link.py        a worker's connection to the owner: pending calls, and the commits of all workers
    commit_window.py     bounds the commits that a worker has sent or waits to send
    frames.py            the binary format of requests, responses and commits
    shared_revision.py   the newest revision, in memory that all processes share

Every worker has one connection. On it, all commits that were acknowledged before a response come before that
response, so a worker is never behind its own writes. The newest revision is in shared memory before any commit is
acknowledged, so a worker knows without a round trip whether it has seen the commits of all others.

Owner and workers are started together from the same code, so the format has no versions. A worker does not outlive
its owner: when the connection is lost, all calls fail, and the worker has to be restarted.
"""

from fairlead.storage.socket.client import SocketStore
from fairlead.storage.socket.server import serve_store
from fairlead.storage.socket.shared_revision import SharedRevision

__all__ = ["SharedRevision", "SocketStore", "serve_store"]
