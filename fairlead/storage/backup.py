"""Backup files: everything a store holds at one revision. Used by `app/maintenance.py` with any store.

    line      `fairlead-backup` and the header as JSON: format version, revision, time, type of the store
    records   for each: lengths of key and value (4 bytes each, big-endian), the packed key (commit.py), the value
    trailer   the same with an empty key; its value is JSON: the number of records, and a SHA-256 digest of all above

Count and digest are at the end so that a backup can be piped; a file without trailer is truncated. Keys are sorted
and unique. Values are written as stored: encrypted values stay encrypted and need the same keys. The digest detects
corruption, not tampering.
"""

import hashlib
from collections.abc import Iterator
from contextlib import aclosing
from typing import BinaryIO

import msgspec

from fairlead.core.crypto.encryption import is_sealed, key_id_of
from fairlead.storage.commit import pack, unpack
from fairlead.storage.contract import Key, Unavailable
from fairlead.storage.copy import LENGTHS, ONLY_PART, UNFINISHED, Content, Snapshot

MAGIC = b"fairlead-backup "
VERSION = 1
HEADER_BYTES = 4096
"""A file whose first line is longer is not a backup."""


LONGEST = 256 * 1024 * 1024
"""Maximum size of a key or value, which no store reaches. It keeps a corrupt length from exhausting the memory."""


class Header(msgspec.Struct, frozen=True):
    revision: int
    made: str
    """RFC 3339, by the clock of the machine that wrote the backup."""
    store: str
    """The scheme of the store's URL, for information."""
    version: int = VERSION


class End(msgspec.Struct, frozen=True):
    count: int
    digest: str


class Summary(msgspec.Struct, frozen=True):
    """Properties of a backup. `encryption_key_ids` are the keys that its encrypted values need."""

    header: Header
    count: int
    digest: str
    bytes: int
    seal_keys: tuple[str, ...]


class Damaged(Exception):
    """The file is not a backup, or is corrupt. The message says what is wrong, without the file name."""


async def write_backup(snapshot: Snapshot, made: str, store: str, out: BinaryIO) -> Summary:
    header = Header(snapshot.revision, made, store)
    line = MAGIC + msgspec.json.encode(header) + b"\n"
    content, size, keys = Content(), out.write(line), set[str]()
    async with aclosing(snapshot.records) as records:
        async for record in records:
            if record.key == UNFINISHED:
                raise Unavailable(ONLY_PART)
            if is_sealed(record.value):
                keys.add(key_id_of(record.value))
            size += out.write(content.add(record.key, record.value))
    end = End(content.count, _digest(line, content))
    encoded = msgspec.json.encode(end)
    size += out.write(LENGTHS.pack(0, len(encoded)) + encoded)
    return Summary(header, end.count, end.digest, size, tuple(sorted(keys)))


class Backup:
    """Reads a backup file once. `summary` is set after all `records` were read, if the backup is valid."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._line = file.readline(HEADER_BYTES)
        self._size = len(self._line)
        self.header = _header(self._line)
        self.summary: Summary | None = None

    def records(self) -> Iterator[tuple[Key, bytes]]:
        """Raises CorruptBackup. The digest is checked last, so no record can be trusted before the end."""
        content, keys, last = Content(), set[str](), b""
        while True:
            key_size, value_size = LENGTHS.unpack(self._take(LENGTHS.size))
            packed, value = self._take(key_size), self._take(value_size)
            if not packed:
                break
            if packed <= last:
                raise Damaged("its records are not sorted")
            last, key = packed, _key(packed)
            content.add(key, value)
            if is_sealed(value):
                keys.add(key_id_of(value))
            yield key, value
        end = _end(value)
        if self._file.read(1):
            raise Damaged("there is data after its trailer")
        if (end.count, end.digest) != (content.count, _digest(self._line, content)):
            raise Damaged("its digest does not match its content")
        self.summary = Summary(self.header, end.count, end.digest, self._size, tuple(sorted(keys)))

    def _take(self, size: int) -> bytes:
        if size > LONGEST:
            raise Damaged("a length in it is corrupt")
        taken = self._file.read(size)
        if len(taken) < size:
            raise Damaged("it is truncated")
        self._size += size
        return taken


def verify(file: BinaryIO) -> Summary:
    """Read the whole backup. Raises CorruptBackup."""
    backup = Backup(file)
    for _ in backup.records():
        pass
    assert backup.summary is not None
    return backup.summary


def _digest(line: bytes, content: Content) -> str:
    return hashlib.sha256(line + b"%d " % content.count + content.digest()).hexdigest()


def _header(line: bytes) -> Header:
    if not line.startswith(MAGIC):
        raise Damaged("it is not a backup, or its beginning is missing")
    try:
        header = msgspec.json.decode(line[len(MAGIC) :], type=Header)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Damaged("its first line is corrupt") from error
    if header.version > VERSION:
        raise Damaged("it was written by a newer version of Fairlead; use that one")
    return header


def _key(packed: bytes) -> Key:
    try:
        key = unpack(packed)
    except UnicodeDecodeError as error:
        raise Damaged("a key in it is corrupt") from error
    if pack(key) != packed:
        raise Damaged("a key in it is corrupt")
    return key


def _end(value: bytes) -> End:
    try:
        return msgspec.json.decode(value, type=End)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Damaged("its trailer is corrupt") from error
