"""The file that events are appended to, and its rotation. Only the writer's thread calls this.

The file is for its owner alone. When it would grow past its limit it is renamed with the time, and a new one begun;
`backups.py` looks after the old ones meanwhile. Whoever moves the file away by other means gets a new one, too.
"""

import os
import select
import stat
import sys
import threading
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from fairlead.core.clock import Clock
from fairlead.core.files import FileProblem
from fairlead.server.audit.backups import Backups
from fairlead.server.audit.trail import Sink

STANDARD_OUTPUT = "-"
MODE = 0o600
POLL_SECONDS = 0.2

Tidy = Callable[[datetime], None]
"""Looks after old files, at the moment given."""


class RotatedFile:
    """`size` is in bytes. Opens the file at once, so that a wrong path is told at the start.

    `tidy` looks after old files instead of the backups alone.
    """

    def __init__(self, backups: Backups, size: int, clock: Clock, tidy: Tidy | None = None) -> None:
        self._backups = backups
        self._tidy_files = tidy or backups.tidy
        self._path = backups.path
        self._limit = size
        self._clock = clock
        self._descriptor = -1
        self._size = 0
        self._rotates = True
        try:
            self._open()
        except OSError as error:
            advice = "see that its folder exists and is writable for the user that runs fairlead, or set audit_path"
            raise FileProblem(f"{self._path}: {error.strerror}; {advice}") from error
        self._tidy()

    def make_ready(self, size: int) -> None:
        if self._descriptor < 0 or (self._rotates and not self._is_in_place()):
            self._close()
            self._open()
        if self._rotates and self._size and self._size + size > self._limit:
            self._rotate()

    def write(self, data: memoryview) -> int:
        count = os.write(self._descriptor, data)
        self._size += count
        return count

    def close(self) -> None:
        self._close()

    def _open(self) -> None:
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, MODE)
        status = os.fstat(self._descriptor)
        # A device such as /dev/null can be written but neither grows nor moves.
        self._rotates = stat.S_ISREG(status.st_mode)
        self._size = status.st_size if self._rotates else 0
        if self._size and os.pread(self._descriptor, 1, self._size - 1) != b"\n":
            self.write(memoryview(b"\n"))  # the last line broke off when the server was killed

    def _is_in_place(self) -> bool:
        try:
            mine, there = os.fstat(self._descriptor), os.stat(self._path)
        except OSError:  # opening it anew will tell what is wrong
            return False
        return (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino)

    def _rotate(self) -> None:
        os.rename(self._path, self._backups.next(self._clock.now()))
        self._close()
        self._open()
        self._tidy()

    def _tidy(self) -> None:
        """In a thread of its own: compressing a large file takes longer than events may wait."""
        threading.Thread(target=self._tidy_files, args=(self._clock.now(),), name="fairlead-tidy", daemon=True).start()

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class Descriptor:
    """A stream that somebody else looks after, such as the standard output."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def make_ready(self, size: int) -> None:
        return None

    def write(self, data: memoryview) -> int:
        """Whoever reads the other end may be slow, which is no error: that is what the queue is for."""
        try:
            return os.write(self._descriptor, data)
        except BlockingIOError:
            select.select((), (self._descriptor,), (), POLL_SECONDS)
            return 0

    def close(self) -> None:
        return None


def open_sink(place: str, backups: Callable[[Path], Backups], size: int, clock: Clock) -> Sink:
    """The sink that a setting names: a path, or `-` for the standard output."""
    if place == STANDARD_OUTPUT:
        return Descriptor(sys.stdout.fileno())
    return RotatedFile(backups(Path(place)), size, clock)
