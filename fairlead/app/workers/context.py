"""What a worker process is given by its supervisor."""

import socket
from dataclasses import dataclass
from pathlib import Path

from fairlead.storage.socket import SharedRevision


@dataclass(frozen=True, slots=True)
class WorkerSockets:
    """The sockets of the owner process. `store` is None if the workers open the store themselves."""

    coordinator: Path
    store: Path | None


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
    sockets: WorkerSockets
    revision: SharedRevision
    """The newest revision of that store."""
    is_first: bool = False
    """Whether no other worker of this server has been started before it."""
