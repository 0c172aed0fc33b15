"""The digest of everything that the result of a build depends on: Dockerfile, arguments, images, platform, and those
files of the context that the Dockerfile copies. Files of features and their versions are among them, because the CLI
puts them into a context. Other files of the repository are not.

The author of the repository chose its links: none is followed.
"""

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

IGNORE_FILES = (".dockerignore", ".containerignore")
BLOCK = 1 << 20
VERSION = "3"
"""Another one for each change after which images of before, in archives and stores, are not to be used."""
DIGEST_LENGTH, MARK_LENGTH = 32, 4
PARTS = ("the Dockerfile", "build arguments", "the images that it begins with", "files that it copies")
"""What a key has a mark for, in the order of the marks."""
KEY_LENGTH = DIGEST_LENGTH + MARK_LENGTH * len(PARTS)


@dataclass(slots=True)
class Build:
    """A build that the CLI wants."""

    dockerfile: str = ""
    context: str = ""
    tags: list[str] = field(default_factory=list)
    arguments: dict[str, str] = field(default_factory=dict)
    options: list[str] = field(default_factory=list)
    """All others that change the result."""

    @property
    def is_fresh(self) -> bool:
        """Nothing that was built before may be used."""
        return not {"--pull", "--no-cache"}.isdisjoint(self.options)


def compute_key(build: Build, dockerfile: str, sources: Sequence[str] | None, image_ids: Sequence[str]) -> str:
    """A digest of everything, and then a mark of each part, which tells what has changed between two keys."""
    arguments = [f"{name}={value}" for name, value in sorted(build.arguments.items())]
    ignored = [_describe(path) for path in ignore_files(build)]
    files = [f"{name}\n{_describe(os.path.join(build.context, name))}" for name in used_files(build, sources)]
    parts: Sequence[Sequence[str]] = (
        ("dockerfile", dockerfile),
        ("arguments", *arguments, "options", *build.options),
        ("images", *image_ids),
        ("ignore files", *ignored, "files", *files),
    )
    fixed = ("version", VERSION, "machine", os.uname().machine)
    whole = _digest([*fixed, *(text for part in parts for text in part)])
    return whole[:DIGEST_LENGTH] + "".join(_digest(part)[:MARK_LENGTH] for part in parts)


def _digest(texts: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for text in texts:
        data = text.encode(errors="surrogateescape")
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()


def explain_difference(key: str, others: Sequence[str]) -> str:
    """Why none of the other keys fits: how it differs from the most similar one."""
    if not others:
        return "none was kept before, for a workspace of this repository"
    changed = min((_list_changed_parts(key, each) for each in others), key=len)
    return f"the most similar one that was kept differs in {', '.join(changed) or 'the version of this runner'}"


def _list_changed_parts(key: str, other: str) -> list[str]:
    starts = range(DIGEST_LENGTH, KEY_LENGTH, MARK_LENGTH)
    pairs = ((part, slice(start, start + MARK_LENGTH)) for part, start in zip(PARTS, starts, strict=True))
    return [part for part, mark in pairs if key[mark] != other[mark]]


def used_files(build: Build, sources: Sequence[str] | None) -> list[str]:
    """Paths below the context that the build can read. None as `sources`, or a link among them, means all."""
    if sources is not None and not sources:
        return []
    entries = list(_walk(build.context))
    patterns = [_split(source) for source in sources or (".",)]
    if any(".." in pattern for pattern in patterns):
        patterns = [[]]
    links = (name for name, is_link in entries if is_link)
    if any(_is_used(name.split("/"), pattern) for name in links for pattern in patterns):
        patterns = [[]]
    return [name for name, _ in entries if any(_is_below(name.split("/"), pattern) for pattern in patterns)]


def ignore_files(build: Build) -> list[str]:
    """Where podman looks for the list of files that it leaves out: beside the Dockerfile, then in the context."""
    beside = [f"{build.dockerfile}{name}" for name in IGNORE_FILES]
    return [*beside, *(os.path.join(build.context, name) for name in IGNORE_FILES)]


def _walk(context: str) -> Iterator[tuple[str, bool]]:
    """Relative paths of files, folders and links, always in the same order, and whether each is a link. Folders count:
    empty ones are copied, too."""
    for parent, folders, names in os.walk(context):
        folders.sort()
        for name in sorted([*names, *folders]):
            path = os.path.join(parent, name)
            yield os.path.relpath(path, context), os.path.islink(path)


def _split(source: str) -> list[str]:
    return [part for part in source.split("/") if part not in ("", ".")]


def _is_below(path: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether the path is what the pattern means, or below it."""
    return len(path) >= len(pattern) and all(map(fnmatchcase, path, pattern))


def _is_used(path: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether the path is below what the pattern means, or above it."""
    return all(map(fnmatchcase, path, pattern))


def _describe(path: str) -> str:
    """Type, permissions and content of a file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return f"link {os.readlink(path)}" if os.path.islink(path) else "unreadable"
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        return f"special {mode:o}"
    with os.fdopen(descriptor, "rb") as file:
        digest = hashlib.sha256()
        while block := file.read(BLOCK):
            digest.update(block)
        return f"file {mode:o} {digest.hexdigest()}"
