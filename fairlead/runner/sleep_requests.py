"""How the object of a workspace says that it is to sleep, and the words for its activity. Pure.

The server writes these annotations, or a user does (`force`); `docs/workspace-sleep.md` has all of them.
"""

from collections.abc import Mapping

from fairlead.core.objects import Object, metadata

PREFIX = "sleepmode.service.sh/"
FORCE, FORCE_DURATION = f"{PREFIX}force", f"{PREFIX}force-duration"
SLEEP_TYPE, SLEEPING_SINCE = f"{PREFIX}sleep-type", f"{PREFIX}sleeping-since"
INACTIVITY_SLEEP, SCHEDULED_SLEEP = "inactivitySleep", "scheduledSleep"
FORCED_SLEEP, FORCED_DURATION_SLEEP = "forcedSleep", "forcedDurationSleep"
SLEEP_TYPES = frozenset({INACTIVITY_SLEEP, SCHEDULED_SLEEP, FORCED_SLEEP, FORCED_DURATION_SLEEP})

ACTIVE, IDLE, UNKNOWN = "Active", "Idle", "Unknown"
"""States of `status.activity`."""


def sleep_type_of(workspace: Object) -> str:
    """Why the workspace is to sleep; empty if it is to be awake."""
    notes = _annotations(workspace)
    if notes.get(FORCE) == "true":
        return FORCED_DURATION_SLEEP if (notes.get(FORCE_DURATION) or "0").strip("0") else FORCED_SLEEP
    # A forced sleep ends when the server has removed its type, not before: that write is checked against quotas.
    found = notes.get(SLEEP_TYPE) or ""
    return found if found in SLEEP_TYPES else ""


def sleeping_since(workspace: Object) -> str:
    """Identifies a decision to sleep."""
    return _annotations(workspace).get(SLEEPING_SINCE) or ""


def _annotations(workspace: Object) -> Mapping[str, str]:
    return metadata(workspace).get("annotations") or {}
