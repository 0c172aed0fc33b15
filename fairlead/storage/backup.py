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
from contextlib import aclosing, suppress
from typing import BinaryIO

import msgspec

from fairlead.core.crypto.encryption import is_encrypted, key_id_of
from fairlead.storage.commit import pack_key, unpack_key
from fairlead.storage.contract import Key, StoreUnavailable
from fairlead.storage.copy import RECORD_LENGTHS, UNFINISHED_KEY, UNFINISHED_MESSAGE, ContentDigest, Snapshot
from fairlead.storage.data_version import VERSION_KEY, DataVersion, decode_version

MAGIC = b"fairlead-backup "
VERSION = 1
MAX_HEADER_BYTES = 4096
"""A file whose first line is longer is not a backup."""


MAX_FIELD_BYTES = 256 * 1024 * 1024
"""Maximum size of a key or value, which no store reaches. It keeps a corrupt length from exhausting the memory."""


class BackupHeader(msgspec.Struct, frozen=True):
    revision: int
    made: str
    """RFC 3339, by the clock of the machine that wrote the backup."""
    store: str
    """The scheme of the store's URL, for information."""
    version: int = VERSION


class Trailer(msgspec.Struct, frozen=True):
    count: int
    digest: str


class BackupSummary(msgspec.Struct, frozen=True):
    """Properties of a backup. `encryption_key_ids` are the keys that its encrypted values need."""

    header: BackupHeader
    count: int
    digest: str
    size_bytes: int
    encryption_key_ids: tuple[str, ...]
    data_version: DataVersion


class CorruptBackup(Exception):
    """The file is not a backup, or is corrupt. The message says what is wrong, without the file name."""


async def write_backup(snapshot: Snapshot, created: str, store: str, out: BinaryIO) -> BackupSummary:
    header = BackupHeader(snapshot.revision, created, store)
    line = MAGIC + msgspec.json.encode(header) + b"\n"
    content = ContentDigest()
    size = out.write(line)
    keys = set[str]()
    version = DataVersion()
    async with aclosing(snapshot.records) as records:
        async for record in records:
            if record.key == UNFINISHED_KEY:
                raise StoreUnavailable(UNFINISHED_MESSAGE)
            if is_encrypted(record.value):
                keys.add(key_id_of(record.value))
            if record.key == VERSION_KEY:
                with suppress(StoreUnavailable):  # a store that is damaged can be backed up, too
                    version = decode_version(record.value)
            size += out.write(content.add(record.key, record.value))
    end = Trailer(content.count, _compute_digest(line, content))
    encoded = msgspec.json.encode(end)
    size += out.write(RECORD_LENGTHS.pack(0, len(encoded)) + encoded)
    return BackupSummary(header, end.count, end.digest, size, tuple(sorted(keys)), version)


class BackupReader:
    """Reads a backup file once. `summary` is set after all `records` were read, if the backup is valid."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._line = file.readline(MAX_HEADER_BYTES)
        self._size = len(self._line)
        self.header = _parse_header(self._line)
        self.summary: BackupSummary | None = None

    def records(self) -> Iterator[tuple[Key, bytes]]:
        """Raises CorruptBackup. The digest is checked last, so no record can be trusted before the end."""
        content = ContentDigest()
        keys = set[str]()
        last = b""
        version = DataVersion()
        while True:
            key_size, value_size = RECORD_LENGTHS.unpack(self._read_exactly(RECORD_LENGTHS.size))
            packed = self._read_exactly(key_size)
            value = self._read_exactly(value_size)
            if not packed:
                break
            if packed <= last:
                raise CorruptBackup("its records are not sorted")
            last, key = packed, _parse_key(packed)
            content.add(key, value)
            if is_encrypted(value):
                keys.add(key_id_of(value))
            if key == VERSION_KEY:
                version = _parse_version(value)
            yield key, value
        end = _parse_trailer(value)
        if self._file.read(1):
            raise CorruptBackup("there is data after its trailer")
        if (end.count, end.digest) != (content.count, _compute_digest(self._line, content)):
            raise CorruptBackup("its digest does not match its content")
        found = tuple(sorted(keys))
        self.summary = BackupSummary(self.header, end.count, end.digest, self._size, found, version)

    def _read_exactly(self, size: int) -> bytes:
        if size > MAX_FIELD_BYTES:
            raise CorruptBackup("a length in it is corrupt")
        chunk = self._file.read(size)
        if len(chunk) < size:
            raise CorruptBackup("it is truncated")
        self._size += size
        return chunk


def verify_file(file: BinaryIO) -> BackupSummary:
    """Read the whole backup. Raises CorruptBackup."""
    backup = BackupReader(file)
    for _ in backup.records():
        pass
    assert backup.summary is not None
    return backup.summary


def _compute_digest(line: bytes, content: ContentDigest) -> str:
    return hashlib.sha256(line + b"%d " % content.count + content.digest()).hexdigest()


def _parse_header(line: bytes) -> BackupHeader:
    if not line.startswith(MAGIC):
        raise CorruptBackup("it is not a backup, or its beginning is missing")
    try:
        header = msgspec.json.decode(line[len(MAGIC) :], type=BackupHeader)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptBackup("its first line is corrupt") from error
    if header.version > VERSION:
        raise CorruptBackup("it was written by a newer version of Fairlead; use that one")
    return header


def _parse_key(packed: bytes) -> Key:
    try:
        key = unpack_key(packed)
    except UnicodeDecodeError as error:
        raise CorruptBackup("a key in it is corrupt") from error
    if pack_key(key) != packed:
        raise CorruptBackup("a key in it is corrupt")
    return key


def _parse_version(value: bytes) -> DataVersion:
    try:
        return decode_version(value)
    except StoreUnavailable as error:
        raise CorruptBackup("the record of the data version in it is not readable") from error


def _parse_trailer(value: bytes) -> Trailer:
    try:
        return msgspec.json.decode(value, type=Trailer)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptBackup("its trailer is corrupt") from error
