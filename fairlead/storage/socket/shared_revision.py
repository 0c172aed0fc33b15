"""The newest revision of a store, in memory that the owner of the store and its workers share.

Each number is eight aligned bytes that are read and written in one memory access, so it needs no lock. Only the owner
writes.
"""


class SharedRevision:
    """Two numbers in a buffer: the newest acknowledged revision, and the epoch, which counts the owners so far."""

    SIZE = 16

    def __init__(self, buffer: memoryview) -> None:
        """`buffer` has SIZE bytes at an address that is a multiple of eight, for example the start of an mmap."""
        self._numbers = buffer.cast("B").cast("Q")
        if len(self._numbers) * 8 != self.SIZE:
            raise ValueError(f"the buffer must have {self.SIZE} bytes")

    @property
    def revision(self) -> int:
        return self._numbers[0]

    @property
    def epoch(self) -> int:
        return self._numbers[1]

    def begin_epoch(self, revision: int) -> None:
        """A new owner takes over. Workers of earlier owners fail from now on."""
        self._numbers[1] += 1
        self._numbers[0] = revision

    def publish(self, revision: int) -> None:
        """A commit is durable. Call this before the commit is acknowledged."""
        self._numbers[0] = revision

    def revision_in(self, epoch: int) -> int | None:
        """The newest revision, or None if the epoch is over."""
        numbers = self._numbers
        return numbers[0] if numbers[1] == epoch else None
