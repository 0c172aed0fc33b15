"""The activity of one running workspace. Pure: times are those of a monotonic clock, which the caller passes.

Times of the wall clock are only compared with each other, so that a clock that jumps changes nothing.
"""

from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum

from fairlead.runner.activity.traffic import KEEPALIVE_BYTES, TrafficSample
from fairlead.runner.engines.contract import ActivitySample
from fairlead.runner.sleep_requests import ACTIVE, IDLE, UNKNOWN

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
