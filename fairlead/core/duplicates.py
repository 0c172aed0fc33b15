"""The keys that occur twice in one mapping of a body, as Kubernetes names them: `spec.access[0].users`.

Both codecs let the last of the values win and hand these paths on. What becomes of them, an error, a warning or
nothing, is `fieldValidation`'s choice and the caller's work.
"""

from __future__ import annotations

# As many as Kubernetes lists. A hostile body must not turn into a hostile answer or into hours of work on long paths,
# so paths end here, too.
MAX_REPORTED = 100
MAX_PATH = 512


class Duplicates:
    """The paths found so far, each of them once, in the order of the document."""

    __slots__ = ("paths",)

    def __init__(self) -> None:
        self.paths: list[str] = []

    @property
    def full(self) -> bool:
        return len(self.paths) >= MAX_REPORTED

    def add(self, path: str) -> None:
        if not self.full and path not in self.paths:
            self.paths.append(path)


def field_path(parent: str, part: str | int) -> str:
    """The path of a child: a key after a dot, a list position in brackets. What is too long ends in dots."""
    if len(parent) > MAX_PATH:
        return parent
    if isinstance(part, int):
        return f"{parent}[{part}]"
    path = f"{parent}.{part[:MAX_PATH]}" if parent else part[: MAX_PATH + 1]
    return path if len(path) <= MAX_PATH else f"{path[:MAX_PATH]}..."
