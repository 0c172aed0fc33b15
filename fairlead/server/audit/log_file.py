"""The audit log file, its rotation, and the retention of rotated files. Called in the writer thread.

Only the owner can read the file. When it would exceed its size limit it is renamed with a timestamp, and a new file is
opened. If another process moves the file away, a new one is opened too. After each rotation, a separate thread
compresses the rotated files, and removes those that are too many or too old. `DiskBudget` (`log.py`) does the same for
several logs together. The cleanup may be interrupted at any point; the next one continues.

Several processes may write to one file. Each locks it (`flock`) for a batch of lines, and only then checks that the
file was not rotated in the meantime. So a batch is never mixed with another, and nothing is written to a rotated file.
Cleanup has a lock file of its own, because compression takes too long to keep the log locked.
"""

import errno
import fcntl
import gzip
import os
import select
import shutil
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import structlog

from fairlead.core.clock import Clock
from fairlead.core.files import FileProblem
from fairlead.server.audit.log_writer import Sink

_TIMESTAMP_FORMAT = "%Y%m%dT%H%M%S.%fZ"
_COMPRESSED_SUFFIX, _PARTIAL_SUFFIX = ".gz", ".gz.part"

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LogRetention:
    """The rotated files of `path`: `audit.log` becomes `audit-20260102T030405.000006Z.log`, then `.log.gz`.

    Keeps at most `max_files` files, and none older than `max_days`; 0 means no limit. `max_files` does not remove files
    younger than `min_days`: only `DiskBudget` removes these, to free disk space.
    """

    path: Path
    max_files: int
    max_days: int
    compress: bool
    min_days: int = 0

    def next_path(self, moment: datetime) -> Path:
        """The path for the file that is rotated now. Names sort by age, even if the clock was set back."""
        newest = max((when for when, _ in self._iter_files()), default=None)
        return self.rotated_path(moment if newest is None else max(moment, newest + timedelta(microseconds=1)))

    def rotated_path(self, moment: datetime) -> Path:
        return self.path.with_name(
            f"{self.path.stem}-{moment.astimezone(UTC).strftime(_TIMESTAMP_FORMAT)}{self.path.suffix}"
        )

    def clean_up(self, now: datetime) -> None:
        with self.lock_cleanup() as is_locked:
            if is_locked:
                self.apply(now)

    @contextmanager
    def lock_cleanup(self) -> Iterator[bool]:
        """Waits until no other thread or process cleans up this log. Yields False if there can be no lock file."""
        path = self.path.with_name(f".{self.path.stem}.lock")
        try:
            descriptor = _open_lock_file(path)
        except OSError as error:
            self._report_failure(error)
            yield False
            return
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield True
        finally:
            os.close(descriptor)

    def apply(self, now: datetime) -> None:
        """Removes and compresses rotated files. The caller holds the lock."""
        try:
            self._apply(now)
        except OSError as error:
            self._report_failure(error)

    def _report_failure(self, error: OSError) -> None:
        log.warning("could not clean up old audit logs", folder=str(self.path.parent), reason=str(error))

    def _apply(self, now: datetime) -> None:
        for path in self._matching_paths():
            if path.name.endswith(_PARTIAL_SUFFIX):
                path.unlink(missing_ok=True)
        files = self.list_files()
        for index, (moment, path) in enumerate(files):
            too_many = self.max_files and index >= self.max_files and self.is_past_min_age(moment, now)
            too_old = self.max_days and now - moment > timedelta(days=self.max_days)
            if too_many or too_old:
                path.unlink(missing_ok=True)
            elif self.compress and path.suffix != _COMPRESSED_SUFFIX:
                _compress_file(path)

    def is_past_min_age(self, rotated_at: datetime, now: datetime) -> bool:
        """Whether a file that was rotated then is older than the minimum age."""
        return not self.min_days or now - rotated_at >= timedelta(days=self.min_days)

    def list_files(self) -> list[tuple[datetime, Path]]:
        """The rotated files with the time of their rotation, newest first."""
        return sorted(self._iter_files(), reverse=True)

    def _iter_files(self) -> Iterator[tuple[datetime, Path]]:
        """Only files whose names have our timestamp format. Other files in the folder are ignored."""
        for path in self._matching_paths():
            middle = (
                path.name.removesuffix(_COMPRESSED_SUFFIX)
                .removesuffix(self.path.suffix)
                .removeprefix(f"{self.path.stem}-")
            )
            try:
                yield datetime.strptime(middle, _TIMESTAMP_FORMAT).replace(tzinfo=UTC), path
            except ValueError:
                continue

    def _matching_paths(self) -> list[Path]:
        return [path for path in self.path.parent.iterdir() if path.name.startswith(f"{self.path.stem}-")]


def _compress_file(path: Path) -> None:
    draft = path.with_name(path.name + _PARTIAL_SUFFIX)
    try:
        _write_compressed(path, draft)
        os.replace(draft, path.with_name(path.name + _COMPRESSED_SUFFIX))
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    path.unlink()


def _write_compressed(path: Path, partial: Path) -> None:
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, path.stat().st_mode & 0o777)
    with path.open("rb") as source, os.fdopen(descriptor, "wb") as raw:
        # A process may still write the batch that it began before the rotation. None begins another one here.
        fcntl.flock(source, fcntl.LOCK_SH)
        with gzip.GzipFile(fileobj=raw, mode="wb") as packed:
            shutil.copyfileobj(source, packed, 1024 * 1024)
        raw.flush()
        os.fsync(descriptor)


