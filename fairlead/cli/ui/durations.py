"""Times as people write and read them: `30d`, `12h`, `1h30m`, `45s`."""

import re
from datetime import UTC, datetime

import typer

SECONDS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
FORM = re.compile(r"(?:(\d{1,9})d)?(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9})s)?", re.ASCII)
LONGEST = 100 * 365 * SECONDS["d"]


def seconds(text: str) -> int:
    """A duration as a number of seconds. Typer calls it on the flag's text, so what is wrong is a usage error."""
    match = FORM.fullmatch(text.strip())
    parts = match.groups() if match else ()
    total = sum(int(count) * unit for count, unit in zip(parts, SECONDS.values(), strict=False) if count)
    if not total:
        raise typer.BadParameter(f"{text!r} is no duration; write it like 30d, 12h, 90m, 45s or 1h30m")
    if total > LONGEST:
        raise typer.BadParameter(f"{text!r} is more than a hundred years; leave it out for a key that never ends")
    return total


def duration(total: int) -> str:
    """The two largest units that say something: `30d`, `1h30m`."""
    parts = []
    for unit, length in SECONDS.items():
        count, total = divmod(total, length)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts[:2]) or "0s"


def moment(text: object) -> datetime | None:
    """A time of the API; None where there is none, or none that can be read."""
    if not isinstance(text, str):
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def since(text: object, now: datetime) -> str:
    """How long ago, in its largest unit: `5d`. A dash where nobody knows."""
    then = moment(text)
    return "-" if then is None else rough(int((now - then).total_seconds()))


def rough(total: int) -> str:
    """The largest unit only."""
    for unit, length in SECONDS.items():
        if total >= length:
            return f"{total // length}{unit}"
    return "0s"
