"""Bytes that clients send in sessions, by workspace. Sessions themselves do not count: they may be open and dead."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

KEEPALIVE_BYTES = 4096
"""What the client of an encrypted or forwarded connection sends in half a minute without its user: keepalives of SSH
(about 100 bytes each), of editors and of WebSockets."""


@dataclass(slots=True, eq=False)
class SessionMeter:
    """The bytes of one session since the last sample. `allowance` of them do not count. Output counts for downloads
    only: programs print without a user, too."""

    allowance: int = 0
    is_download: bool = False
    count: int = 0

    def add(self, size: int) -> None:
        self.count += size

    def add_output(self, size: int) -> None:
        if self.is_download:
            self.count += size


@dataclass(frozen=True, slots=True)
class TrafficSample:
    """What sessions did since the last sample."""

    has_started: bool = False
    has_ended: bool = False
    has_input: bool = False


@dataclass(slots=True)
class _Workspace:
    meters: set[SessionMeter] = field(default_factory=set)
    has_started: bool = False
    has_ended: bool = False
    has_input: bool = False


class SessionTraffic:
    def __init__(self) -> None:
        self._workspaces: dict[str, _Workspace] = {}

    @contextmanager
    def measure(self, uid: str, allowance: int = 0, is_download: bool = False) -> Iterator[SessionMeter]:
        """Counts one session. `allowance` is for sessions whose bytes include keepalives, `KEEPALIVE_BYTES`."""
        found = self._workspaces.setdefault(uid, _Workspace())
        meter = SessionMeter(allowance, is_download)
        found.meters.add(meter)
        found.has_started = True
        try:
            yield meter
        finally:
            found.meters.discard(meter)
            found.has_ended = True
            found.has_input = found.has_input or meter.count > meter.allowance

    def collect(self, uid: str) -> TrafficSample:
        """What happened since the last call."""
        found = self._workspaces.get(uid)
        if found is None:
            return TrafficSample()
        has_input = found.has_input or any(meter.count > meter.allowance for meter in found.meters)
        sample = TrafficSample(found.has_started, found.has_ended, has_input)
        for meter in found.meters:
            meter.count = 0
        found.has_started = found.has_ended = found.has_input = False
        if not found.meters:
            del self._workspaces[uid]
        return sample
