"""When an access key expires, by its object. The columns of the server's tables follow the same rules."""

from datetime import datetime, timedelta

from fairlead.cli.ui.durations import parse_time
from fairlead.core.objects import Object, get_path

FIRST_KEY_ANNOTATION = "service.sh/expires-unless-replaced"
"""When the key of the first administrator expires, unless there is another way in by then."""


def expiry_time(key: Object) -> datetime | None:
    """When the key expires; None for never. With ttlAfterLastActivity, each use extends the lifetime."""
    ttl = get_path(key, "spec.ttl")
    created = parse_time(get_path(key, "metadata.creationTimestamp"))
    used = parse_time(get_path(key, "status.lastActivity")) if get_path(key, "spec.ttlAfterLastActivity") else None
    start = max((each for each in (created, used) if each), default=None)
    return start + timedelta(seconds=int(ttl)) if ttl and start else None


def temporary_until(key: Object) -> datetime | None:
    """When the first administrator's key expires, unless it is replaced; None for any other key."""
    annotations = get_path(key, "metadata.annotations")
    return parse_time(annotations.get(FIRST_KEY_ANNOTATION)) if isinstance(annotations, dict) else None


def find_expiry(key: Object) -> tuple[datetime | None, bool]:
    """When the key expires or has expired, None for never; and whether another way in prevents that."""
    if expired := parse_time(get_path(key, "status.expired")):
        return expired, False
    end = expiry_time(key)
    temporary = temporary_until(key)
    if temporary is not None and (end is None or temporary < end):
        return temporary, True
    return end, False
