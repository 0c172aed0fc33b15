"""Copies the archive of a chart, without what makes helm reach for anything else. A program: SOURCE TARGET.

`fetch.py` runs it in a process of its own, with limits: archives are untrusted, and may unpack to any size. It imports
nothing of this package.

Helm follows references in `values.schema.json` to files of this machine and to any address, and prints what it finds
there in its errors. A schema that refers to other documents is left out, so the values of that chart are not checked.
Charts in charts are copied in the same way. Links and devices are left out; no chart needs them. Paths that lead out of
the chart, that are too long or that have control characters make the whole archive invalid.
"""

import gzip
import io
import json
import posixpath
import re
import sys
import tarfile
import zlib
from pathlib import Path

MAX_UNPACKED_BYTES = 100 * 1024 * 1024
"""Of a chart with all charts in it. Helm has the same limit since 3.18."""
MAX_FILES = 10_000
MAX_NESTING = 8
MAX_STREAM_BYTES = 2 * MAX_UNPACKED_BYTES
"""Of the tar streams, with headers and padding: headers alone can unpack to any size, too."""
MAX_PATH_LENGTH, MAX_PATH_DEPTH = 1024, 64
SCHEMA, CHARTS, ARCHIVE_SUFFIX = "values.schema.json", "charts", ".tgz"
REFERENCES = frozenset({"$ref", "$dynamicRef", "$recursiveRef", "$schema"})
IDS = frozenset({"$id", "id"})
_DOCUMENT_ID = re.compile(r"https?://[A-Za-z0-9.-]+(?:/[A-Za-z0-9._~-]+)*/?#?")
# What helm has built in.
_BUILT_IN = re.compile(r"https?://json-schema\.org/(?:draft-0[467]|draft/20(?:19-09|20-12))/schema#?")


class InvalidArchive(Exception):
    """The archive cannot be read, or exceeds a limit."""


class Budget:
    """What may still be unpacked: bytes of files, files, and bytes of tar streams."""

    def __init__(self, size: int = MAX_UNPACKED_BYTES, files: int = MAX_FILES, stream: int = MAX_STREAM_BYTES) -> None:
        self.size = size
        self.files = files
        self.stream = stream

    def spend(self, size: int) -> None:
        self.size -= size
        self.files -= 1
        if self.size < 0 or self.files < 0:
            raise InvalidArchive("the chart is too large")


class _LimitedStream(io.BufferedIOBase):
    """The unpacked bytes of an archive, as far as the budget allows."""

    def __init__(self, stream: gzip.GzipFile, budget: Budget) -> None:
        self._stream = stream
        self._budget = budget

    def read(self, size: int | None = -1, /) -> bytes:
        content = self._stream.read(size)
        self._budget.stream -= len(content)
        if self._budget.stream < 0:
            raise InvalidArchive("the chart is too large")
        return content


def copy_archive(content: bytes, budget: Budget, nesting: int = 0) -> bytes:
    """Raises InvalidArchive."""
    if nesting > MAX_NESTING:
        raise InvalidArchive("charts are nested too deeply")
    copied = io.BytesIO()
    try:
        with (
            gzip.GzipFile(fileobj=io.BytesIO(content)) as stream,
            tarfile.open(fileobj=_LimitedStream(stream, budget), mode="r|") as source,
            tarfile.open(fileobj=copied, mode="w:gz", compresslevel=1) as target,
        ):
            for entry in source:
                _copy_entry(source, target, entry, budget, nesting)
    except (tarfile.TarError, EOFError, OSError, ValueError, OverflowError, zlib.error) as error:
        raise InvalidArchive(str(error)) from None
    return copied.getvalue()


def _copy_entry(
    source: tarfile.TarFile, target: tarfile.TarFile, entry: tarfile.TarInfo, budget: Budget, nesting: int
) -> None:
    budget.spend(max(0, entry.size))
    file = source.extractfile(entry) if entry.isreg() else None
    if file is None:
        return
    name = posixpath.normpath(entry.name.replace("\\", "/"))  # as helm does
    _check_path(name)
    content = file.read()
    folder, base = posixpath.split(name)
    if base == SCHEMA and refers_elsewhere(content):
        return
    if base.endswith(ARCHIVE_SUFFIX) and posixpath.basename(folder) == CHARTS:
        content = copy_archive(content, budget, nesting + 1)
    copied = tarfile.TarInfo(name)
    copied.size, copied.mode = len(content), 0o644
    target.addfile(copied, io.BytesIO(content))


def _check_path(path: str) -> None:
    parts = path.split("/")
    if len(path) > MAX_PATH_LENGTH or len(parts) > MAX_PATH_DEPTH or not path.isprintable():
        raise InvalidArchive("a path is too long or has control characters")
    if path.startswith("/") or parts[0] == ".." or re.match("[A-Za-z]:", path):
        raise InvalidArchive("a path leads out of the chart")


def refers_elsewhere(schema: bytes) -> bool:
    """Whether a schema refers to another document than itself, or cannot be read."""
    references = _References()
    try:
        json.loads(schema, object_pairs_hook=references.add)
    except (ValueError, RecursionError):
        return True
    return references.leads_elsewhere()


class _References:
    """The references of a schema, and the ids that they are relative to."""

    def __init__(self) -> None:
        self._targets: list[str] = []
        self._inner_ids: list[str] = []
        self._root_ids: list[str] = []
        """Those of the last object: the outermost one ends last."""

    def add(self, pairs: list[tuple[str, object]]) -> None:
        """Adds an object. All pairs, not a dictionary: a key may occur twice."""
        self._inner_ids += self._root_ids
        self._root_ids = [value for key, value in pairs if key in IDS and isinstance(value, str)]
        self._targets += [value for key, value in pairs if key in REFERENCES and isinstance(value, str)]

    def leads_elsewhere(self) -> bool:
        """A reference such as `#/definitions/port` is completed with the id around it. That of the whole document is
        known to helm, unless it has a fragment: for `file:///etc/passwd#x`, helm before 3.18 reads the file. Parts
        have only anchors as ids, such as `#port`; what others are relative to depends on the part that helm reads."""
        if not all(map(_is_own, self._targets)):
            return True
        has_reference = any(each.startswith("#") for each in self._targets)
        has_plain_ids = all(_is_anchor(each) for each in self._inner_ids) and all(
            _is_anchor(each) or _DOCUMENT_ID.fullmatch(each) for each in self._root_ids
        )
        return has_reference and not has_plain_ids


def _is_own(reference: str) -> bool:
    return reference.startswith("#") or bool(_BUILT_IN.fullmatch(reference))


def _is_anchor(text: str) -> bool:
    return text.startswith("#")


def main(source: str, target: str) -> int:
    try:
        Path(target).write_bytes(copy_archive(Path(source).read_bytes(), Budget()))
    except (InvalidArchive, MemoryError):
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
