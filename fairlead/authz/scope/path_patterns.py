"""Sets of path patterns, with lookups that do not compare each pattern.

A `*` as the last segment matches everything below, at any depth; a pattern of `*` alone matches every path.
`rule_index.py` matches the path of a request, `subset.py` checks whether other patterns cover a pattern.
"""

from collections.abc import Iterable

from fairlead.core.scope import ANY
from fairlead.core.validators import begins_with_one, outermost


class PathPatterns:
    """A set of path patterns."""

    __slots__ = ("_beginnings", "_whole", "_written")

    def __init__(self, patterns: Iterable[str]) -> None:
        self._written = frozenset(patterns)
        open_ended = {each for each in self._written if is_open_ended(each)}
        self._whole = frozenset(whole_path(each) for each in self._written - open_ended)
        self._beginnings = outermost(each.removesuffix(ANY) for each in open_ended)

    def match(self, path: str) -> bool:
        """Whether a path without a trailing slash matches one of the patterns."""
        return path in self._whole or (begins_with_one(path, self._beginnings) and is_plain(path))

    def cover(self, pattern: str) -> bool:
        """Whether the patterns match everything that another one matches. A trailing `*` is treated as a segment."""
        return pattern in self._written or self.match(pattern if pattern.endswith(ANY) else whole_path(pattern))


def is_open_ended(pattern: str) -> bool:
    return pattern == ANY or pattern.endswith("/*")


def whole_path(path: str) -> str:
    return path.removesuffix("/") or "/"


def is_plain(path: str) -> bool:
    """Whether a path is unambiguous: servers behind a gateway might resolve `..` or decode percent-encoding."""
    return "//" not in path and "%" not in path and "\\" not in path and {".", ".."}.isdisjoint(path.split("/"))