STANDARD_OUTPUT = "-"
FILE_MODE = 0o600
POLL_SECONDS = 0.2
LOCK_TIMEOUT_SECONDS = 2.0
"""How long to wait for another process that writes to the same file. It keeps the lock if its disk fails within a line.
"""
LOCK_POLL_SECONDS = 0.001

CleanUp = Callable[[datetime], None]
"""Cleans up rotated files; the argument is the current time."""


class RotatingFile:
    """A log file that is rotated at `max_bytes`. Opens the file at once, so that a wrong path fails at startup.

    `clean_up` is called after each rotation; by default it is the cleanup of `retention`.
    """

    def __init__(self, retention: LogRetention, max_bytes: int, clock: Clock, clean_up: CleanUp | None = None) -> None:
        self._retention = retention
        self._clean_up = clean_up or retention.clean_up
        self._path = retention.path
        self._max_bytes = max_bytes
        self._clock = clock
        self._descriptor = -1
        self._is_locked = False
        self._size = 0
        """The size up to which the file is known to end with a complete line."""
        self._is_regular_file, self._is_pipe = True, False
        try:
            self._open()
        except OSError as error:
            advice = "make sure that its folder exists and fairlead's user can write to it, or set audit_path"
            raise FileProblem(f"{self._path}: {error.strerror}; {advice}") from error
        self._start_clean_up()

    def prepare_write(self, size: int) -> None:
        self._lock_current_file()
        if not self._is_regular_file:
            return
        try:
            self._terminate_last_line()
            if self._size and self._size + size > self._max_bytes:
                self._rotate()
        except OSError:
            self.end_write()
            raise

    def write(self, data: memoryview) -> int:
        count = os.write(self._descriptor, data)
        self._size += count
        return count

    def end_write(self) -> None:
        if self._is_locked:
            self._is_locked = False
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        self._close()

    def _open(self) -> None:
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        # A device such as /dev/null can be written to, but cannot be rotated.
        mode = os.fstat(self._descriptor).st_mode
        self._is_regular_file = stat.S_ISREG(mode)
        self._is_pipe = stat.S_ISFIFO(mode)
        self._size = 0

    def _lock_current_file(self) -> None:
        """Locks the file that is at the path now: another process may have rotated it, or moved it away."""
        deadline = time.monotonic() + LOCK_TIMEOUT_SECONDS
        while True:
            if self._descriptor < 0:
                self._open()
            if not self._is_regular_file:
                if self._is_pipe:
                    # Without a timeout, as in `StreamSink`.
                    fcntl.flock(self._descriptor, fcntl.LOCK_EX)
                    self._is_locked = True
                return
            if not self._is_locked:
                self._lock(deadline)
            if self._is_current_file():
                return
            self._close()

    def _lock(self, deadline: float) -> None:
        while True:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._is_locked = True
                return
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise OSError(errno.ETIMEDOUT, "another process keeps the audit log locked") from None
                time.sleep(LOCK_POLL_SECONDS)

    def _terminate_last_line(self) -> None:
        """Ends a line that a process was writing when it was killed."""
        size = os.fstat(self._descriptor).st_size
        if size != self._size:  # another process has written, or the file was just opened
            self._size = size
            if size and os.pread(self._descriptor, 1, size - 1) != b"\n":
                self.write(memoryview(b"\n"))

    def _is_current_file(self) -> bool:
        try:
            opened = os.fstat(self._descriptor)
            current = os.stat(self._path)
        except OSError:  # opening the file again raises the actual error
            return False
        return (opened.st_dev, opened.st_ino) == (current.st_dev, current.st_ino)

    def _rotate(self) -> None:
        os.rename(self._path, self._retention.next_path(self._clock.now()))
        self._close()
        self._lock_current_file()
        # Another process may have been faster, and has already written to the new file, or even rotated it.
        self._terminate_last_line()
        self._start_clean_up()

    def _start_clean_up(self) -> None:
        """In a separate thread: compressing a large file takes too long for the writer thread."""
        threading.Thread(target=self._clean_up, args=(self._clock.now(),), name="fairlead-tidy", daemon=True).start()

    def _close(self) -> None:
        descriptor, self._descriptor, self._is_locked = self._descriptor, -1, False
        if descriptor >= 0:
            os.close(descriptor)


class StreamSink:
    """A sink for a stream that the server does not own, such as standard output.

    If several processes write to it, they need a lock file: the kernel mixes large writes to a pipe. They wait for it
    without a timeout, because a slow reader is not an error.
    """

    def __init__(self, descriptor: int, lock_path: Path | None = None) -> None:
        self._descriptor = descriptor
        self._lock_descriptor = _open_lock_file(lock_path) if lock_path is not None else None

    def prepare_write(self, size: int) -> None:
        if self._lock_descriptor is not None:
            fcntl.flock(self._lock_descriptor, fcntl.LOCK_EX)

    def write(self, data: memoryview) -> int:
        """A slow reader is not an error: waits a moment, and the queue absorbs the delay."""
        try:
            return os.write(self._descriptor, data)
        except BlockingIOError:
            select.select((), (self._descriptor,), (), POLL_SECONDS)
            return 0

    def end_write(self) -> None:
        if self._lock_descriptor is not None:
            fcntl.flock(self._lock_descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        descriptor, self._lock_descriptor = self._lock_descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def _open_lock_file(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)


def open_sink(
    destination: str,
    retention: Callable[[Path], LogRetention],
    max_bytes: int,
    clock: Clock,
    output_lock: Path | None = None,
) -> Sink:
    """The sink for a path, or for standard output if it is `-`. `output_lock` is the lock file for standard output."""
    if destination == STANDARD_OUTPUT:
        return StreamSink(sys.stdout.fileno(), output_lock)
    return RotatingFile(retention(Path(destination)), max_bytes, clock)
