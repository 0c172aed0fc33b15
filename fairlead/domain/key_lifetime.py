"""When an access key expires, and how often its last use is recorded: pure functions of key objects.

Authentication, key issuing and the access key controller share them, so that they always agree.
"""

from datetime import UTC, datetime, timedelta

from fairlead.core.clock import parsed
from fairlead.core.objects import Object, dig, metadata

MAX_TTL = 100 * 365 * 24 * 3600
"""100 years: effectively unlimited, and small enough to be added to a date."""
COOLDOWN = 60
"""The minimum, and default, interval between two writes of status.lastActivity."""
COOLDOWN_LABEL = "service.sh/cooldown-seconds"
"""With this label administrators set a longer interval for a key."""
MAX_COOLDOWN = 999_999_999

_LONG_AGO = datetime(1, 1, 1, tzinfo=UTC)


def ttl_of(key: Object) -> int:
    """The TTL in seconds; 0 for a key that does not expire."""
    return min(dig(key, "spec.ttl") or 0, MAX_TTL)


def slides(key: Object) -> bool:
    """Whether activity extends the life of the key."""
    return bool(ttl_of(key) and dig(key, "spec.ttlAfterLastActivity"))


def end_of(key: Object, used: datetime | None = None) -> datetime | None:
    """When the key expires; None for never. `last_used` is a use that may not have been recorded yet.

    A key without creationTimestamp has been tampered with, and counts as expired.
    """
    ttl = ttl_of(key)
    if not ttl:
        return None
    start = parsed(metadata(key).get("creationTimestamp")) or _LONG_AGO
    if slides(key):
        uses = (start, parsed(dig(key, "status.lastActivity")), used)
        start = max(each for each in uses if each is not None)
    return start + timedelta(seconds=ttl)


def is_cooldown(text: object) -> bool:
    """Whether a value of the label is valid: whole seconds, at least `COOLDOWN_SECONDS`."""
    digits = isinstance(text, str) and text.isdecimal() and text.isascii() and len(text) < 10
    return digits and COOLDOWN <= int(str(text)) <= MAX_COOLDOWN


def cooldown_of(key: Object) -> float:
    """The interval between two writes of status.lastActivity. A short sliding TTL shortens the interval of the label.

    A key with a TTL below ten times `COOLDOWN_SECONDS` relies on the uses that this process remembers in memory. What
    is written is for other processes, and for the next start.
    """
    label = (metadata(key).get("labels") or {}).get(COOLDOWN_LABEL)
    interval = float(str(label)) if is_cooldown(label) else float(COOLDOWN)
    if slides(key):
        interval = min(interval, ttl_of(key) / 10)
    return max(float(COOLDOWN), interval)
