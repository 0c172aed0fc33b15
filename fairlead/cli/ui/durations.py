"""Parses and formats durations such as `30d`, `12h`, `1h30m` and `45s`, and ages."""

import re
from datetime import UTC, datetime

import typer

UNIT_SECONDS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
DURATION_PATTERN = re.compile(r"(?:(\d{1,9})d)?(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9})s)?", re.ASCII)
DEFAULT_TIMEOUT_SECONDS = 300
MAX_DURATION_SECONDS = 100 * 365 * UNIT_SECONDS["d"]


def parse_duration(text: str) -> int:
    """Parses a duration into seconds. Used as a Typer parser, so errors are usage errors."""
    match = DURATION_PATTERN.fullmatch(text.strip())
    parts = match.groups() if match else ()
    total = sum(int(count) * unit for count, unit in zip(parts, UNIT_SECONDS.values(), strict=False) if count)
    if not total:
        raise typer.BadParameter(f"{text!r} is not a duration; use the format 30d, 12h, 90m, 45s or 1h30m")
    if total > MAX_DURATION_SECONDS:
        raise typer.BadParameter(f"{text!r} is more than 100 years; leave it out for a key that does not expire")
    return total


def parse_timeout(value: str | int) -> int:
    """Parses the value of --timeout into seconds. A Typer parser also gets the default value."""
    return value if isinstance(value, int) else parse_duration(value)


def format_duration(total_seconds: int) -> str:
    """Formats seconds with the two largest nonzero units: `30d`, `1h30m`."""
    parts = []
    for unit, length in UNIT_SECONDS.items():
        count, total_seconds = divmod(total_seconds, length)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts[:2]) or "0s"


def parse_time(text: object) -> datetime | None:
    """Parses a timestamp of the API; None if it is missing or malformed."""
    if not isinstance(text, str):
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def age(text: object, now: datetime) -> str:
    """The time since a timestamp in its largest unit, such as `5d`; `-` if the timestamp is missing."""
    then = parse_time(text)
    return "-" if then is None else coarse_duration(int((now - then).total_seconds()))


def coarse_duration(total_seconds: int) -> str:
    """Formats seconds in the largest unit only."""
    for unit, length in UNIT_SECONDS.items():
        if total_seconds >= length:
            return f"{total_seconds // length}{unit}"
    return "0s"
