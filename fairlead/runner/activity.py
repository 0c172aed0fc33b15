"""Whether workspaces are in use, as far as the runner can measure it without looking at content.

- `SessionTraffic`: bytes of sessions, counted while they pass through the runner in a `MeteredStream`
- `ActivityTracker`: the activity of one workspace, from samples of its engine, its sessions and its tasks
- `ActivityLedger`: the trackers of all workspaces, and whether a workspace may be put to sleep

`activity_monitor.py` takes the samples, and reports to the server, which decides what follows from it. Times are those
of a monotonic clock. Times of the wall clock are only compared with each other, so that a clock that jumps changes
nothing.
"""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from fairlead.core.clock import Clock, parse_rfc3339
from fairlead.core.objects import Object, get_path
from fairlead.links.contract import Stream
from fairlead.links.frames import STDIN
from fairlead.links.requests import ResponseHead
from fairlead.links.streams import Data, Message
from fairlead.runner.decisions import ACTIVE, IDLE, INACTIVITY_SLEEP, UNKNOWN, Wanted, sleeping_since
from fairlead.runner.engines.contract import ActivitySample

# --- sessions ---------------------------------------------------------------------------------------------------------

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


@dataclass(frozen=True, slots=True)
class MeteredStream:
    """Implements `Stream`. What the client sends is input; what is sent to it is output."""

    stream: Stream
    meter: SessionMeter

    @property
    def details(self) -> dict[str, Any]:
        return self.stream.details

    async def accept(self, details: dict[str, Any]) -> None:
        await self.stream.accept(details)

    async def receive(self) -> Message | None:
        message = await self.stream.receive()
        if isinstance(message, Data) and message.channel == STDIN:
            self.meter.add(len(message.content))
        return message

    async def send(self, channel: int, data: bytes) -> None:
        self.meter.add_output(len(data))
        await self.stream.send(channel, data)

    async def send_head(self, head: ResponseHead) -> None:
        await self.stream.send_head(head)

    async def send_eof(self, channel: int) -> None:
        await self.stream.send_eof(channel)

    async def send_exit(self, code: int) -> None:
        await self.stream.send_exit(code)

    async def reset(self, reason: str) -> None:
        await self.stream.reset(reason)

    def abandon(self, reason: str) -> None:
        self.stream.abandon(reason)


# --- one workspace ----------------------------------------------------------------------------------------------------

SAMPLE_SECONDS = 30.0
IDLE_SECONDS = 300.0
"""A workspace without activity for so long is idle. It never falls asleep earlier, also not after a disconnect."""
CPU_SECONDS = 30.0
"""CPU time within `IDLE_SECONDS` from which on a workspace is active: a tenth of a core."""
MAX_FAILURES = 2


class Cause(StrEnum):
    """What an activity was; the reasons of `status.activity`."""

    STARTED = "Started"
    TERMINAL_INPUT = "TerminalInput"
    TERMINAL_OUTPUT = "TerminalOutput"
    SESSION_STARTED = "SessionStarted"
    SESSION_INPUT = "SessionInput"
    PORT_TRAFFIC = "PortTraffic"
    CPU = "Cpu"
    FILES_WRITTEN = "FilesWritten"
    TASK = "Task"
    NOT_MEASURED = "NotMeasured"


