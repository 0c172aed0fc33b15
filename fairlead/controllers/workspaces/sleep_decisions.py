"""Decides when a workspace falls asleep, wakes up, and is deleted because it is not used. Pure; `sleep.py` acts on it.

The runner measures activity; nothing else counts, above all no requests to this server. Nothing is decided while the
runner is silent or does not know whether the workspace is active. The decision is an annotation, and the runner checks
by its own clock that it still holds before it stops anything: so a clock that jumps, here or there, stops no workspace
that is in use. Deletion has no such second opinion, so `sleep.py` lets an hour pass before it.
"""

from collections.abc import Iterator

from fairlead.core.objects import Object, annotations_of, get_path
from fairlead.domain.sleep_decisions import (
    SLEEP_CANCELLED,
    LastActivity,
    PlannedSleep,
    SleepDecision,
    created_at,
    decide_forced,
    decide_planned,
    describe_request,
    describe_sleep,
    find_end,
    format_time,
    noted_activity,
    parse_time,
    withdraw_announcement,
    without_empty,
)
from fairlead.domain.sleep_mode import (
    IDLE,
    INACTIVITY_SLEEP,
    LAST_ACTIVITY,
    SCHEDULED_TYPE,
    SLEEP_TYPE,
    SleepPolicy,
    build_withdrawal,
    decode_info,
    is_forced,
    parse_seconds,
    read_hold,
    read_policy,
)
from fairlead.registry.conditions import find_condition

RUNNING = "Running"
UNUSED_STATES = ("Stopped", "NotFound")
HOLD_COMMAND = "`fairlead workspace hold`"


def decide(workspace: Object, is_silent: bool, now: int) -> SleepDecision:
    """`is_silent`: nothing is heard from the runner, or it does not exist."""
    if is_forced(workspace):
        return decide_forced(workspace, now)
    sleep_type = annotations_of(workspace).get(SLEEP_TYPE) or ""
    if sleep_type:
        return _decide_asleep(workspace, sleep_type, is_silent, now)
    return _decide_awake(workspace, is_silent, now)


def _decide_asleep(workspace: Object, sleep_type: str, is_silent: bool, now: int) -> SleepDecision:
    end = find_end(workspace, sleep_type, now)
    if end is not None:
        return end
    state = str(get_path(workspace, "status.activity.state") or "")
    still_runs = get_path(workspace, "status.lastWorkspaceStatus") == RUNNING
    if still_runs and sleep_type == INACTIVITY_SLEEP and state not in ("", IDLE):
        event = (SLEEP_CANCELLED, "there was activity before it was stopped")
        return SleepDecision(build_withdrawal(), event=event)
    return SleepDecision(deletes_at=_deletion_time(workspace, is_silent, now))


def _decide_awake(workspace: Object, is_silent: bool, now: int) -> SleepDecision:
    if is_silent:
        return SleepDecision(deletes_at=_deletion_time(workspace, is_silent, now))
    if get_path(workspace, "status.lastWorkspaceStatus") != RUNNING:
        deletes_at = _deletion_time(workspace, is_silent, now)
        return SleepDecision(withdraw_announcement(workspace), deletes_at=deletes_at)
    planned = (*_idle_sleep(workspace, now), *_scheduled_sleep(workspace))
    what = str(get_path(workspace, "status.activity.reason") or "Unknown")
    last = LastActivity(last_activity(workspace, now), what)
    return decide_planned(workspace, planned, last, now, HOLD_COMMAND)


def _idle_sleep(workspace: Object, now: int) -> Iterator[PlannedSleep]:
    """When the workspace sleeps for lack of activity."""
    policy = _policy_of(workspace)
    # Only what does not run is deleted, so it falls asleep before that.
    after = min((each for each in (policy.sleep_after, policy.delete_after) if each), default=0)
    if not after or get_path(workspace, "status.activity.state") != IDLE:
        return
    last = last_activity(workspace, now)
    held = read_hold(workspace, now)
    what = get_path(workspace, "status.activity.reason") or "unknown"
    why = f"no activity since {format_time(last)} ({what})"
    if held > last:
        why += f", and held until {format_time(held)}"
    yield PlannedSleep(max(last, held) + after, INACTIVITY_SLEEP, why)


def _scheduled_sleep(workspace: Object) -> Iterator[PlannedSleep]:
    """When the workspace sleeps because it has run for so long as it may."""
    started = parse_time(get_path(workspace, "status.activity.startTime"))
    longest = _policy_of(workspace).max_run
    if started and longest:
        why = f"it runs since {format_time(started)}, and may run for {longest} seconds at a time"
        yield PlannedSleep(started + longest, SCHEDULED_TYPE, why)


def _deletion_time(workspace: Object, is_silent: bool, now: int) -> int:
    """When the workspace is deleted for lack of use; 0 if it is not, or if too little is known."""
    after = _policy_of(workspace).delete_after
    is_unused = get_path(workspace, "status.lastWorkspaceStatus") in UNUSED_STATES
    if not after or is_silent or not is_unused:
        return 0
    # A workspace that ran without any report about its activity may have been in use all the time.
    task = find_condition(workspace.get("status"), "TaskSucceeded")
    if task is not None and not get_path(workspace, "status.activity.lastActivityTime"):
        return 0
    ended = parse_time((task or {}).get("lastTransitionTime"))
    return max(last_activity(workspace, now), ended, read_hold(workspace, now)) + after


def last_activity(workspace: Object, now: int) -> int:
    """The last activity that is known: measured by the runner, or noted by a client or by a wake-up."""
    started = parse_time(get_path(workspace, "status.activity.startTime"))
    return max(_measured_activity(workspace), noted_activity(workspace, now), started, created_at(workspace))


def _measured_activity(workspace: Object) -> int:
    return parse_time(get_path(workspace, "status.activity.lastActivityTime"))


def _policy_of(workspace: Object) -> SleepPolicy:
    return read_policy(workspace, get_path(workspace, "status.instance"))


def build_sleep_mode(workspace: Object, decision: SleepDecision, now: int) -> Object:
    """`status.sleepModeConfig`: the policy and the state, for people and for the runner. Empty fields are left out."""
    policy = _policy_of(workspace)
    spec = {
        **describe_request(workspace, now),
        "sleepAfter": policy.sleep_after,
        "deleteAfter": policy.delete_after,
        "maxRun": policy.max_run,
    }
    measured = _measured_activity(workspace)
    noted = parse_seconds(annotations_of(workspace).get(LAST_ACTIVITY))
    reason = get_path(workspace, "status.activity.reason")
    state = {
        **describe_sleep(workspace, decision),
        "lastActivity": last_activity(workspace, now) if measured or noted else 0,
        "lastActivityInfo": {"reason": reason} if reason and measured > noted else decode_info(workspace),
    }
    return without_empty({"spec": without_empty(spec), "status": without_empty(state)})
