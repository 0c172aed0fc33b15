"""The timeout of a deployment, as Helm writes durations: `90s`, `5m0s`, `1h30m`. Pure."""

import re

MIN_SECONDS, MAX_SECONDS = 1, 30 * 60
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_MAX_LENGTH = 32
_part = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(h|ms|m|s)", re.ASCII)
_duration = re.compile(rf"(?:{_part.pattern})+", re.ASCII)
TIMEOUT_RULE = "must be a duration from 1s to 30m, such as 90s or 5m0s"


def parse_timeout(text: str) -> int | None:
    """Whole seconds; None if it is not a duration in these limits."""
    if len(text) > _MAX_LENGTH or not _duration.fullmatch(text):
        return None
    seconds = sum(float(amount) * _UNITS[unit] for amount, unit in _part.findall(text))
    return round(seconds) if MIN_SECONDS <= seconds <= MAX_SECONDS else None
