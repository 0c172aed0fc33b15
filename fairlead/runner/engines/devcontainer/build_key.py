"""The digest of everything that the result of a build depends on: Dockerfile, arguments, images, platform, and those
files of the context that the Dockerfile copies. Files of features and their versions are among them, because the CLI
puts them into a context. Other files of the repository are not.

The context is a copy of the repository, whose author chose its links: none is followed.
"""

import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from fairlead.runner.engines.devcontainer.command_lines import Build

IGNORE_FILES = (".dockerignore", ".containerignore")
BLOCK = 1 << 20


def compute_key(build: Build, dockerfile: str, sources: Sequence[str] | None, image_ids: Sequence[str]) -> str:
    digest = hashlib.sha256()
    parts = [
        *("machine", os.uname().machine, "dockerfile", dockerfile),
        *("arguments", *(f"{name}={value}" for name, value in sorted(build.arguments.items()))),
        *("options", *build.options, "images", *image_ids),
        *("files", *(f"{name}\n{_describe(os.path.join(build.context, name))}" for name in used_files(build, sources))),
    ]
    for part in parts:
        data = part.encode(errors="surrogateescape")
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()[:32]


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
    ignore_files = (*IGNORE_FILES, *(f"{os.path.basename(build.dockerfile)}{name}" for name in IGNORE_FILES))
    return [
        name
        for name, _ in entries
        if name in ignore_files or any(_is_below(name.split("/"), pattern) for pattern in patterns)
    ]


def _walk(context: str) -> Iterator[tuple[str, bool]]:
    """Relative paths of files and links, always in the same order, and whether each is a link."""
    for parent, folders, names in os.walk(context):
        folders.sort()
        for name in sorted([*names, *folders]):
            path = os.path.join(parent, name)
            is_link = os.path.islink(path)
            if is_link or name not in folders:
                yield os.path.relpath(path, context), is_link


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
    with os.fdopen(descriptor, "rb") as file:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            return f"special {mode:o}"
        digest = hashlib.sha256()
        while block := file.read(BLOCK):
            digest.update(block)
        return f"file {mode:o} {digest.hexdigest()}"
