"""A store as one file: everything it held at one revision. Written and read by `app/maintenance.py`, from and to any store.

    line     `fairlead-backup` and the header as JSON: version of this format, revision, when, from what sort of store
    records  each: length of the key and of the value, 4 bytes each, big-endian; the packed key (keys.py); the value
    end      the same with a key of length 0; its value is JSON: how many records, and a SHA-256 digest of all above

What can only be known at the end stands there, so that a backup can go through a pipe; a file without its end is known
to be cut off. Keys come in order, each once. Values are as the store has them: what is sealed stays sealed, and opens
with the keys that it was sealed with. The digest tells damage, not malice.
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
"""A first line that is longer is none of ours."""


LONGEST = 256 * 1024 * 1024
"""Bytes of a key or a value; no store takes as much. Else a damaged length could ask for all of the memory."""


class Header(msgspec.Struct, frozen=True):
    revision: int
    made: str
    """RFC 3339, by the clock of whoever made it."""
    store: str
    """The scheme of the store's address, for people."""
    version: int = VERSION


class End(msgspec.Struct, frozen=True):
    count: int
    digest: str


class Summary(msgspec.Struct, frozen=True):
    """What is to be said of a backup. `seal_keys` are the ids of those that its sealed values need."""

    header: Header
    count: int
    digest: str
    bytes: int
    seal_keys: tuple[str, ...]


class Damaged(Exception):
    """This is not a backup, or no longer. The message, for people, says what is wrong; the file's name is not in it."""


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
    """A file that is being read, once. `summary` is there when all `records` were taken, and only if they are sound."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._line = file.readline(HEADER_BYTES)
        self._size = len(self._line)
        self.header = _header(self._line)
        self.summary: Summary | None = None

    def records(self) -> Iterator[tuple[Key, bytes]]:
        """Raises Damaged, at the latest after the last one: nothing is certain before."""
        content, keys, last = Content(), set[str](), b""
        while True:
            key_size, value_size = LENGTHS.unpack(self._take(LENGTHS.size))
            packed, value = self._take(key_size), self._take(value_size)
            if not packed:
                break
            if packed <= last:
                raise Damaged("its records are not in order")
            last, key = packed, _key(packed)
            content.add(key, value)
            if is_sealed(value):
                keys.add(key_id_of(value))
            yield key, value
        end = _end(value)
        if self._file.read(1):
            raise Damaged("something follows its end")
        if (end.count, end.digest) != (content.count, _digest(self._line, content)):
            raise Damaged("its digest does not fit what is in it")
        self.summary = Summary(self.header, end.count, end.digest, self._size, tuple(sorted(keys)))

    def _take(self, size: int) -> bytes:
        if size > LONGEST:
            raise Damaged("a length in it is damaged")
        taken = self._file.read(size)
        if len(taken) < size:
            raise Damaged("it is cut off")
        self._size += size
        return taken


def verify(file: BinaryIO) -> Summary:
    """Reads all of it. Raises Damaged."""
    backup = Backup(file)
    for _ in backup.records():
        pass
    assert backup.summary is not None
    return backup.summary


def _digest(line: bytes, content: Content) -> str:
    return hashlib.sha256(line + b"%d " % content.count + content.digest()).hexdigest()


def _header(line: bytes) -> Header:
    if not line.startswith(MAGIC):
        raise Damaged("it is no backup, or its beginning is lost")
    try:
        header = msgspec.json.decode(line[len(MAGIC) :], type=Header)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Damaged("its first line is damaged") from error
    if header.version > VERSION:
        raise Damaged("it was written by a newer version of Fairlead; use that one")
    return header


def _key(packed: bytes) -> Key:
    try:
        key = unpack(packed)
    except UnicodeDecodeError as error:
        raise Damaged("a key in it is damaged") from error
    if pack(key) != packed:
        raise Damaged("a key in it is damaged")
    return key


def _end(value: bytes) -> End:
    try:
        return msgspec.json.decode(value, type=End)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Damaged("its end is damaged") from error
