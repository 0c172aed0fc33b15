"""Samples the running workspaces every half minute, and reports to the server when the answer changes.

A report is written when a workspace becomes active or idle, at most once a minute for each. In between, the server
knows from the heartbeat that the runner is there, so that no news is news.
"""

import asyncio
from datetime import datetime, timedelta

import structlog

from fairlead.client import ClientError
from fairlead.core.clock import parse_rfc3339, timestamp
from fairlead.core.objects import Object, get_path, metadata
from fairlead.runner.activity import SAMPLE_SECONDS, ActivityTracker
from fairlead.runner.api import is_gone
from fairlead.runner.decisions import IDLE
from fairlead.runner.engines.contract import ActivitySample, ContainerState, EngineError, MeasuringEngine
from fairlead.runner.heartbeat import Replaced
from fairlead.runner.reconcile import WorkspaceReconciler
from fairlead.runner.services import RunnerServices
from fairlead.runner.workspaces import WorkspaceSet

log = structlog.get_logger(__name__)

REPORT_SECONDS = 60.0
MEASURE_SECONDS = 20.0


class ActivityMonitor:
    def __init__(self, services: RunnerServices, workspaces: WorkspaceSet) -> None:
        self._services = services
        self._workspaces = workspaces
        self._reported_at: dict[str, float] = {}

    async def run(self) -> None:
        """Runs for ever. Raises Replaced if another process has taken over this runner."""
        while True:
            for uid, reconciler in list(self._workspaces.all().items()):
                try:
                    await self._check(uid, reconciler)
                except Replaced:
                    raise
                except Exception as error:  # of this workspace alone
                    log.error("the activity of a workspace could not be measured", uid=uid, exc_info=error)
            for uid in self._reported_at.keys() - self._workspaces.all().keys():
                del self._reported_at[uid]
                self._services.activity.forget(uid)
            await asyncio.sleep(SAMPLE_SECONDS)

    async def _check(self, uid: str, reconciler: WorkspaceReconciler) -> None:
        record, workspace = reconciler.record, reconciler.workspace
        if record is None or workspace is None or get_path(workspace, "status.ignoreReconciliation"):
            return
        ledger, clock = self._services.activity, self._services.clock
        runs, sample = await self._measure(uid, record.engine)
        if not runs and not reconciler.is_busy:
            report = _describe_end(workspace, ledger.get(uid), clock.now(), clock.monotonic())
            ledger.forget(uid)
        elif runs:
            tracker = ledger.track(uid)
            now = clock.monotonic()
            tracker.observe(sample, ledger.traffic.collect(uid), reconciler.is_busy, now)
            started = sample.started_at if sample is not None else None
            report = describe_activity(tracker, clock.now(), now, started)
        else:
            return  # a task is under way, and nothing runs: it is being started or stopped
        await self._report(uid, workspace, report)

    async def _measure(self, uid: str, engine_name: str) -> tuple[bool, ActivitySample | None]:
        """Whether the workspace runs, and a sample of it, if that is possible."""
        engine = self._services.engines.get(engine_name)
        if engine is None:
            return False, None
        try:
            async with asyncio.timeout(MEASURE_SECONDS):
                if isinstance(engine, MeasuringEngine):
                    sample = await engine.measure(uid)
                    return sample is not None, sample
                return (await engine.status(uid)).state is ContainerState.RUNNING, None
        except (EngineError, OSError, TimeoutError) as error:
            log.warning("the activity of a workspace is unknown", uid=uid, error=str(error))
            return self._services.activity.get(uid) is not None, None

    async def _report(self, uid: str, workspace: Object, report: Object) -> None:
        before = get_path(workspace, "status.activity") or {}
        now = self._services.clock.monotonic()
        if not differs(report, before) or now - self._reported_at.get(uid, -REPORT_SECONDS) < REPORT_SECONDS:
            return
        self._reported_at[uid] = now
        try:
            await self._services.fence.require_current()
            patch = {"metadata": {"uid": metadata(workspace)["uid"]}, "status": {"activity": report}}
            await self._services.api.patch_workspace(workspace, patch)
        except ClientError as error:
            if not is_gone(error):
                log.warning("the activity of a workspace could not be reported", uid=uid, error=str(error))


def describe_activity(tracker: ActivityTracker, wall: datetime, now: float, started: datetime | None) -> Object:
    """The value of `status.activity`. The time of the last activity is derived from how long ago it was."""
    last = wall - timedelta(seconds=now - tracker.last_at)
    return {
        "state": tracker.state(now),
        "reason": str(tracker.cause),
        "lastActivityTime": timestamp(last),
        "startTime": timestamp(started) if started is not None else None,
    }


def _describe_end(workspace: Object, tracker: ActivityTracker | None, wall: datetime, now: float) -> Object:
    """The report about a workspace that does not run: what its last activity was."""
    before: Object = get_path(workspace, "status.activity") or {}
    if tracker is not None:
        before = describe_activity(tracker, wall, now, None)
    return {**before, "state": "", "startTime": None} if before else {}


def differs(report: Object, before: Object) -> bool:
    """Whether a report says something new. While a workspace stays active, only the kind of activity changes, which is
    not worth a write."""
    if not report:
        return False
    if any((report.get(name) or "") != (before.get(name) or "") for name in ("state", "startTime")):
        return True
    last = parse_rfc3339(report.get("lastActivityTime"))
    known = parse_rfc3339(before.get("lastActivityTime"))
    if report["state"] != IDLE or last is None:
        return False
    return known is None or abs((last - known).total_seconds()) > SAMPLE_SECONDS
