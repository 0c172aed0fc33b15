"""The formats of texts that schemas ask for and that are checked: base64, and dates and times.

Both ways of validating go by this page: the compiled validator calls these functions, and so does the walk in Python.
"""

import base64
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import lru_cache

from fairlead.registry import limits


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except ValueError:
        return False
    return True


KEPT_MOMENTS = 4_096
"""How many times are remembered: anybody can send others."""

# Stricter than RFC 3339, which knows leap seconds, small letters and the year 0: whatever passes can be reckoned with.
_MOMENT = re.compile(r"[1-9]\d{3}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII)


def _is_moment(text: str) -> bool:
    """Every write asks about the same few times again: those of the metadata."""
    return len(text) <= limits.TIME and _is_remembered_moment(text)


@lru_cache(KEPT_MOMENTS)
def _is_remembered_moment(text: str) -> bool:
    if not _MOMENT.fullmatch(text):
        return False
    try:
        datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return False
    return True


FORMATS: dict[str, Callable[[str], bool]] = {"byte": _is_base64, "date-time": _is_moment}
WANTED: Mapping[str, str] = {
    "byte": "must be base64, with the standard alphabet and padding",
    "date-time": "must be a date and time as RFC 3339 writes them, such as 2026-01-31T12:00:00Z",
}
INT_BOUNDS: Mapping[str, tuple[int, int]] = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}
