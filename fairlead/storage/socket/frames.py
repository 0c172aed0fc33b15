"""The binary format of requests, responses and commits. The first byte of a frame is its kind.

    request    kind, id, and then what the kind needs
    response   kind, id, a number, and then what the kind needs
    feed       kind, and then rows: the events of one or more whole commits
    hello      kind, the epoch, and the revision after which the feed begins; the first frame of a connection
    skipped    kind, and the revision at which the feed continues, because the history before it was compacted

A row is a revision, the sizes of key and value, the packed key, and the value. A write of a commit has the same form,
with the expected revision.

The newest revision of a store, in memory that the owner of the store and its workers share.

Each number is eight aligned bytes that are read and written in one memory access, so it needs no lock. Only the owner
writes.
"""

import struct
from collections.abc import Iterator, Sequence

from fairlead.core.framed_socket import encode_frame
from fairlead.storage.commit import PreparedCommit, pack_key, unpack_key
from fairlead.storage.contract import Event, Key, Precondition, Record, Write

MAX_FRAME_BYTES = 512 * 1024 * 1024
"""Far more than any commit needs. A commit is one frame; everything else is split into pieces."""
PIECE_BYTES = 1024 * 1024
"""The approximate size of the frames of the feed."""

REQUEST = struct.Struct("<BQ")
RESPONSE = struct.Struct("<BQq")
RESULT_FRAME = struct.Struct("<IBQq")
"""A response without further content, with the length in front."""
HELLO_FRAME = struct.Struct("<BQq")
SKIPPED_FRAME = struct.Struct("<Bq")
COMMIT_COUNTS = struct.Struct("<II")
ROW = struct.Struct("<qII")
CHECK = struct.Struct("<qI")
SCAN_FIELDS = struct.Struct("<qIiI")
NUMBER = struct.Struct("<q")

COMMIT, READ, SCAN, REPLAY, OLDEST, COMPACT, PURGE_DELETED, CHECK_WRITABLE = range(8)
RESULT, ROWS, CONFLICT, COMPACTED, UNAVAILABLE, INVALID = range(8, 14)
FEED, HELLO, SKIPPED = range(14, 17)
FEED_KIND = bytes([FEED])
ROWS_ARE_COMPLETE, ROWS_HAVE_MORE = b"\0", b"\1"
"""The byte between the head and the rows of a response: whether a scan has more."""

NO_VALUE = 0xFFFF_FFFF
NOW = -(1 << 63)
"""Instead of a revision: the current one."""
MIN_NUMBER, MAX_NUMBER = NOW + 1, (1 << 63) - 1
MAX_LIMIT = 0xFFFF_FFFF


def clamp_number(number: int) -> int:
    """The nearest number that fits into a frame. No revision is outside of this range."""
    return max(MIN_NUMBER, min(MAX_NUMBER, number))


def encode_commit(commit: PreparedCommit) -> bytes:
    parts = [COMMIT_COUNTS.pack(len(commit.writes), len(commit.preconditions))]
    for change, packed in zip(commit.writes, commit.write_keys, strict=True):
        value, expected = change.value, clamp_number(change.expected_revision)
        if value is None:
            parts += (ROW.pack(expected, len(packed), NO_VALUE), packed)
        else:
            parts += (ROW.pack(expected, len(packed), len(value)), packed, value)
    for check, packed in zip(commit.preconditions, commit.precondition_keys, strict=True):
        parts += (CHECK.pack(clamp_number(check.expected_revision), len(packed)), packed)
    return b"".join(parts)


def decode_commit(frame: bytes) -> PreparedCommit:
    """Decode a request for a commit. The worker has validated it."""
    writes, preconditions = COMMIT_COUNTS.unpack_from(frame, REQUEST.size)
    at = REQUEST.size + COMMIT_COUNTS.size
    changes: list[Write] = []
    change_keys: list[bytes] = []
    checks: list[Precondition] = []
    check_keys: list[bytes] = []
    for _ in range(writes):
        expected, key_size, value_size = ROW.unpack_from(frame, at)
        at += ROW.size + key_size
        packed = frame[at - key_size : at]
        value = None
        if value_size != NO_VALUE:
            value = frame[at : at + value_size]
            at += value_size
        changes.append(Write(unpack_key(packed), value, expected))
        change_keys.append(packed)
    for _ in range(preconditions):
        expected, key_size = CHECK.unpack_from(frame, at)
        at += CHECK.size + key_size
        packed = frame[at - key_size : at]
        checks.append(Precondition(unpack_key(packed), expected))
        check_keys.append(packed)
    return PreparedCommit(changes, change_keys, checks, check_keys)


