"""The disk budget of all audit logs together: removes rotated files when they exceed it.

The logs lose files in the order in which they are given: unauthenticated requests first, then agent reports, and those
of signed-in users last. Removing a file younger than the minimum age is reported in the server log and in the metrics.
`log_file.py` calls this after each rotation, in a separate thread.
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
    """`logs` are the rotated files by log name, in the order of removal. `max_bytes` of 0 means no limit."""

    logs: Mapping[str, Backups]
    budget: int
    removed_early: dict[str, int] = field(default_factory=dict)
    """By log: files removed before they reached the minimum age."""
    _last_alarm: datetime | None = None
    _one_at_a_time: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.removed_early = dict.fromkeys(self.logs, 0)

    def tidy(self, now: datetime) -> None:
        with self._one_at_a_time:
            for retention in self.logs.values():
                retention.tidy(now)
            try:
                self._make_room(now)
            except OSError as error:
                log.warning("could not remove old audit logs to free disk space", reason=str(error))

    def is_complete(self, now: datetime) -> bool:
        """Whether all events younger than the minimum age are still there, as far as this process knows."""
        min_days = max((retention.days_min for retention in self.logs.values()), default=0)
        return self._last_alarm is None or now - self._last_alarm >= timedelta(days=min_days)

    def _make_room(self, now: datetime) -> None:
        if not self.budget:
            return
        total = self.size()
        for name, retention in self.logs.items():
            for rotated, path in reversed(retention.files()):
                if total <= self.budget:
                    return
                total -= path.stat().st_size
                path.unlink()
                if not retention.is_expendable(rotated, now):
                    self._alarm(name, path.name, retention.days_min, now)

    def size(self) -> int:
        """Bytes of all files, including those being written."""
        total = 0
        for retention in self.logs.values():
            for path in (retention.path, *(path for _, path in retention.files())):
                try:
                    total += path.stat().st_size
                except FileNotFoundError:
                    continue
        return total

    def _alarm(self, name: str, file: str, days_min: int, now: datetime) -> None:
        self.removed_early[name] += 1
        self._last_alarm = now
        log.error(
            "removed audit files before audit_days_min because the audit logs exceed audit_disk; "
            "find the source of the flood, raise audit_disk, or ship the files elsewhere",
            log=name,
            file=file,
            audit_days_min=days_min,
        )
