"""How long an access key lives, and what a key may hand on: pure functions of key objects.

Authentication, minting and the controller that ends keys all go by this page, so that they cannot disagree.
"""

from datetime import UTC, datetime, timedelta

from fairlead.core.clock import parsed
from fairlead.core.objects import Object, dig, metadata

MAX_TTL = 100 * 365 * 24 * 3600
"""Longer than anybody waits, and short enough to be added to a date."""
COOLDOWN = 60
"""Seconds between two writes of status.lastActivity at least: however a key is declared, using it causes no more."""
COOLDOWN_LABEL = "service.sh/cooldown-seconds"
"""By which administrators have the last use of a key written less often."""
MAX_COOLDOWN = 999_999_999

_LONG_AGO = datetime(1, 1, 1, tzinfo=UTC)


def ttl_of(key: Object) -> int:
    """Seconds; 0 for a key that does not expire."""
    return min(dig(key, "spec.ttl") or 0, MAX_TTL)


def slides(key: Object) -> bool:
    """Whether using the key makes it live longer."""
    return bool(ttl_of(key) and dig(key, "spec.ttlAfterLastActivity"))


def end_of(key: Object, used: datetime | None = None) -> datetime | None:
    """When the key expires; None for never. `used` is a use that may not be written down yet.

    A key without a date of creation has been tampered with, and has expired.
    """
    ttl = ttl_of(key)
    if not ttl:
        return None
    begin = parsed(metadata(key).get("creationTimestamp")) or _LONG_AGO
    if slides(key):
        uses = (begin, parsed(dig(key, "status.lastActivity")), used)
        begin = max(each for each in uses if each is not None)
    return begin + timedelta(seconds=ttl)


def is_cooldown(text: object) -> bool:
    """Whether a value of the label is one that counts: whole seconds, no fewer than COOLDOWN."""
    digits = isinstance(text, str) and text.isdecimal() and text.isascii() and len(text) < 10
    return digits and COOLDOWN <= int(str(text)) <= MAX_COOLDOWN


def cooldown_of(key: Object) -> float:
    """How long to wait between two writes of status.lastActivity. Short lives need it more often than the label says.

    A key whose life is shorter than ten times COOLDOWN goes by the uses that the process remembers; what is written is
    for other processes, and for the next one.
    """
    asked = (metadata(key).get("labels") or {}).get(COOLDOWN_LABEL)
    pause = float(str(asked)) if is_cooldown(asked) else float(COOLDOWN)
    if slides(key):
        pause = min(pause, ttl_of(key) / 10)
    return max(float(COOLDOWN), pause)
