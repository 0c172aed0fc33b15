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

from fairlead.storage.commit import pack_key, prefix_range, unpack_key
from fairlead.storage.contract import FIRST_REVISION, Key, StoreUnavailable
from fairlead.storage.data_version import check_layout, parse_needs
from fairlead.storage.etcd.messages import NO_REVISION, KeyValue

VERSION = 1


RELEASE = "0.1.0"
"""The first release that knows this version."""


class Format(msgspec.Struct, frozen=True):
    """The value of `format`. `first` is our first revision, which is larger in a restored store. Programs that know
    at least the version `minimum`, and so this release and later ones, can use the store."""

    version: int = VERSION
    first: int = FIRST_REVISION
    minimum: int = VERSION
    release: str = RELEASE


@dataclass(frozen=True, slots=True)
class KeySpace:
    """The keys under a prefix."""

    prefix: bytes

    @property
    def full_range(self) -> tuple[bytes, bytes]:
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

    def barrier_key(self, session: str) -> bytes:
        return self.prefix + b"fence/" + session.encode()

    def packed_record_key(self, packed: bytes) -> bytes:
        return self.data + packed

    def record_range(self, prefix: Key, after: Key | None = None) -> tuple[bytes, bytes]:
        low, high = prefix_range(prefix, after)
        return self.data + low, self.data + high

    def parse_record_key(self, etcd_key: bytes) -> Key:
        return unpack_key(etcd_key[len(self.data) :])

    def record_key(self, key: Key) -> bytes:
        return self.data + pack_key(key)


@dataclass(frozen=True, slots=True)
class Layout:
    """An existing store: its keys, etcd's revision at which it was created, and our first revision."""

    keys: KeySpace
    base: int
    first: int

    @classmethod
    def parse(cls, keys: KeySpace, record: KeyValue, server: str) -> "Layout":
        """Parse the `format` record. Raises StoreUnavailable if it is not ours."""
        try:
            format = msgspec.json.decode(record.value, type=Format)
            needs = parse_needs(record.value)
        except msgspec.DecodeError as error:
            key = record.key.decode(errors="replace")
            raise StoreUnavailable(
                f"{server}: {key} was written by another program; use a prefix for Fairlead only"
            ) from error
        check_layout(server, format.version, VERSION, needs)
        return cls(keys, record.create_revision, format.first)

    def from_etcd_revision(self, revision: int) -> int:
        return revision - self.base + self.first

    def to_etcd_revision(self, revision: int) -> int:
        return revision - self.first + self.base

    def expected_mod_revision(self, revision: int) -> int:
        """The mod revision to compare with for one of ours. 0 stays 0; a revision before the store's start never
        matches."""
        if not revision:
            return 0
        return mod_revision if (mod_revision := self.to_etcd_revision(revision)) > self.base else NO_REVISION
