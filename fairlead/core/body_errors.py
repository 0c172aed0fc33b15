"""Errors and limits that the JSON and YAML codecs share, and the paths of duplicate keys.

Raised by `core/json/` and `core/yaml.py`; callers return them as 400. Duplicate keys are reported by path, as
Kubernetes does: `spec.access[0].users`. Both codecs keep the last value and return the paths; `fieldValidation`
decides whether the caller fails, warns or ignores them.
"""

from __future__ import annotations

# Kubernetes allows 10,000 levels, because Go's stacks grow. Recursive code here uses two or three frames per level
# and must stay within Python's recursion limit of 1,000. Real objects are nowhere near this limit.
MAX_DEPTH = 200

# A body of 3 MiB could hold 1.5 million values, and every walk over the object pays for each of them. A large object
# of a real cluster has some thousands. The budget for YAML bodies is about the same.
MAX_VALUES = 100_000

# Longer ones are rejected before they are parsed. No number of 64 bits needs more than 25 characters.
MAX_NUMBER_CHARS = 1_024


class Malformed(ValueError):
    """A body that does not match its content type, or exceeds a limit. The message says what is wrong and where."""


class NumberTooLong(Malformed):
    """A number with more than `MAX_NUMBER_CHARS` characters."""


class TooManyValues(ValueError):
    """A body with more than `MAX_VALUES` values."""


def depth_error() -> Malformed:
    return Malformed(f"nested deeper than {MAX_DEPTH} levels; flatten the object")


# As many as Kubernetes lists. Paths are limited as well, so that a hostile body causes neither a huge response nor a
# lot of work.
MAX_DUPLICATE_KEYS = 100
MAX_PATH_CHARS = 512


class DuplicateKeys:
    """The paths of duplicate keys found so far, without repetition, in document order."""

    __slots__ = ("paths",)

    def __init__(self) -> None:
        self.paths: list[str] = []

    @property
    def is_full(self) -> bool:
        return len(self.paths) >= MAX_DUPLICATE_KEYS

    def add(self, path: str) -> None:
        if not self.is_full and path not in self.paths:
            self.paths.append(path)


def field_path(parent: str, segment: str | int) -> str:
    """The path of a child: a key after a dot, a list index in brackets. Long paths are shortened."""
    if len(parent) > MAX_PATH_CHARS:
        return parent
    if isinstance(segment, int):
        return f"{parent}[{segment}]"
    path = f"{parent}.{segment[:MAX_PATH_CHARS]}" if parent else segment[: MAX_PATH_CHARS + 1]
    return path if len(path) <= MAX_PATH_CHARS else f"{path[:MAX_PATH_CHARS]}..."
