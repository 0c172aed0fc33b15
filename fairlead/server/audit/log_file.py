"""The audit log file, its rotation, and the retention of rotated files. Called in the writer thread.

Only the owner can read the file. When it would exceed its size limit it is renamed with a timestamp, and a new file is
opened. If another process moves the file away, a new one is opened too. After each rotation, a separate thread
compresses the rotated files, and removes those that are too many or too old. `disk_usage.py` does the same for several
logs together. The cleanup may be interrupted at any point; the next one continues.
"""

import gzip
import os
import select
import shutil
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import structlog

from fairlead.core.clock import Clock
from fairlead.core.files import FileProblem
from fairlead.server.audit.log_writer import Sink

_TIME = "%Y%m%dT%H%M%S.%fZ"
_PACKED, _DRAFT = ".gz", ".gz.part"

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Backups:
    """The rotated files of `path`: `audit.log` becomes `audit-20260102T030405.000006Z.log`, then `.log.gz`.

    Keeps at most `max_files` files, and none older than `max_days`; 0 means no limit. `max_files` does not remove files
    younger than `min_days`: only `disk_usage.py` removes these, to free disk space.
    """

    path: Path
    count: int
    days: int
    compress: bool
    days_min: int = 0
    _one_at_a_time: threading.Lock = field(default_factory=threading.Lock)

    def next(self, moment: datetime) -> Path:
        """The path for the file that is rotated now. Names sort by age, even if the clock was set back."""
        newest = max((when for when, _ in self._files()), default=None)
        return self.name(moment if newest is None else max(moment, newest + timedelta(microseconds=1)))

    def name(self, moment: datetime) -> Path:
        return self.path.with_name(f"{self.path.stem}-{moment.astimezone(UTC).strftime(_TIME)}{self.path.suffix}")

    def tidy(self, now: datetime) -> None:
        with self._one_at_a_time:
            try:
                self._tidy(now)
            except OSError as error:
                log.warning("could not clean up old audit logs", folder=str(self.path.parent), reason=str(error))

    def _tidy(self, now: datetime) -> None:
        for path in self._named():
            if path.name.endswith(_DRAFT):
                path.unlink(missing_ok=True)
        files = self.files()
        for index, (moment, path) in enumerate(files):
            too_many = self.count and index >= self.count and self.is_expendable(moment, now)
            too_old = self.days and now - moment > timedelta(days=self.days)
            if too_many or too_old:
                path.unlink(missing_ok=True)
            elif self.compress and path.suffix != _PACKED:
                _pack(path)

    def is_expendable(self, rotated: datetime, now: datetime) -> bool:
        """Whether a file that was rotated then is older than the minimum age."""
        return not self.days_min or now - rotated >= timedelta(days=self.days_min)

    def files(self) -> list[tuple[datetime, Path]]:
        """The rotated files with the time of their rotation, newest first."""
        return sorted(self._files(), reverse=True)

    def _files(self) -> Iterator[tuple[datetime, Path]]:
        """Only files whose names have our timestamp format. Other files in the folder are ignored."""
        for path in self._named():
            middle = path.name.removesuffix(_PACKED).removesuffix(self.path.suffix).removeprefix(f"{self.path.stem}-")
            try:
                yield datetime.strptime(middle, _TIME).replace(tzinfo=UTC), path
            except ValueError:
                continue

    def _named(self) -> list[Path]:
        return [path for path in self.path.parent.iterdir() if path.name.startswith(f"{self.path.stem}-")]


def _pack(path: Path) -> None:
    draft = path.with_name(path.name + _DRAFT)
    try:
        _compress(path, draft)
        os.replace(draft, path.with_name(path.name + _PACKED))
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    path.unlink()


def _compress(path: Path, draft: Path) -> None:
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, path.stat().st_mode & 0o777)
    with path.open("rb") as source, os.fdopen(descriptor, "wb") as raw:
        with gzip.GzipFile(fileobj=raw, mode="wb") as packed:
            shutil.copyfileobj(source, packed, 1024 * 1024)
        raw.flush()
        os.fsync(descriptor)


STANDARD_OUTPUT = "-"
MODE = 0o600
POLL_SECONDS = 0.2

Tidy = Callable[[datetime], None]
"""Cleans up rotated files; the argument is the current time."""


class RotatedFile:
    """A log file that is rotated at `max_bytes`. Opens the file at once, so that a wrong path fails at startup.

    `clean_up` is called after each rotation; by default it is the cleanup of `retention`.
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
            advice = "make sure that its folder exists and fairlead's user can write to it, or set audit_path"
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
        # A device such as /dev/null can be written to, but cannot be rotated.
        self._rotates = stat.S_ISREG(status.st_mode)
        self._size = status.st_size if self._rotates else 0
        if self._size and os.pread(self._descriptor, 1, self._size - 1) != b"\n":
            self.write(memoryview(b"\n"))  # the server was killed while it wrote the last line

    def _is_in_place(self) -> bool:
        try:
            opened, current = os.fstat(self._descriptor), os.stat(self._path)
        except OSError:  # opening the file again raises the actual error
            return False
        return (opened.st_dev, opened.st_ino) == (current.st_dev, current.st_ino)

    def _rotate(self) -> None:
        os.rename(self._path, self._backups.next(self._clock.now()))
        self._close()
        self._open()
        self._tidy()

    def _tidy(self) -> None:
        """In a separate thread: compressing a large file takes too long for the writer thread."""
        threading.Thread(target=self._tidy_files, args=(self._clock.now(),), name="fairlead-tidy", daemon=True).start()

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class Descriptor:
    """A sink for a stream that the server does not own, such as standard output."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def make_ready(self, size: int) -> None:
        return None

    def write(self, data: memoryview) -> int:
        """A slow reader is not an error: waits a moment, and the queue absorbs the delay."""
        try:
            return os.write(self._descriptor, data)
        except BlockingIOError:
            select.select((), (self._descriptor,), (), POLL_SECONDS)
            return 0

    def close(self) -> None:
        return None


def open_sink(place: str, backups: Callable[[Path], Backups], size: int, clock: Clock) -> Sink:
    """The sink for a path, or for standard output if it is `-`."""
    if place == STANDARD_OUTPUT:
        return Descriptor(sys.stdout.fileno())
    return RotatedFile(backups(Path(place)), size, clock)
