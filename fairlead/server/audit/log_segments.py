"""Reads the files of an audit log, in both directions, while they are written, rotated, compressed and removed.

A position is the file and the offset in its uncompressed content. Names and inodes change with rotation and
compression, so a file is identified by a fingerprint of its first line, which contains the unique id of an event. A
file without a complete first line counts as missing. Everything here blocks, and runs in a thread.
"""

import gzip
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO

from fairlead.core.bounded_cache import BoundedCache
from fairlead.core.errors import Expired
from fairlead.server.audit.log_file import LogRetention

FINGERPRINT_BYTES, FINGERPRINTED_BYTES = 8, 512
BLOCK_BYTES = 256 * 1024
MAX_LINE_BYTES = 8 * 1024 * 1024
"""Longer lines are skipped. A line with two bodies of the maximum size is shorter."""
WINDOW_BYTES = 8 * 1024 * 1024
"""How much of a compressed file is kept in memory. It can only be read forwards, from its beginning or a checkpoint."""
PACKED_BYTES = 16 * 1024
"""How much of a compressed file is decompressed at once."""
MAX_CHECKPOINTS = 256
"""How many states of decompression are kept for each log: one for each window, of about 40 KiB."""
DECOMPRESSION_DISCOUNT = 8
"""Decompressing a byte counts as this fraction of a byte that is searched."""
SKIP_DISCOUNT = 4
"""So does a byte of a block that is skipped, because no line needs to be decoded."""
FINGERPRINT_CACHE_SIZE = 4_096

ReadAt = Callable[[int, int], bytes]
"""Reads so many bytes at an offset."""

_EXPIRED = (
    "this position of the audit log is not known: its file was removed, or it is a position of another replica; "
    "start again without it"
)


@dataclass(frozen=True, slots=True)
class Position:
    """A place between two lines. An empty segment is the start of a log that has no lines yet."""

    segment: bytes = b""
    offset: int = 0


class ScanBudget:
    """The number of bytes that one request may still search."""

    def __init__(self, max_bytes: int) -> None:
        self._left = max_bytes

    def spend(self, count: int) -> None:
        self._left -= count

    def refund(self, count: int) -> None:
        self._left += count

    def is_spent(self) -> bool:
        return self._left <= 0


@dataclass(frozen=True, slots=True)
class Segment:
    """One file of a log. `rotated_at` is None for the file that is being written."""

    fingerprint: bytes
    path: Path
    rotated_at: datetime | None

    @property
    def is_compressed(self) -> bool:
        return self.path.suffix == ".gz"


class UnreadableFile(Exception):
    """A file that is damaged, or was removed or compressed since it was listed."""


class SegmentedLog:
    """The files of one log."""

    def __init__(self, retention: LogRetention) -> None:
        self._retention = retention
        self._fingerprints: BoundedCache[str, bytes] = BoundedCache(FINGERPRINT_CACHE_SIZE)
        self._checkpoints: Checkpoints = BoundedCache(MAX_CHECKPOINTS)

    def iter_segments(self) -> Iterator[Segment]:
        """The files with lines, newest first. The current one is looked at first: if it is rotated in between, it is
        listed again, and dropped here."""
        current = _read_fingerprint(self._retention.path)
        if current:
            yield Segment(current, self._retention.path, None)
        seen, last = {current}, None
        for rotated_at, path in self._retention.list_files():
            if path.name.endswith(".part") or rotated_at == last:
                continue  # while it is compressed, a file exists twice
            fingerprint = self._fingerprint_of(path)
            if fingerprint:
                last = rotated_at
            if fingerprint and fingerprint not in seen:
                seen.add(fingerprint)
                yield Segment(fingerprint, path, rotated_at)

    def _fingerprint_of(self, path: Path) -> bytes:
        """Of a rotated file, whose name never gets another content."""
        name = path.name.removesuffix(".gz")
        found = self._fingerprints.get(name)
        if found is None:
            # It may have been compressed since it was listed.
            found = _read_fingerprint(path) or _read_fingerprint(path.with_name(f"{name}.gz"))
            if found:
                self._fingerprints[name] = found
        return found

    def iter_segments_from(self, position: Position) -> Iterator[tuple[Segment, Segment | None]]:
        """The files from that of the position to the oldest, each with the next older one."""
        newer: Segment | None = None
        for segment in self.iter_segments():
            if newer is not None:
                yield newer, segment
            if newer is not None or segment.fingerprint == position.segment:
                newer = segment
        if newer is None:
            raise Expired(_EXPIRED)
        yield newer, None

    def segments_until(self, position: Position) -> list[Segment]:
        """The files from the newest to that of the position. All of them if it is the start of the log."""
        found: list[Segment] = []
        for segment in self.iter_segments():
            found.append(segment)
            if segment.fingerprint == position.segment:
                return found
        if position.segment:
            raise Expired(_EXPIRED)
        return found

    def end(self) -> Position:
        """The position after the last complete line."""
        for segment in self.iter_segments():
            try:
                with self.open(segment, ScanBudget(0)) as reader:
                    return Position(segment.fingerprint, _last_line_end(reader))
            except UnreadableFile:
                continue
        return Position()

    def open(self, segment: Segment, budget: ScanBudget) -> "SegmentReader":
        """Opens a file, also if it was renamed or compressed since it was listed."""
        try:
            return _open_reader(segment, budget, self._checkpoints)
        except UnreadableFile:
            for each in self.iter_segments():
                if each.fingerprint == segment.fingerprint and each.path != segment.path:
                    return _open_reader(each, budget, self._checkpoints)
            raise