@dataclass(slots=True)
class ActivityTracker:
    """`last_at` is the last activity, `cause` what it was."""

    last_at: float
    cause: Cause = Cause.STARTED
    sampled_at: float = 0.0
    _quiet_from: float = 0.0
    _failures: int = 0
    _before: ActivitySample | None = None
    _cpu: deque[tuple[float, float]] = field(default_factory=deque)

    def observe(self, sample: ActivitySample | None, traffic: TrafficSample, is_busy: bool, now: float) -> None:
        """Takes a sample. None: the engine could not take one."""
        self.sampled_at = now
        self._failures = 0 if sample is not None else self._failures + 1
        if traffic.has_ended:
            self._quiet_from = now + IDLE_SECONDS
        cause = self._find_cause(sample, traffic, is_busy, now)
        if cause is None and self._failures >= MAX_FAILURES:
            cause = Cause.NOT_MEASURED
        if cause is not None:
            self.last_at, self.cause = now, cause

    def state(self, now: float) -> str:
        if self._failures >= MAX_FAILURES:
            return UNKNOWN
        return ACTIVE if now < max(self.last_at + IDLE_SECONDS, self._quiet_from) else IDLE

    def _find_cause(
        self, sample: ActivitySample | None, traffic: TrafficSample, is_busy: bool, now: float
    ) -> Cause | None:
        if is_busy:
            self._remember(sample, now)
            return Cause.TASK
        found = self._compare(sample, now) if sample is not None else None
        if found is Cause.TERMINAL_INPUT:
            return found
        if traffic.has_input:
            return Cause.SESSION_INPUT
        return Cause.SESSION_STARTED if traffic.has_started else found

    def _compare(self, sample: ActivitySample, now: float) -> Cause | None:
        """What has happened since the last sample, the most telling cause first."""
        before = self._before
        self._remember(sample, now)
        if before is None or before.started_at != sample.started_at:
            return Cause.STARTED
        terminals = [(each, before.terminals[key]) for key, each in sample.terminals.items() if key in before.terminals]
        if any(each.input_at != earlier.input_at for each, earlier in terminals):
            return Cause.TERMINAL_INPUT
        connections = ((count, before.connections.get(key, 0)) for key, count in sample.connections.items())
        if any(count - earlier > KEEPALIVE_BYTES for count, earlier in connections):
            return Cause.PORT_TRAFFIC
        if sample.newest_write != before.newest_write:
            return Cause.FILES_WRITTEN
        if any(each.has_job and each.output_at != earlier.output_at for each, earlier in terminals):
            return Cause.TERMINAL_OUTPUT
        return Cause.CPU if sample.cpu_seconds - self._cpu[0][1] > CPU_SECONDS else None

    def _remember(self, sample: ActivitySample | None, now: float) -> None:
        if sample is None:
            return
        if self._before is not None and sample.cpu_seconds < self._before.cpu_seconds:
            self._cpu.clear()  # the processes are others
        self._before = sample
        self._cpu.append((now, sample.cpu_seconds))
        while self._cpu[0][0] < now - IDLE_SECONDS:
            self._cpu.popleft()


# --- all workspaces ---------------------------------------------------------------------------------------------------

TOLERANCE_SECONDS = 2 * SAMPLE_SECONDS
RUNNING = "Running"


class ActivityLedger:
    def __init__(self, clock: Clock) -> None:
        self.traffic = SessionTraffic()
        self._clock = clock
        self._trackers: dict[str, ActivityTracker] = {}
        self._requested: dict[str, tuple[str, float]] = {}
        """By uid: the last decision to sleep, and when it was first seen."""

    def get(self, uid: str) -> ActivityTracker | None:
        """None for a workspace that does not run, or has not been measured."""
        return self._trackers.get(uid)

    def track(self, uid: str) -> ActivityTracker:
        """The tracker of a running workspace. Nothing is known about the time before the first sample, so the workspace
        counts as active in it."""
        return self._trackers.setdefault(uid, ActivityTracker(self._clock.monotonic()))

    def forget(self, uid: str) -> None:
        self._trackers.pop(uid, None)
        self._requested.pop(uid, None)

    def review(self, uid: str, workspace: Object, wanted: Wanted) -> Wanted:
        """What is wanted, without a sleep that what was measured here does not confirm."""
        if not wanted.is_asleep or get_path(workspace, "status.lastWorkspaceStatus") != RUNNING:
            return wanted
        if wanted.sleep_type == INACTIVITY_SLEEP:
            is_confirmed = self._is_idle(uid, workspace)
        else:
            is_confirmed = wanted.is_forced or self._has_run_for_long(workspace)
        return wanted if is_confirmed else replace(wanted, is_asleep=False)

    def _is_idle(self, uid: str, workspace: Object) -> bool:
        decision = sleeping_since(workspace)
        now = self._clock.monotonic()
        if self._requested.get(uid, ("", 0.0))[0] != decision:
            self._requested[uid] = (decision, now)
        tracker = self._trackers.get(uid)
        if tracker is None or tracker.sampled_at <= self._requested[uid][1] or tracker.state(now) != IDLE:
            return False
        policy = get_path(workspace, "status.sleepModeConfig.spec") or {}
        after = min((int(policy[name]) for name in ("sleepAfter", "deleteAfter") if policy.get(name)), default=0)
        return now - tracker.last_at >= after - TOLERANCE_SECONDS

    def _has_run_for_long(self, workspace: Object) -> bool:
        started: datetime | None = parse_rfc3339(get_path(workspace, "status.activity.startTime"))
        longest = get_path(workspace, "status.sleepModeConfig.spec.maxRun") or 0
        return started is None or (self._clock.now() - started).total_seconds() >= longest - TOLERANCE_SECONDS
