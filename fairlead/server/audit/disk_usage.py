"""The files of all logs together: how much of the disk they take, and which go first when that is too much.

What nobody has signed in for goes first, then what agents have reported, and the log of people last. A file that goes
although it is younger than the least age is an alarm: in the server's log, and in the metrics. `log_file.py` calls after
each rotation, in a thread of its own.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import structlog

from fairlead.server.audit.log_file import Backups

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Shelf:
    """`logs` are the old files by the name of their log, in the order in which they go. A `budget` of 0 is no limit."""

    logs: Mapping[str, Backups]
    budget: int
    removed_early: dict[str, int] = field(default_factory=dict)
    """By log: files that were removed before their time."""
    _last_alarm: datetime | None = None
    _one_at_a_time: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.removed_early = dict.fromkeys(self.logs, 0)

    def tidy(self, now: datetime) -> None:
        with self._one_at_a_time:
            for backups in self.logs.values():
                backups.tidy(now)
            try:
                self._make_room(now)
            except OSError as error:
                log.warning("old audit logs could not be removed to make room", reason=str(error))

    def is_complete(self, now: datetime) -> bool:
        """Whether everything is still there that is younger than the least age, as far as this server has seen."""
        least = max((backups.days_min for backups in self.logs.values()), default=0)
        return self._last_alarm is None or now - self._last_alarm >= timedelta(days=least)

    def _make_room(self, now: datetime) -> None:
        if not self.budget:
            return
        size = self.size()
        for name, backups in self.logs.items():
            for rotated, path in reversed(backups.files()):
                if size <= self.budget:
                    return
                size -= path.stat().st_size
                path.unlink()
                if not backups.is_expendable(rotated, now):
                    self._alarm(name, path.name, backups.days_min, now)

    def size(self) -> int:
        """Bytes of all files, those included that are being written."""
        size = 0
        for backups in self.logs.values():
            for path in (backups.path, *(path for _, path in backups.files())):
                try:
                    size += path.stat().st_size
                except FileNotFoundError:
                    continue
        return size

    def _alarm(self, name: str, file: str, days_min: int, now: datetime) -> None:
        self.removed_early[name] += 1
        self._last_alarm = now
        log.error(
            "audit records were removed before their time because all audit files together are too large; "
            "find out who floods the log, raise audit_disk, or ship the files elsewhere",
            log=name,
            file=file,
            audit_days_min=days_min,
        )
