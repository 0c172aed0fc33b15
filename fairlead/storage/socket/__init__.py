"""A store that one process owns and that other processes of the same server use, over a Unix socket.

    server.py            StoreServer, in the owner: serves its store to the workers, and sends them all commits
    client.py            SocketStore, in a worker: implements the contract over the connection to the owner
    frames.py            the binary format of requests, responses and commits; the newest revision, in shared memory

Every worker has one connection. On it, all commits that were acknowledged before a response come before that
response, so a worker is never behind its own writes. The newest revision is in shared memory before any commit is
acknowledged, so a worker knows without a round trip whether it has seen the commits of all others.

Owner and workers are started together from the same code, so the format has no versions. A worker does not outlive
its owner: when the connection is lost, all calls fail, and the worker has to be restarted.
"""

from fairlead.storage.socket.client import SocketStore
from fairlead.storage.socket.frames import SharedRevision
from fairlead.storage.socket.server import serve_store

__all__ = ["SharedRevision", "SocketStore", "serve_store"]