def _read_fingerprint(path: Path) -> bytes:
    """Empty if the file does not exist, is damaged, or has no complete line yet."""
    try:
        with path.open("rb") as file:
            return _fingerprint(file.read(FINGERPRINTED_BYTES) if path.suffix != ".gz" else _gzip_head(file))
    except _READ_ERRORS:
        return b""


def _gzip_head(file: BinaryIO) -> bytes:
    with gzip.GzipFile(fileobj=file, mode="rb") as unpacked:
        return unpacked.read(FINGERPRINTED_BYTES)


def _fingerprint(head: bytes) -> bytes:
    line, newline, _ = head.partition(b"\n")
    if not newline and len(head) < FINGERPRINTED_BYTES:
        return b""
    return blake2b(line, digest_size=FINGERPRINT_BYTES).digest()


_READ_ERRORS = (OSError, EOFError, zlib.error, struct.error)


def _open_reader(segment: Segment, budget: ScanBudget, checkpoints: "Checkpoints") -> "SegmentReader":
    file: BinaryIO | None = None
    try:
        file = segment.path.open("rb", buffering=0)
        if segment.is_compressed:
            file.seek(-4, os.SEEK_END)
            (size,) = struct.unpack("<I", file.read(4))
            return SegmentReader(file, size, _GzipWindow(file, budget, checkpoints).read_at)
        # The file at the path may be another one by now.
        if _fingerprint(os.pread(file.fileno(), FINGERPRINTED_BYTES, 0)) == segment.fingerprint:
            return SegmentReader(file, os.fstat(file.fileno()).st_size, partial(_read_plain, file.fileno(), budget))
    except _READ_ERRORS as error:
        if file is not None:
            file.close()
        raise UnreadableFile(str(error)) from error
    file.close()
    raise UnreadableFile(f"{segment.path.name} was replaced")


def _read_plain(descriptor: int, budget: ScanBudget, offset: int, count: int) -> bytes:
    budget.spend(count)
    return os.pread(descriptor, count, offset)


class SegmentReader:
    """An open file: the size of its uncompressed content, and a function that reads it."""

    def __init__(self, file: BinaryIO, size: int, read: ReadAt) -> None:
        self._file = file
        self._read = read
        self.size = size

    def read_at(self, offset: int, count: int) -> bytes:
        try:
            return self._read(offset, count)
        except _READ_ERRORS as error:
            raise UnreadableFile(str(error)) from error

    def __enter__(self) -> "SegmentReader":
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()


@dataclass(frozen=True, slots=True)
class _Checkpoint:
    """A place where decompression can start: the offsets in the content and in the file, and the state there."""

    offset: int
    packed_offset: int
    state: "zlib._Decompress"


Checkpoints = BoundedCache[tuple[int, int, int, int], _Checkpoint]
"""By the file (inode, size and time of modification) and the window. Each is a little after the start of its window."""


