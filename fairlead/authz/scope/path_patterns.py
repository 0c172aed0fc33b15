"""Sets of path patterns, with lookups that do not compare each pattern.

A `*` as the last segment matches everything below, at any depth; a pattern of `*` alone matches every path.
`rule_index.py` matches the path of a request, `subset.py` checks whether other patterns cover a pattern.
"""

from collections.abc import Iterable

from fairlead.core.scope import ANY
from fairlead.core.validators import minimal_prefixes, starts_with_any


class PathPatterns:
    """A set of path patterns."""

    __slots__ = ("_exact", "_patterns", "_prefixes")

    def __init__(self, patterns: Iterable[str]) -> None:
        self._patterns = frozenset(patterns)
        open_ended = {each for each in self._patterns if is_prefix_pattern(each)}
        self._exact = frozenset(strip_trailing_slash(each) for each in self._patterns - open_ended)
        self._prefixes = minimal_prefixes(each.removesuffix(ANY) for each in open_ended)

    def matches(self, path: str) -> bool:
        """Whether a path without a trailing slash matches one of the patterns."""
        return path in self._exact or (starts_with_any(path, self._prefixes) and is_unambiguous(path))

    def covers(self, pattern: str) -> bool:
        """Whether the patterns match everything that another one matches. A trailing `*` is treated as a segment."""
        return pattern in self._patterns or self.matches(
            pattern if pattern.endswith(ANY) else strip_trailing_slash(pattern)
        )


def is_prefix_pattern(pattern: str) -> bool:
    return pattern == ANY or pattern.endswith("/*")


def strip_trailing_slash(path: str) -> str:
    return path.removesuffix("/") or "/"


def is_unambiguous(path: str) -> bool:
    """Whether a path is unambiguous: servers behind a gateway might resolve `..` or decode percent-encoding."""
    return "//" not in path and "%" not in path and "\\" not in path and {".", ".."}.isdisjoint(path.split("/"))
