"""What both codecs say of a body that cannot be read, and how deep a body may be.

Raised by `core/json.py` and `core/yaml/__init__.py`; whoever reads a body turns it into an answer with status 400.
"""

from __future__ import annotations

# Kubernetes stops at 10,000 levels, as Go's stacks grow. Ours do not: code that walks an object by recursion, two or
# three frames a level, must stay within Python's limit of 1,000 frames. No object that people write comes near.
MAX_DEPTH = 200

# What a body of 3 MiB could hold is 1.5 million values, and everything that walks an object pays for each of them. A
# large object of a real cluster has some thousands; a YAML body has had a budget of about this many from the start.
MAX_VALUES = 100_000


class Malformed(ValueError):
    """A body that is not what its content type says, or too large a thing to build. The text says what and where."""


def too_deep() -> Malformed:
    return Malformed(f"nested deeper than {MAX_DEPTH} levels; flatten the object")


# DOC-MERGED core/duplicates
# The keys that occur twice in one mapping of a body, as Kubernetes names them: `spec.access[0].users`.
#
# Both codecs let the last of the values win and hand these paths on. What becomes of them, an error, a warning or
# nothing, is `fieldValidation`'s choice and the caller's work.


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