class _GzipWindow:
    """A compressed file, of which a window is in memory."""

    def __init__(self, file: BinaryIO, budget: ScanBudget, checkpoints: Checkpoints) -> None:
        self._file = file
        self._budget = budget
        self._checkpoints = checkpoints
        found = os.fstat(file.fileno())
        self._identity = found.st_ino, found.st_size, found.st_mtime_ns
        self._start, self._data = 0, b""

    def read_at(self, offset: int, count: int) -> bytes:
        if offset < self._start or offset + count > self._start + len(self._data):
            self._load(offset, offset + count)
        self._budget.spend(count)
        begin = offset - self._start
        return self._data[begin : begin + count]

    def _load(self, offset: int, end: int) -> None:
        """Loads the content from the last checkpoint before the offset to the end, and adds checkpoints on the way."""
        begin = self._find_checkpoint(offset)
        state = begin.state.copy()
        start = position = begin.offset
        chunks: list[bytes] = []
        self._file.seek(begin.packed_offset)
        while position < end:
            packed = self._file.read(PACKED_BYTES)
            if not packed or state.eof:
                raise EOFError("the compressed file ends before its content")
            chunks.append(state.decompress(packed))
            window = position // WINDOW_BYTES
            position += len(chunks[-1])
            if position // WINDOW_BYTES > window:
                key = *self._identity, position // WINDOW_BYTES
                self._checkpoints[key] = _Checkpoint(position, self._file.tell(), state.copy())
                if position <= offset:
                    start = position
                    chunks.clear()
        self._budget.spend((position - begin.offset) // DECOMPRESSION_DISCOUNT)
        self._start, self._data = start, b"".join(chunks)

    def _find_checkpoint(self, offset: int) -> _Checkpoint:
        for window in range(offset // WINDOW_BYTES, 0, -1):
            found = self._checkpoints.get((*self._identity, window))
            if found is not None and found.offset <= offset:
                return found
        return _Checkpoint(0, 0, zlib.decompressobj(wbits=zlib.MAX_WBITS | 16))


def _last_line_end(reader: SegmentReader) -> int:
    """The offset after the last newline."""
    position = reader.size
    while position > 0:
        count = min(BLOCK_BYTES, position)
        found = reader.read_at(position - count, count).rfind(b"\n")
        if found >= 0:
            return position - count + found + 1
        position -= count
    return 0


def iter_lines_backwards(
    reader: SegmentReader, end: int, budget: ScanBudget, needle: bytes = b""
) -> Iterator[tuple[int, bytes | None]]:
    """The lines before `end` with their offsets, the last one first. None for a line that is too long. With a needle,
    one empty line stands for all lines of a block that does not contain it, unless one of them looks damaged.

    Stops at a line boundary when the budget is spent. In a line that is too long, it stops anywhere, so that a damaged
    file cannot keep a request from making progress: what is left of the line is the next one.
    """
    tail, dropped, position, cursor = b"", 0, end, end
    while position > 0 and (position == end or not budget.is_spent()):
        count = min(BLOCK_BYTES, position)
        data = reader.read_at(position - count, count) + tail
        if position == end and data.endswith(b"\n"):
            data, cursor = data[:-1], cursor - 1
        position -= count
        is_skipped = needle and not dropped and needle not in data and data.count(b"\n") == data.count(b"}\n{")
        if is_skipped and (first := data.find(b"\n")) >= 0:
            budget.refund(count - count // SKIP_DISCOUNT)
            tail, cursor = data[:first], position + first
            yield cursor + 1, b""
            continue
        tail, *lines = data.split(b"\n")
        if lines and dropped:
            cursor -= dropped + len(lines.pop())
            yield cursor, None
            cursor, dropped = cursor - 1, 0
        for line in reversed(lines):
            cursor -= len(line)
            yield cursor, line
            cursor -= 1
        if len(tail) + dropped > MAX_LINE_BYTES:
            tail, dropped = b"", cursor - position
    if dropped:
        yield position, None
    elif position == 0 and end > 0:
        yield 0, tail


def is_intact(line: bytes) -> bool:
    """Whether a line that is not decoded looks like an event. An empty one stands for lines that were skipped."""
    return not line or (line.startswith(b"{") and line.endswith(b"}"))


def read_lines(
    log: SegmentedLog, start: Position, stop: Position | None, max_bytes: int
) -> tuple[list[tuple[Position, bytes]], Position]:
    """Complete lines after a position, each with the position after it, and the position to continue from.

    Reads at most so many bytes of one file, and nothing after `stop`. Raises Expired if the position is not known.
    """
    segments = log.segments_until(start)
    while segments:
        segment = segments.pop()
        offset = start.offset if segment.fingerprint == start.segment else 0
        found = _read_segment(log, segment, offset, stop, max_bytes)
        if found is None:
            continue  # damaged, or removed just now
        lines, end = found
        is_stop = stop is not None and segment.fingerprint == stop.segment
        if lines or end > offset or is_stop or not segments:
            return lines, Position(segment.fingerprint, end)
    return [], start


def _read_segment(
    log: SegmentedLog, segment: Segment, offset: int, stop: Position | None, max_bytes: int
) -> tuple[list[tuple[Position, bytes]], int] | None:
    """The complete lines of one file, and the offset after them; None if the file cannot be read."""
    if segment.is_compressed:  # each read decompresses it from its beginning, so there should be few
        max_bytes = max(max_bytes, WINDOW_BYTES)
    try:
        with log.open(segment, ScanBudget(0)) as reader:
            size = reader.size if stop is None or stop.segment != segment.fingerprint else min(stop.offset, reader.size)
            data = reader.read_at(offset, max(min(max_bytes, size - offset), 0))
            if b"\n" not in data and len(data) == max_bytes:  # a long line
                data = reader.read_at(offset, max(min(MAX_LINE_BYTES, size - offset), 0))
    except UnreadableFile:
        return None
    *lines, rest = data.split(b"\n")
    if len(rest) >= MAX_LINE_BYTES:
        return [], offset + len(rest)  # too long: what is left of it is the next line
    found, end = [], offset
    for line in lines:
        end += len(line) + 1
        found.append((Position(segment.fingerprint, end), line))
    return found, end
