"""The logs of tasks: bounded, read by offset, and followed while the task runs.

A log is a folder of segments, each named by the offset of its first byte. Offsets count all bytes that were ever
written. When the log grows beyond its limit, the oldest segment is deleted: a reader that is too late continues with
the first byte that is left, and sees from its offset how much is missing. A full disk loses lines, never the task.
"""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import structlog

from fairlead.core.files import ensure_private_folder

log = structlog.get_logger(__name__)

LIMIT_BYTES = 64 * 1024 * 1024
SEGMENT_BYTES = 4 * 1024 * 1024
CHUNK_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Chunk:
    """Bytes of a log. The next chunk begins at `offset + len(data)`, unless bytes in between were deleted."""

    offset: int
    data: bytes


class TaskLog:
    """The log of one task. One process writes; readers are tasks of the same event loop."""

    def __init__(self, folder: Path, limit: int = LIMIT_BYTES, segment: int = SEGMENT_BYTES) -> None:
        self._folder = ensure_private_folder(folder)
        self._limit = limit
        self._segment_bytes = segment
        self._starts = sorted(int(path.name) for path in self._folder.iterdir() if path.name.isdecimal())
        self._end = self._starts[-1] + self._path(self._starts[-1]).stat().st_size if self._starts else 0
        self._changed = asyncio.Event()
        self._is_closed = False

    @property
    def start(self) -> int:
        """The offset of the first byte that is left."""
        return self._starts[0] if self._starts else 0

    @property
    def end(self) -> int:
        return self._end

    def append(self, data: bytes) -> None:
        try:
            for position in range(0, len(data), self._segment_bytes):
                self._append_part(data[position : position + self._segment_bytes])
        except OSError as error:
            log.warning("a part of a log is lost", folder=str(self._folder), error=error.strerror)
        self._wake_readers()

    def _append_part(self, data: bytes) -> None:
        if not self._starts or self._end - self._starts[-1] + len(data) > self._segment_bytes:
            self._starts.append(self._end)
        path = self._path(self._starts[-1])
        try:
            with open(path, "ab") as file:
                file.write(data)
        except OSError:
            with suppress(OSError):  # a part of it may have been written, which would shift all offsets after it
                os.truncate(path, self._end - self._starts[-1])
            raise
        self._end += len(data)
        while self._end - self._starts[0] > self._limit and len(self._starts) > 1:
            self._path(self._starts.pop(0)).unlink(missing_ok=True)

    def end_line(self) -> None:
        """Ends a line that was not written completely."""
        if self._end > self.start and self.read(self._end - 1).data != b"\n":
            self.append(b"\n")

    def close(self) -> None:
        """The task has ended: readers that follow get to the end."""
        self._is_closed = True
        self._wake_readers()

    def reopen(self) -> None:
        self._is_closed = False

    def read(self, offset: int) -> Chunk:
        """At most CHUNK_BYTES from this offset, or from the first byte that is left; empty at the end."""
        offset = min(max(offset, self.start), self._end)
        index = next((i for i in reversed(range(len(self._starts))) if self._starts[i] <= offset), None)
        if index is None or offset == self._end:
            return Chunk(offset, b"")
        with open(self._path(self._starts[index]), "rb") as file:
            file.seek(offset - self._starts[index])
            return Chunk(offset, file.read(CHUNK_BYTES))

    async def follow(self, offset: int = 0) -> AsyncIterator[Chunk]:
        """Yields all chunks from the offset up to the end of the task."""
        while True:
            changed, is_closed = self._changed, self._is_closed
            chunk = self.read(offset)
            if chunk.data:
                offset = chunk.offset + len(chunk.data)
                yield chunk
            elif is_closed:
                return
            else:
                await changed.wait()

    def _wake_readers(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _path(self, start: int) -> Path:
        return self._folder / f"{start:020d}"


class TaskLogs:
    """The logs of all tasks, below one folder. Writers and readers share the open ones."""

    def __init__(self, folder: Path) -> None:
        self._folder = ensure_private_folder(folder)
        self._open: dict[tuple[str, str], TaskLog] = {}

    def get(self, uid: str, task_id: str) -> TaskLog:
        """The log of a task that has ended, if this process has not opened it."""
        key = (uid, task_id)
        if key not in self._open:
            self._open[key] = TaskLog(self._folder / uid / task_id)
            self._open[key].close()
        return self._open[key]

    def open(self, uid: str, task_id: str) -> TaskLog:
        """The log of a task that has not ended, whether it has begun or not."""
        found = self.get(uid, task_id)
        found.reopen()
        return found

    def prune(self, uid: str, task_ids: Iterable[str]) -> None:
        """Deletes the logs of all other tasks of a workspace."""
        retained, folder = set(task_ids), self._folder / uid
        for name in os.listdir(folder) if folder.is_dir() else ():
            if name not in retained:
                self._open.pop((uid, name), None)
                shutil.rmtree(folder / name, ignore_errors=True)

    def remove(self, uid: str) -> None:
        self.prune(uid, ())
        shutil.rmtree(self._folder / uid, ignore_errors=True)
