"""Our keys in etcd's key space, and the mapping between our revisions and etcd's.

    PREFIX format        the format version and our first revision; written once, when the store is created
    PREFIX head          written by every commit, with the commit's id; created together with `format`
    PREFIX fence/ID      invalidates the pending transactions of a session; see `writer.py`
    PREFIX data/KEY      the records, under their packed keys

etcd has one revision for all its clients. Ours is etcd's plus a constant, so that the revision that created `format`
is the store's first. Other clients of the same etcd cause gaps in ours, which are harmless.
"""

from dataclasses import dataclass

import msgspec

from fairlead.storage.commit import pack, prefix_range, unpack
from fairlead.storage.contract import FIRST_REVISION, Key, Unavailable
from fairlead.storage.etcd.messages import NEVER, KeyValue

VERSION = 1


class Format(msgspec.Struct, frozen=True):
    """The value of `format`. `first` is our first revision, which is larger in a restored store."""

    version: int = VERSION
    first: int = FIRST_REVISION


@dataclass(frozen=True, slots=True)
class Names:
    """The keys under a prefix."""

    prefix: bytes

    @property
    def all(self) -> tuple[bytes, bytes]:
        """The range of all our keys. The byte after "/" is "0"."""
        return self.prefix, self.prefix[:-1] + b"0"

    @property
    def format(self) -> bytes:
        return self.prefix + b"format"

    @property
    def head(self) -> bytes:
        return self.prefix + b"head"

    @property
    def data(self) -> bytes:
        return self.prefix + b"data/"

    def fence(self, session: str) -> bytes:
        return self.prefix + b"fence/" + session.encode()

    def record(self, packed: bytes) -> bytes:
        return self.data + packed

    def records(self, prefix: Key, after: Key | None = None) -> tuple[bytes, bytes]:
        low, high = prefix_range(prefix, after)
        return self.data + low, self.data + high

    def key(self, name: bytes) -> Key:
        return unpack(name[len(self.data) :])

    def stored(self, key: Key) -> bytes:
        return self.data + pack(key)


@dataclass(frozen=True, slots=True)
class Layout:
    """An existing store: its keys, etcd's revision at which it was created, and our first revision."""

    names: Names
    base: int
    first: int

    @classmethod
    def read(cls, names: Names, found: KeyValue, what: str) -> "Layout":
        """Parse the `format` record. Raises StoreUnavailable if it is not ours."""
        try:
            format = msgspec.json.decode(found.value, type=Format)
        except msgspec.DecodeError as error:
            key = found.key.decode(errors="replace")
            raise Unavailable(
                f"{what}: {key} was written by another program; use a prefix for Fairlead only"
            ) from error
        if format.version > VERSION:
            raise Unavailable(f"{what}: written by a newer version of Fairlead; install that version again")
        return cls(names, found.created, format.first)

    def ours(self, revision: int) -> int:
        return revision - self.base + self.first

    def theirs(self, revision: int) -> int:
        return revision - self.first + self.base

    def expected(self, revision: int) -> int:
        """The mod revision to compare with for one of ours. 0 stays 0; a revision before the store's start never
        matches."""
        if not revision:
            return 0
        return theirs if (theirs := self.theirs(revision)) > self.base else NEVER
