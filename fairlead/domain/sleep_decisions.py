"""What is the same whenever the server decides that a workspace, a space or a virtual cluster falls asleep or wakes up.
Pure.

A forced sleep, the end of a sleep and the announcement of the next one do not depend on what sleeps. When an instance
would sleep, and whether that is known, does: `controllers/workspaces/sleep_decisions.py` says it of workspaces, and
`instance_sleep.py` of spaces and virtual clusters.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from fairlead.core.clock import parse_rfc3339, timestamp
from fairlead.core.objects import Object, annotations_of, metadata
from fairlead.domain.sleep_mode import (
    CLOCK_TOLERANCE,
    FORCE_DURATION,
    FORCED_DURATION_SLEEP,
    FORCED_SLEEP,
    INACTIVITY_SLEEP,
    LAST_ACTIVITY,
    LAST_ACTIVITY_INFO,
    SCHEDULED_SLEEP,
    SLEEP_TYPE,
    SLEEPING_SINCE,
    Changes,
    build_wake,
    build_withdrawal,
    decode_info,
    encode_info,
    is_forced,
    parse_seconds,
    read_hold,
)

WARN_SECONDS = 600
"""How long before it falls asleep an instance gets an Event about it."""
MAX_INFO_CHARS = 200
"""Of a message that a client may have written."""
SLEEP_SCHEDULED, FELL_ASLEEP, SLEEP_CANCELLED, WOKEN_UP = "SleepScheduled", "FellAsleep", "SleepCancelled", "WokenUp"


@dataclass(frozen=True, slots=True)
class SleepDecision:
    """`changes` are those of annotations. `sleeps_at`, `wakes_at` and `deletes_at` are 0 if that is not foreseeable.
    `event` is a reason and a message, to be recorded if the changes are written."""

    changes: Changes = field(default_factory=dict)
    sleeps_at: int = 0
    wakes_at: int = 0
    deletes_at: int = 0
    event: tuple[str, str] | None = None
    recheck_at: int = 0


@dataclass(frozen=True, slots=True, order=True)
class PlannedSleep:
    """A sleep that is due at a time, and why."""

    at: int
    type: str
    why: str


@dataclass(frozen=True, slots=True)
class LastActivity:
    """`cause` is a reason, as in `status.activity.reason`."""

    at: int
    cause: str


def decide_forced(instance: Object, now: int) -> SleepDecision:
    """A user has requested the sleep; with a duration, it ends by itself."""
    notes = annotations_of(instance)
    duration = parse_seconds(notes.get(FORCE_DURATION))
    since = parse_seconds(notes.get(SLEEPING_SINCE))
    sleep_type = FORCED_DURATION_SLEEP if duration else FORCED_SLEEP
    if not notes.get(SLEEP_TYPE, "").startswith("forced") or not 0 < since <= now + CLOCK_TOLERANCE:
        since = now
    if duration and now >= since + duration:
        message = "the requested duration of the sleep is over"
        return SleepDecision(build_wake(now, encode_info("DurationOver", message)), event=(WOKEN_UP, message))
    changes: Changes = {SLEEP_TYPE: sleep_type, SLEEPING_SINCE: str(since), SCHEDULED_SLEEP: None}
    ends_at = since + duration if duration else 0
    return SleepDecision(changes, wakes_at=ends_at, recheck_at=ends_at)


def find_end(instance: Object, sleep_type: str, now: int) -> SleepDecision | None:
    """The decision if the sleep of an instance is over, or never began; None if it goes on."""
    notes = annotations_of(instance)
    since = parse_seconds(notes.get(SLEEPING_SINCE))
    is_active = since < parse_seconds(notes.get(LAST_ACTIVITY)) <= max(now, since + 1) + CLOCK_TOLERANCE
    info = decode_info(instance)  # of the wake-up, if it has a user, otherwise still that of the sleep
    if is_active and info.get("user"):
        return SleepDecision(build_withdrawal(), event=(WOKEN_UP, str(info.get("message") or "")[:MAX_INFO_CHARS]))
    if sleep_type.startswith("forced"):
        message = "the request to sleep was withdrawn"
        return SleepDecision(build_wake(now, encode_info("ForceRemoved", message)), event=(WOKEN_UP, message))
    if not created_at(instance) <= since <= now + CLOCK_TOLERANCE:  # copied from another object, or made up
        return SleepDecision(build_withdrawal())
    if parse_seconds(notes.get(LAST_ACTIVITY)) > since:
        return SleepDecision(build_withdrawal(), event=(WOKEN_UP, f"the annotation {LAST_ACTIVITY} was set"))
    return None


def decide_planned(
    instance: Object, planned: Iterable[PlannedSleep], last: LastActivity, now: int, advice: str
) -> SleepDecision:
    """The first of the planned sleeps: it begins, or it is announced. `advice` says how to stay awake."""
    notes = annotations_of(instance)
    first = min(planned, default=None)
    if first is None:
        return SleepDecision(withdraw_announcement(instance))
    if now >= first.at:
        asleep: Changes = {
            SLEEP_TYPE: first.type,
            SLEEPING_SINCE: str(now),
            SCHEDULED_SLEEP: None,
            LAST_ACTIVITY: str(min(last.at, now)),
            LAST_ACTIVITY_INFO: encode_info(last.cause, first.why),
        }
        return SleepDecision(asleep, event=(FELL_ASLEEP, first.why))
    if now < first.at - WARN_SECONDS:
        return SleepDecision(withdraw_announcement(instance), first.at, recheck_at=first.at - WARN_SECONDS)
    message = f"{first.why}; it sleeps at {format_time(first.at)}"
    if first.type == INACTIVITY_SLEEP:
        message += f", unless it is used; {advice} keeps it awake"
    is_new = notes.get(SCHEDULED_SLEEP) != str(first.at)
    event = (SLEEP_SCHEDULED, message) if is_new else None
    return SleepDecision({SCHEDULED_SLEEP: str(first.at)}, first.at, event=event, recheck_at=first.at)


def withdraw_announcement(instance: Object) -> Changes:
    """No sleep is near any more, or it cannot be known."""
    return {SCHEDULED_SLEEP: None} if SCHEDULED_SLEEP in annotations_of(instance) else {}


def noted_activity(instance: Object, now: int) -> int:
    """The activity that a client, a wake-up or the gateway has noted; 0 without a valid one."""
    noted = parse_seconds(annotations_of(instance).get(LAST_ACTIVITY))
    return noted if noted <= now + CLOCK_TOLERANCE else 0  # a time in the future would be a hold without an end


def describe_request(instance: Object, now: int) -> Object:
    """What the annotations of the instance itself request, for `status.sleepModeConfig.spec`."""
    forced = is_forced(instance)
    duration = parse_seconds(annotations_of(instance).get(FORCE_DURATION))
    return {
        "forceSleep": forced,
        "forceSleepDuration": duration if forced else 0,
        "holdUntil": read_hold(instance, now),
    }


def describe_sleep(instance: Object, decision: SleepDecision) -> Object:
    """Since when and why it sleeps, and when that changes, for `status.sleepModeConfig.status`."""
    notes = annotations_of(instance)
    sleep_type = notes.get(SLEEP_TYPE) or ""
    return {
        "sleepingSince": parse_seconds(notes.get(SLEEPING_SINCE)) if sleep_type else 0,
        "sleepType": sleep_type,
        "scheduledSleep": decision.sleeps_at,
        "scheduledWakeup": decision.wakes_at,
    }


def without_empty(fields: Object) -> Object:
    return {name: value for name, value in fields.items() if value}


def created_at(instance: Object) -> int:
    return parse_time(metadata(instance).get("creationTimestamp"))


def carry_sleep_over(moved: Object) -> None:
    """A moved object has a new time of creation, and its sleep would seem to be that of another object. So it begins
    anew. A forced sleep ends when it would have ended."""
    notes = annotations_of(moved)
    sleep_type = notes.get(SLEEP_TYPE, "")
    if sleep_type and not sleep_type.startswith("forced"):
        since = max(created_at(moved), parse_seconds(notes.get(SLEEPING_SINCE)))
        metadata(moved)["annotations"] = {**notes, SLEEPING_SINCE: str(since)}


def parse_time(text: object) -> int:
    """Unix seconds; 0 if the text is no time."""
    moment = parse_rfc3339(text)
    return int(moment.timestamp()) if moment is not None else 0


def format_time(seconds: int) -> str:
    return timestamp(datetime.fromtimestamp(seconds, UTC))
