"""Our keys in etcd's key space, and our revisions beside etcd's. Called by whatever reads or writes here.

    PREFIX format        what this is and where our revisions begin; written once, by whoever opens the store first
    PREFIX head          written by every commit, with the commit's id; in the same transaction as `format` at first
    PREFIX fence/ID      says that the transactions of a session that were still under way must fail; see `writer.py`
    PREFIX data/KEY      the records, under their packed keys

etcd counts one revision for all who use it. Ours are etcd's plus a constant, so that the revision at which `format` was
created is the store's first. Others who write to the same etcd make gaps in ours, which nobody minds.
"""

from dataclasses import dataclass

import msgspec

from fairlead.storage.commit import pack, prefix_range, unpack
from fairlead.storage.contract import FIRST_REVISION, Key, Unavailable
from fairlead.storage.etcd.messages import NEVER, KeyValue

VERSION = 1


class Format(msgspec.Struct, frozen=True):
    """The value of `format`. `first` is what our revisions begin with: larger in a store that continues another one."""

    version: int = VERSION
    first: int = FIRST_REVISION


@dataclass(frozen=True, slots=True)
class Names:
    """The keys under a prefix."""

    prefix: bytes

    @property
    def all(self) -> tuple[bytes, bytes]:
        """The range of everything that is ours; the byte after a slash is a zero."""
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
    """A store that exists: its names, and etcd's revision at which it began."""

    names: Names
    base: int
    first: int

    @classmethod
    def read(cls, names: Names, found: KeyValue, what: str) -> "Layout":
        """From the record of `format`. Unavailable where it is none of ours."""
        try:
            format = msgspec.json.decode(found.value, type=Format)
        except msgspec.DecodeError as error:
            place = found.key.decode(errors="replace")
            raise Unavailable(
                f"{what}: {place} was written by some other program; give Fairlead a prefix of its own"
            ) from error
        if format.version > VERSION:
            raise Unavailable(f"{what}: written by a newer version of Fairlead; install that version again")
        return cls(names, found.created, format.first)

    def ours(self, revision: int) -> int:
        return revision - self.base + self.first

    def theirs(self, revision: int) -> int:
        return revision - self.first + self.base

    def expected(self, revision: int) -> int:
        """The mod revision to compare with, where ours is expected; 0 stays 0, and what was never ours never fits."""
        if not revision:
            return 0
        return theirs if (theirs := self.theirs(revision)) > self.base else NEVER
