"""The activity of all workspaces of this process, and its word on whether one may be put to sleep.

The server decides by the wall clock, from a report that may be old. Before the runner stops a workspace for lack of
activity, a sample that was taken after the decision must show that it was idle for so long, by the monotonic clock.
"""

from dataclasses import replace
from datetime import datetime

from fairlead.core.clock import Clock, parse_rfc3339
from fairlead.core.objects import Object, get_path
from fairlead.runner.activity.tracker import SAMPLE_SECONDS, ActivityTracker
from fairlead.runner.activity.traffic import SessionTraffic
from fairlead.runner.decisions import Wanted
from fairlead.runner.sleep_requests import IDLE, INACTIVITY_SLEEP, sleeping_since

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
