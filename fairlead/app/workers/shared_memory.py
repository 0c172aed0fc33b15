"""Memory that the supervisor, the owner and the workers share: an anonymous mapping that forked processes inherit.

    0      the newest revision of the store, written by the owner
    64     one heartbeat of 8 bytes for each process, written by that process

Each word has one writer, is aligned and is written at once, so no lock is needed.
"""

import mmap

from fairlead.storage.socket import SharedRevision

HEARTBEATS = 64
"""Where the heartbeats begin. The revision has a cache line of its own, because every request reads it."""
WORD_BYTES = 8


class SharedMemory:
    def __init__(self, processes: int) -> None:
        buffer = memoryview(mmap.mmap(-1, HEARTBEATS + WORD_BYTES * processes))
        self.revision = SharedRevision(buffer[: SharedRevision.SIZE])
        self._heartbeats = buffer[HEARTBEATS:].cast("Q")

    def beat(self, process: int) -> None:
        """Shows that the event loop of this process still runs."""
        self._heartbeats[process] += 1

    def heartbeat(self, process: int) -> int:
        return self._heartbeats[process]