def encode_result(id: int, number: int) -> bytes:
    """A whole frame: the response to a request that has succeeded and only returns a number."""
    return RESULT_FRAME.pack(RESPONSE.size, RESULT, id, number)


def encode_scan(prefix: Key, after: Key | None, limit: int, at: int | None) -> bytes:
    packed = pack_key(prefix)
    packed_after = b"" if after is None else pack_key(after)
    moment = NOW if at is None else clamp_number(at)
    fields = SCAN_FIELDS.pack(moment, min(limit, MAX_LIMIT), -1 if after is None else len(packed_after), len(packed))
    return b"".join((fields, packed_after, packed))


def decode_scan(frame: bytes) -> tuple[Key, Key | None, int, int | None]:
    """The prefix, the key to continue after, the limit, and the revision."""
    moment, limit, after_size, prefix_size = SCAN_FIELDS.unpack_from(frame, REQUEST.size)
    prefix_start = len(frame) - prefix_size
    after = None if after_size < 0 else unpack_key(frame[prefix_start - after_size : prefix_start])
    return unpack_key(frame[prefix_start:]), after, limit, None if moment == NOW else moment


def encode_row(key: bytes, value: bytes | None, revision: int) -> bytes:
    if value is None:
        return b"".join((ROW.pack(revision, len(key), NO_VALUE), key))
    return b"".join((ROW.pack(revision, len(key), len(value)), key, value))


def encode_feed(events: Sequence[Event]) -> bytes:
    """Frames with the events of whole commits, for all workers."""
    frames: list[bytes] = []
    parts = [FEED_KIND]
    size = 0
    last = events[0].revision
    for event in events:
        if size >= PIECE_BYTES and event.revision != last:
            frames.append(encode_frame(*parts))
            parts, size = [FEED_KIND], 0
        row = encode_row(pack_key(event.key), event.value, event.revision)
        parts.append(row)
        size += len(row)
        last = event.revision
    frames.append(encode_frame(*parts))
    return b"".join(frames) if len(frames) > 1 else frames[0]


def decode_events(frame: bytes, start: int) -> list[Event]:
    return [Event(key, value, revision) for key, value, revision in _iter_rows(frame, start)]


def decode_records(response: bytes) -> list[Record]:
    """The rows of a response to a read or a scan, where every key has a value."""
    rows = _iter_rows(response, RESPONSE.size + 1)
    return [Record(key, value or b"", revision) for key, value, revision in rows]


def decode_replay(response: bytes) -> list[Event]:
    return decode_events(response, RESPONSE.size + 1)


def has_more_rows(response: bytes) -> bool:
    return response[RESPONSE.size] == ROWS_HAVE_MORE[0]


def _iter_rows(frame: bytes, at: int) -> Iterator[tuple[Key, bytes | None, int]]:
    end = len(frame)
    while at < end:
        revision, key_size, value_size = ROW.unpack_from(frame, at)
        at += ROW.size + key_size
        key = unpack_key(frame[at - key_size : at])
        if value_size == NO_VALUE:
            yield key, None, revision
        else:
            yield key, frame[at : at + value_size], revision
            at += value_size


class SharedRevision:
    """Two numbers in a buffer: the newest acknowledged revision, and the epoch, which counts the owners so far."""

    SIZE = 16

    def __init__(self, buffer: memoryview) -> None:
        """`buffer` has SIZE bytes at an address that is a multiple of eight, for example the start of an mmap."""
        self._numbers = buffer.cast("B").cast("Q")
        if len(self._numbers) * 8 != self.SIZE:
            raise ValueError(f"the buffer must have {self.SIZE} bytes")

    @property
    def revision(self) -> int:
        return self._numbers[0]

    @property
    def epoch(self) -> int:
        return self._numbers[1]

    def begin_epoch(self, revision: int) -> None:
        """A new owner takes over. Workers of earlier owners fail from now on."""
        self._numbers[1] += 1
        self._numbers[0] = revision

    def publish(self, revision: int) -> None:
        """A commit is durable. Call this before the commit is acknowledged."""
        self._numbers[0] = revision

    def revision_in(self, epoch: int) -> int | None:
        """The newest revision, or None if the epoch is over."""
        numbers = self._numbers
        return numbers[0] if numbers[1] == epoch else None
