"""WorkerContext: what a worker process is given by its supervisor."""

import socket
from dataclasses import dataclass
from pathlib import Path

from fairlead.storage.socket import SharedRevision


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """The place of a worker among the workers of one server. `index` counts from 1 to `count`."""

    index: int
    count: int
    identity: str
    """Its identity in the leader election. A worker that replaces another one has the same, and so takes over its lease
    at once: the supervisor starts it only when the other has ended."""
    port: int
    listener: socket.socket
    """Its listening socket, which is bound to the port."""
    store_socket: Path | None
    """The socket of the process that has opened the store; None if the worker opens the store itself."""
    revision: SharedRevision
    """The newest revision of that store."""
