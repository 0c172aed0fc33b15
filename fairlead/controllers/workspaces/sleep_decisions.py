"""Decides when a workspace falls asleep, wakes up, and is deleted because it is not used. Pure; `sleep.py` acts on it.

The runner measures activity; nothing else counts, above all no requests to this server. Nothing is decided while the
runner is silent or does not know whether the workspace is active. The decision is an annotation, and the runner checks
by its own clock that it still holds before it stops anything: so a clock that jumps, here or there, stops no workspace
that is in use. Deletion has no such second opinion, so `sleep.py` lets an hour pass before it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

from fairlead.core.clock import parse_rfc3339, timestamp
from fairlead.core.objects import Object, get_path, metadata
from fairlead.domain.sleep_mode import (
    CLOCK_TOLERANCE,
    FORCE_DURATION,
    FORCED_DURATION_SLEEP,
    FORCED_SLEEP,
    IDLE,
    INACTIVITY_SLEEP,
    LAST_ACTIVITY,
    LAST_ACTIVITY_INFO,
    SCHEDULED_SLEEP,
    SCHEDULED_TYPE,
    SLEEP_TYPE,
    SLEEPING_SINCE,
    Changes,
    annotations_of,
    build_wake,
    decode_info,
    encode_info,
    is_forced,
    parse_seconds,
    read_hold,
    read_policy,
)
from fairlead.registry.conditions import find_condition

WARN_SECONDS = 600
"""How long before it falls asleep a workspace gets an Event about it."""
RUNNING = "Running"
UNUSED_STATES = ("Stopped", "NotFound")
SLEEP_SCHEDULED, FELL_ASLEEP, SLEEP_CANCELLED, WOKEN_UP = "SleepScheduled", "FellAsleep", "SleepCancelled", "WokenUp"


@dataclass(frozen=True, slots=True)
class SleepDecision:
    """`changes` are those of annotations. `sleeps_at` and `deletes_at` are 0 if that is not foreseeable. `event` is a
    reason and a message, to be recorded if the changes are written."""

    changes: Changes = field(default_factory=dict)
    sleeps_at: int = 0
    deletes_at: int = 0
    event: tuple[str, str] | None = None
    recheck_at: int = 0


def decide(workspace: Object, is_silent: bool, now: int) -> SleepDecision:
    """`is_silent`: nothing is heard from the runner, or it does not exist."""
    if is_forced(workspace):
        return _decide_forced(workspace, now)
    sleep_type = annotations_of(workspace).get(SLEEP_TYPE) or ""
    if sleep_type:
        return _decide_asleep(workspace, sleep_type, is_silent, now)
    return _decide_awake(workspace, is_silent, now)


def _decide_forced(workspace: Object, now: int) -> SleepDecision:
    """A user has requested the sleep; with a duration, it ends by itself."""
    notes = annotations_of(workspace)
    duration = parse_seconds(notes.get(FORCE_DURATION))
    since = parse_seconds(notes.get(SLEEPING_SINCE))
    sleep_type = FORCED_DURATION_SLEEP if duration else FORCED_SLEEP
    if not notes.get(SLEEP_TYPE, "").startswith("forced") or not 0 < since <= now + CLOCK_TOLERANCE:
        since = now
    if duration and now >= since + duration:
        message = "the requested duration of the sleep is over"
        return SleepDecision(build_wake(now, encode_info("DurationOver", message)), event=(WOKEN_UP, message))
    changes: Changes = {SLEEP_TYPE: sleep_type, SLEEPING_SINCE: str(since), SCHEDULED_SLEEP: None}
    return SleepDecision(changes, recheck_at=since + duration if duration else 0)


def _decide_asleep(workspace: Object, sleep_type: str, is_silent: bool, now: int) -> SleepDecision:
    notes = annotations_of(workspace)
    since = parse_seconds(notes.get(SLEEPING_SINCE))
    if sleep_type.startswith("forced"):
        message = "the request to sleep was withdrawn"
        return SleepDecision(build_wake(now, encode_info("ForceRemoved", message)), event=(WOKEN_UP, message))
    if not _created(workspace) <= since <= now + CLOCK_TOLERANCE:  # copied from another object, or made up
        return SleepDecision({SLEEP_TYPE: None, SLEEPING_SINCE: None, SCHEDULED_SLEEP: None})
    if parse_seconds(notes.get(LAST_ACTIVITY)) > since:
        changes: Changes = {SLEEP_TYPE: None, SLEEPING_SINCE: None, SCHEDULED_SLEEP: None}
        return SleepDecision(changes, event=(WOKEN_UP, f"the annotation {LAST_ACTIVITY} was set"))
    state = str(get_path(workspace, "status.activity.state") or "")
    still_runs = get_path(workspace, "status.lastWorkspaceStatus") == RUNNING
    if still_runs and sleep_type == INACTIVITY_SLEEP and state not in ("", IDLE):
        changes = {SLEEP_TYPE: None, SLEEPING_SINCE: None, SCHEDULED_SLEEP: None}
        return SleepDecision(changes, event=(SLEEP_CANCELLED, "there was activity before it was stopped"))
    return SleepDecision(deletes_at=_deletion_time(workspace, is_silent, now))


def _decide_awake(workspace: Object, is_silent: bool, now: int) -> SleepDecision:
    notes = annotations_of(workspace)
    if is_silent or get_path(workspace, "status.lastWorkspaceStatus") != RUNNING:
        withdrawn: Changes = {SCHEDULED_SLEEP: None} if SCHEDULED_SLEEP in notes and not is_silent else {}
        return SleepDecision(withdrawn, deletes_at=_deletion_time(workspace, is_silent, now))
    candidates = sorted((*_idle_sleep(workspace, now), *_scheduled_sleep(workspace)))
    if not candidates:
        withdrawn = {SCHEDULED_SLEEP: None} if SCHEDULED_SLEEP in notes else {}
        return SleepDecision(withdrawn)
    at, sleep_type, why = candidates[0]
    if now >= at:
        what = str(get_path(workspace, "status.activity.reason") or "Unknown")
        asleep: Changes = {
            **{SLEEP_TYPE: sleep_type, SLEEPING_SINCE: str(now), SCHEDULED_SLEEP: None},
            **{LAST_ACTIVITY: str(min(last_activity(workspace, now), now)), LAST_ACTIVITY_INFO: encode_info(what, why)},
        }
        return SleepDecision(asleep, event=(FELL_ASLEEP, why))
    if now < at - WARN_SECONDS:
        withdrawn = {SCHEDULED_SLEEP: None} if SCHEDULED_SLEEP in notes else {}
        return SleepDecision(withdrawn, at, recheck_at=at - WARN_SECONDS)
    message = f"{why}; it sleeps at {format_time(at)}"
    if sleep_type == INACTIVITY_SLEEP:
        message += ", unless it is used; `fairlead workspace hold` keeps it awake"
    is_new = notes.get(SCHEDULED_SLEEP) != str(at)
    event = (SLEEP_SCHEDULED, message) if is_new else None
    return SleepDecision({SCHEDULED_SLEEP: str(at)}, at, event=event, recheck_at=at)


def _idle_sleep(workspace: Object, now: int) -> Iterator[tuple[int, str, str]]:
    """When the workspace sleeps for lack of activity: the time, the type of the sleep, and why."""
    policy = read_policy(workspace)
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
    yield max(last, held) + after, INACTIVITY_SLEEP, why


def _scheduled_sleep(workspace: Object) -> Iterator[tuple[int, str, str]]:
    """When the workspace sleeps because it has run for so long as it may."""
    started = _parse_time(get_path(workspace, "status.activity.startTime"))
    longest = read_policy(workspace).max_run
    if started and longest:
        why = f"it runs since {format_time(started)}, and may run for {longest} seconds at a time"
        yield started + longest, SCHEDULED_TYPE, why


def _deletion_time(workspace: Object, is_silent: bool, now: int) -> int:
    """When the workspace is deleted for lack of use; 0 if it is not, or if too little is known."""
    after = read_policy(workspace).delete_after
    is_unused = get_path(workspace, "status.lastWorkspaceStatus") in UNUSED_STATES
    if not after or is_silent or not is_unused:
        return 0
    # A workspace that ran without any report about its activity may have been in use all the time.
    task = find_condition(workspace.get("status"), "TaskSucceeded")
    if task is not None and not get_path(workspace, "status.activity.lastActivityTime"):
        return 0
    ended = _parse_time((task or {}).get("lastTransitionTime"))
    return max(last_activity(workspace, now), ended, read_hold(workspace, now)) + after


def last_activity(workspace: Object, now: int) -> int:
    """The last activity that is known: measured by the runner, or noted by a client or by a wake-up."""
    started = _parse_time(get_path(workspace, "status.activity.startTime"))
    noted = parse_seconds(annotations_of(workspace).get(LAST_ACTIVITY))
    past = noted if noted <= now + CLOCK_TOLERANCE else 0  # a time in the future would be a hold without an end
    return max(_measured_activity(workspace), past, started, _created(workspace))


def _measured_activity(workspace: Object) -> int:
    return _parse_time(get_path(workspace, "status.activity.lastActivityTime"))


def build_sleep_mode(workspace: Object, decision: SleepDecision, now: int) -> Object:
    """`status.sleepModeConfig`: the policy and the state, for people and for the runner. Empty fields are left out."""
    policy = read_policy(workspace)
    notes = annotations_of(workspace)
    forced = is_forced(workspace)
    sleep_type = notes.get(SLEEP_TYPE) or ""
    spec = {
        "forceSleep": forced,
        "forceSleepDuration": parse_seconds(notes.get(FORCE_DURATION)) if forced else 0,
        "sleepAfter": policy.sleep_after,
        "deleteAfter": policy.delete_after,
        "maxRun": policy.max_run,
        "holdUntil": read_hold(workspace, now),
    }
    measured = _measured_activity(workspace)
    noted = parse_seconds(notes.get(LAST_ACTIVITY))
    reason = get_path(workspace, "status.activity.reason")
    state = {
        "lastActivity": last_activity(workspace, now) if measured or noted else 0,
        "lastActivityInfo": {"reason": reason} if reason and measured > noted else decode_info(workspace),
        "sleepingSince": parse_seconds(notes.get(SLEEPING_SINCE)) if sleep_type else 0,
        "sleepType": sleep_type,
        "scheduledSleep": decision.sleeps_at,
    }
    found = {"spec": _without_empty(spec), "status": _without_empty(state)}
    return _without_empty(found)


def _without_empty(fields: Object) -> Object:
    return {name: value for name, value in fields.items() if value}


def _created(workspace: Object) -> int:
    return _parse_time(metadata(workspace).get("creationTimestamp"))


def _parse_time(text: object) -> int:
    moment = parse_rfc3339(text)
    return int(moment.timestamp()) if moment is not None else 0


def format_time(seconds: int) -> str:
    return timestamp(datetime.fromtimestamp(seconds, UTC))
