"""Sleep mode of workspaces, spaces and virtual clusters, which are all called instances here: its annotations, the
policy of an instance, and how it wakes up. Pure.

The annotations of an instance say what happens to it. The runner acts on those of a workspace, and the controllers of
spaces and virtual clusters on theirs. Administrators set a policy in the template, as annotations of its
`instanceTemplate`; users may set a stricter one at their own instance, not a laxer one. Times are Unix seconds, and
durations are seconds, in decimal digits.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import orjson

from fairlead.core.objects import Object, annotations_of, get_path
from fairlead.domain.quotas import FORCE_ANNOTATION, LAST_ACTIVITY_ANNOTATION, SLEEPING_SINCE_ANNOTATION

PREFIX = "sleepmode.service.sh/"
FORCE, LAST_ACTIVITY, SLEEPING_SINCE = FORCE_ANNOTATION, LAST_ACTIVITY_ANNOTATION, SLEEPING_SINCE_ANNOTATION
FORCE_DURATION = f"{PREFIX}force-duration"
SLEEP_AFTER, DELETE_AFTER = f"{PREFIX}sleep-after", f"{PREFIX}delete-after"
MAX_RUN = f"{PREFIX}max-run"
"""How long a workspace runs at most, whatever it does."""
HOLD_UNTIL = f"{PREFIX}hold-until"
"""Until then, a workspace counts as active."""
SLEEP_TYPE, SCHEDULED_SLEEP = f"{PREFIX}sleep-type", f"{PREFIX}scheduled-sleep"
SCHEDULED_WAKEUP = f"{PREFIX}scheduled-wakeup"
LAST_ACTIVITY_INFO = f"{PREFIX}last-activity-info"
"""JSON with the reason of the last activity, of the sleep or of the wake-up, and the user, if there is one."""

INACTIVITY_SLEEP, SCHEDULED_TYPE = "inactivitySleep", "scheduledSleep"
FORCED_SLEEP, FORCED_DURATION_SLEEP = "forcedSleep", "forcedDurationSleep"
SLEEP_TYPES = frozenset({INACTIVITY_SLEEP, SCHEDULED_TYPE, FORCED_SLEEP, FORCED_DURATION_SLEEP})

SERVER_STATE = (SLEEP_TYPE, SLEEPING_SINCE, SCHEDULED_SLEEP, SCHEDULED_WAKEUP)
"""Annotations that say that an instance is asleep, or when that changes."""

ACTIVE, IDLE, UNKNOWN = "Active", "Idle", "Unknown"
"""States of `status.activity`, which the runner reports while a workspace runs."""

CLOCK_TOLERANCE = 60
"""Seconds by which the clocks of clients may be ahead."""
MAX_DIGITS = 10
"""Of times and durations: their sums are still dates that can be written."""
MAX_HOLD_SECONDS = 24 * 3600
"""How far ahead a hold may end. A later end is ignored: it would be a way around the policy of the template."""

Changes = dict[str, str | None]
"""New values of annotations; None removes one."""


@dataclass(frozen=True, slots=True)
class SleepPolicy:
    """Seconds; 0 means never."""

    sleep_after: int = 0
    delete_after: int = 0
    max_run: int = 0


def parse_seconds(text: object) -> int:
    """0 for everything that is not a number, or has more digits than a time that people live to see."""
    is_number = isinstance(text, str) and text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS
    return int(str(text)) if is_number else 0


def template_annotations(rendered: object) -> Mapping[str, str]:
    """What a rendered template says about its instances."""
    found = get_path(rendered, "instanceTemplate.metadata.annotations") if isinstance(rendered, dict) else None
    return found if isinstance(found, dict) else {}


def read_policy(instance: Object, rendered: object) -> SleepPolicy:
    """The stricter of what the rendered template and the instance itself say."""
    sources = (template_annotations(rendered), annotations_of(instance))

    def find(name: str) -> int:
        return min((value for each in sources if (value := parse_seconds(each.get(name)))), default=0)

    return SleepPolicy(find(SLEEP_AFTER), find(DELETE_AFTER), find(MAX_RUN))


def read_hold(instance: Object, now: int) -> int:
    """Until when a hold keeps the instance awake; 0 without a valid one."""
    until = parse_seconds(annotations_of(instance).get(HOLD_UNTIL))
    return until if until <= now + MAX_HOLD_SECONDS + CLOCK_TOLERANCE else 0


def is_forced(instance: Object) -> bool:
    return annotations_of(instance).get(FORCE) == "true"


def sleep_type_of(instance: Object) -> str:
    """Why the instance is to sleep; empty if it is to be awake."""
    notes = annotations_of(instance)
    if is_forced(instance):
        return FORCED_DURATION_SLEEP if parse_seconds(notes.get(FORCE_DURATION)) else FORCED_SLEEP
    # A forced sleep ends when the server has removed its type, not before: that write is checked against quotas.
    found = notes.get(SLEEP_TYPE) or ""
    return found if found in SLEEP_TYPES else ""


def encode_info(reason: str, message: str, user: str = "") -> str:
    fields = {"reason": reason, "message": message, "user": user}
    return orjson.dumps({name: value for name, value in fields.items() if value}).decode()


def decode_info(instance: Object) -> Object:
    try:
        found = orjson.loads(annotations_of(instance).get(LAST_ACTIVITY_INFO) or "{}")
    except (orjson.JSONDecodeError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}


def build_wake(now: int, info: str) -> Changes:
    """What wakes an instance up, whatever it sleeps for. `info` is the new value of last-activity-info."""
    removed: Changes = dict.fromkeys((FORCE, FORCE_DURATION, *SERVER_STATE))
    return {**removed, LAST_ACTIVITY: str(now), LAST_ACTIVITY_INFO: info}


def build_wake_request(instance: Object, now: int, info: str) -> Changes:
    """What asks for that, with annotations only that users may write. The server then removes the others, and the
    quota of awake instances applies to the request, since the activity is later than the beginning of the sleep."""
    since = parse_seconds(annotations_of(instance).get(SLEEPING_SINCE))
    requested: Changes = {FORCE: None, FORCE_DURATION: None}
    return {**requested, LAST_ACTIVITY: str(max(now, since + 1)), LAST_ACTIVITY_INFO: info}


def build_withdrawal() -> Changes:
    """What ends a sleep that was not requested, as if it had not begun."""
    return dict.fromkeys(SERVER_STATE)


def change_annotations(obj: Object, changes: Changes) -> Object:
    """The object with these changes. The same object if there are none."""
    before = annotations_of(obj)
    after = {name: value for name, value in {**before, **changes}.items() if value is not None}
    if after == before:
        return obj
    return {**obj, "metadata": {**obj["metadata"], "annotations": after}}
