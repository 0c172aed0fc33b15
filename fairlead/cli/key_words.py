"""An access key as people want to see it: whose it is, whether it works and until when, and what it may be used for."""

from datetime import datetime, timedelta

from fairlead.cli.durations import duration, moment, rough, since
from fairlead.cli.scopes import scope_lines
from fairlead.core.objects import Object, dig, name_of

COLUMNS = ("NAME", "OWNER", "TYPE", "STATE", "EXPIRES", "LAST USED", "SCOPE", "DISPLAY NAME", "AGE")
EXPIRED = "expired"


def owner(key: Object) -> tuple[str, str]:
    """What sort of owner, and its name."""
    for kind in ("user", "team", "subject"):
        if name := dig(key, f"spec.{kind}"):
            return kind, str(name)
    return "nobody", ""


def expiry(key: Object) -> datetime | None:
    """When the key ends as things stand; None for never. A use may put it off, where its life counts from the last."""
    ttl = dig(key, "spec.ttl")
    made = moment(dig(key, "metadata.creationTimestamp"))
    used = moment(dig(key, "status.lastActivity")) if dig(key, "spec.ttlAfterLastActivity") else None
    start = max((each for each in (made, used) if each), default=None)
    return start + timedelta(seconds=int(ttl)) if ttl and start else None


def state(key: Object, now: datetime) -> str:
    end = expiry(key)
    if dig(key, "spec.disabled"):
        return "disabled"
    return EXPIRED if dig(key, "status.expired") or (end and end <= now) else "active"


def row(key: Object, now: datetime) -> tuple[str, ...]:
    kind, name = owner(key)
    end = expiry(key)
    scope = scope_lines(dig(key, "spec.scope"), name)
    return (
        name_of(key),
        name if kind == "user" else f"{kind} {name}",
        str(dig(key, "spec.type") or "-"),
        state(key, now),
        "never" if end is None else _until(end, now),
        _ago(dig(key, "status.lastActivity"), now),
        "all" if dig(key, "spec.scope") is None else scope[0] + (f" (+{len(scope) - 1})" if scope[1:] else ""),
        str(dig(key, "spec.displayName") or "-"),
        since(dig(key, "metadata.creationTimestamp"), now),
    )


def described(key: Object, now: datetime) -> list[tuple[str, str]]:
    kind, name = owner(key)
    scope = scope_lines(dig(key, "spec.scope"), name)
    pairs = [
        ("name", name_of(key)),
        ("display name", str(dig(key, "spec.displayName") or "")),
        ("description", str(dig(key, "spec.description") or "")),
        (kind, name),
        ("groups", ", ".join(dig(key, "spec.groups") or ())),
        ("type", str(dig(key, "spec.type") or "")),
        ("state", state(key, now)),
        ("expires", _expires(key)),
        ("last used", _ago(dig(key, "status.lastActivity"), now)),
        ("made", _ago(dig(key, "metadata.creationTimestamp"), now)),
        ("may use", scope[0]),
        *(("", line) for line in scope[1:]),
    ]
    return [pair for pair in pairs if pair[1]]


def _until(end: datetime, now: datetime) -> str:
    left = int((end - now).total_seconds())
    return f"in {rough(left)}" if end > now else f"{rough(-left)} ago"


def _ago(text: object, now: datetime) -> str:
    age = since(text, now)
    return age if age == "-" else f"{age} ago"


def _expires(key: Object) -> str:
    end = expiry(key)
    if end is None:
        return "never"
    told = end.strftime("%Y-%m-%d %H:%M:%S UTC")
    return (
        f"{told}, {duration(dig(key, 'spec.ttl'))} after its last use"
        if dig(key, "spec.ttlAfterLastActivity")
        else told
    )
