"""Patterns of paths, arranged so that a path is looked up and not held against each of them.

A `*` is the last step of a pattern and stands for whatever is below, at any depth; alone it stands for every path.
`matching.py` asks whether a request's path matches, `subset.py` whether a pattern is inside the others.
"""

from collections.abc import Iterable

from fairlead.core.scope import ANY
from fairlead.core.validators import begins_with_one, outermost


class PathPatterns:
    """A set of patterns."""

    __slots__ = ("_beginnings", "_whole", "_written")

    def __init__(self, patterns: Iterable[str]) -> None:
        self._written = frozenset(patterns)
        open_ended = {each for each in self._written if is_open_ended(each)}
        self._whole = frozenset(whole_path(each) for each in self._written - open_ended)
        self._beginnings = outermost(each.removesuffix(ANY) for each in open_ended)

    def match(self, path: str) -> bool:
        """Whether a path, without a slash at its end, is one of them or below one of them."""
        return path in self._whole or (begins_with_one(path, self._beginnings) and is_plain(path))

    def cover(self, pattern: str) -> bool:
        """Whether they match all that a pattern matches: it is read as a path whose last step happens to be `*`."""
        return pattern in self._written or self.match(pattern if pattern.endswith(ANY) else whole_path(pattern))


def is_open_ended(pattern: str) -> bool:
    return pattern == ANY or pattern.endswith("/*")


def whole_path(path: str) -> str:
    return path.removesuffix("/") or "/"


def is_plain(path: str) -> bool:
    """Whether a path says where it leads: somebody behind a gateway might follow `..`, or decode what is encoded."""
    return "//" not in path and "%" not in path and "\\" not in path and {".", ".."}.isdisjoint(path.split("/"))
