"""Log files that were rotated away: compressed, and removed when they are too many or too old.

Called by `files.py` after each rotation, in a thread of its own, or by `shelf.py` for several logs. It may be
interrupted at any point; the next time goes on where it stopped.
"""

import gzip
import os
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import structlog

_TIME = "%Y%m%dT%H%M%S.%fZ"
_PACKED, _DRAFT = ".gz", ".gz.part"

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Backups:
    """The old files beside `path`: `audit.log` becomes `audit-20260102T030405.000006Z.log`, then with `.gz`.

    `count` files at most and none older than `days`, both without limit if 0. However many there are, none goes that
    is younger than `days_min`: then only `shelf.py` removes them, to make room.
    """

    path: Path
    count: int
    days: int
    compress: bool
    days_min: int = 0
    _one_at_a_time: threading.Lock = field(default_factory=threading.Lock)

    def next(self, moment: datetime) -> Path:
        """Where the file goes that is rotated now. Names sort by age, even if the clock was set back meanwhile."""
        newest = max((when for when, _ in self._files()), default=None)
        return self.name(moment if newest is None else max(moment, newest + timedelta(microseconds=1)))

    def name(self, moment: datetime) -> Path:
        return self.path.with_name(f"{self.path.stem}-{moment.astimezone(UTC).strftime(_TIME)}{self.path.suffix}")

    def tidy(self, now: datetime) -> None:
        with self._one_at_a_time:
            try:
                self._tidy(now)
            except OSError as error:
                log.warning("old audit logs could not be tidied up", folder=str(self.path.parent), reason=str(error))

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
        """Whether a file that was rotated then is older than the least age."""
        return not self.days_min or now - rotated >= timedelta(days=self.days_min)

    def files(self) -> list[tuple[datetime, Path]]:
        """The old files and when they were rotated, the newest first."""
        return sorted(self._files(), reverse=True)

    def _files(self) -> Iterator[tuple[datetime, Path]]:
        """Only what bears a name of ours: what else lies in the folder is none of our business."""
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
    with path.open("rb") as plain, os.fdopen(descriptor, "wb") as raw:
        with gzip.GzipFile(fileobj=raw, mode="wb") as packed:
            shutil.copyfileobj(plain, packed, 1024 * 1024)
        raw.flush()
        os.fsync(descriptor)
