"""Memory that the supervisor, the owner and the workers share: an anonymous mapping that forked processes inherit.

    0      the newest revision of the store, written by the owner
    64     one heartbeat of 8 bytes for each process, written by that process

Each word has one writer, is aligned and is written at once, so no lock is needed.
"""

import mmap

STORE_BYTES = 64
"""A cache line of its own: it is read by every request."""
WORD_BYTES = 8


class SharedMemory:
    def __init__(self, processes: int) -> None:
        self._buffer = memoryview(mmap.mmap(-1, STORE_BYTES + WORD_BYTES * processes))
        self._heartbeats = self._buffer[STORE_BYTES:].cast("Q")

    @property
    def store(self) -> memoryview:
        """The part for the store and its clients."""
        return self._buffer[:STORE_BYTES]

    def beat(self, process: int) -> None:
        """Shows that the event loop of this process still runs."""
        self._heartbeats[process] += 1

    def heartbeat(self, process: int) -> int:
        return self._heartbeats[process]
