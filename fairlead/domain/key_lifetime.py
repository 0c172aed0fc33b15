"""When an access key expires, and how often its last use is recorded: pure functions of key objects.

Authentication, key issuing and the access key controller share them, so that they always agree.
"""

from datetime import UTC, datetime, timedelta

from fairlead.core.clock import parse_rfc3339
from fairlead.core.cluster_exports import EXPORT_LABEL
from fairlead.core.objects import Object, get_path, metadata

KEY_OWNER_FIELDS = ("user", "team", "subject")
"""The fields that identify the principal of a key. Exactly one of them is set."""
MAX_TTL_SECONDS = 100 * 365 * 24 * 3600
"""100 years: effectively unlimited, and small enough to be added to a date."""
COOLDOWN_SECONDS = 60
"""The minimum, and default, interval between two writes of status.lastActivity."""
PROGRAM_COOLDOWN_SECONDS = 3600
"""The default of keys that programs use without a pause: those of runners and agents, and exported ones."""
COMPONENT_PREFIX = "service:"
"""What the subjects of the keys of runners and agents begin with."""
COOLDOWN_LABEL = "service.sh/cooldown-seconds"
"""With this label administrators set a longer interval for a key."""
MAX_COOLDOWN_SECONDS = 999_999_999

FIRST_KEY_ANNOTATION = "service.sh/expires-unless-replaced"
"""When the key of the first administrator expires, unless there is another way in by then."""

_LONG_AGO = datetime(1, 1, 1, tzinfo=UTC)


def ttl_seconds(key: Object) -> int:
    """The TTL in seconds; 0 for a key that does not expire."""
    return min(get_path(key, "spec.ttl") or 0, MAX_TTL_SECONDS)


def is_sliding(key: Object) -> bool:
    """Whether activity extends the life of the key."""
    return bool(ttl_seconds(key) and get_path(key, "spec.ttlAfterLastActivity"))


def expires_at(key: Object, last_used: datetime | None = None) -> datetime | None:
    """When the key expires; None for never. `last_used` is a use that may not have been recorded yet.

    A key without creationTimestamp has been tampered with, and counts as expired.
    """
    ttl = ttl_seconds(key)
    if not ttl:
        return None
    start = parse_rfc3339(metadata(key).get("creationTimestamp")) or _LONG_AGO
    if is_sliding(key):
        uses = (start, parse_rfc3339(get_path(key, "status.lastActivity")), last_used)
        start = max(each for each in uses if each is not None)
    return start + timedelta(seconds=ttl)


def temporary_until(key: Object) -> datetime | None:
    """When the first key expires if there is no other way in; None for any other key."""
    annotations = metadata(key).get("annotations")
    return parse_rfc3339(annotations.get(FIRST_KEY_ANNOTATION)) if isinstance(annotations, dict) else None


def is_short_sliding(key: Object) -> bool:
    """Whether the last use is not written often enough for the expiry of this key: servers remember it in memory."""
    return is_sliding(key) and ttl_seconds(key) < 10 * COOLDOWN_SECONDS


def is_valid_cooldown(text: object) -> bool:
    """Whether a value of the label is valid: whole seconds, at least `COOLDOWN_SECONDS`."""
    digits = isinstance(text, str) and text.isdecimal() and text.isascii() and len(text) < 10
    return digits and COOLDOWN_SECONDS <= int(str(text)) <= MAX_COOLDOWN_SECONDS


def cooldown_seconds(key: Object) -> float:
    """The interval between two writes of status.lastActivity, after the first use, which is written at once. A short
    sliding TTL shortens the interval of the label.

    What is written is for other replicas, and for the next start. See also `is_short_sliding`.
    """
    labels = metadata(key).get("labels") or {}
    label = labels.get(COOLDOWN_LABEL)
    is_program = EXPORT_LABEL in labels or str(get_path(key, "spec.subject") or "").startswith(COMPONENT_PREFIX)
    default = PROGRAM_COOLDOWN_SECONDS if is_program else COOLDOWN_SECONDS
    interval = float(str(label)) if is_valid_cooldown(label) else float(default)
    if is_sliding(key):
        interval = min(interval, ttl_seconds(key) / 10)
    return max(float(COOLDOWN_SECONDS), interval)
