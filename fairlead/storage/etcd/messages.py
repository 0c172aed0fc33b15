"""The etcd messages that we send and receive.

Requests are functions that return bytes; responses are values with a `parse` method. Field numbers are those of
etcd's rpc.proto and kv.proto (API version 3).

Our keys in etcd's key space, and the mapping between our revisions and etcd's.

    PREFIX format        the format version and our first revision; written once, when the store is created
    PREFIX head          written by every commit, with the commit's id; created together with `format`
    PREFIX fence/ID      invalidates the pending transactions of a session; see `writer.py`
    PREFIX data/KEY      the records, under their packed keys

etcd has one revision for all its clients. Ours is etcd's plus a constant, so that the revision that created `format`
is the store's first. Other clients of the same etcd cause gaps in ours, which are harmless.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from fairlead.core.protobuf_wire import decode_fields, encode_bytes, encode_nonempty_bytes, encode_nonzero_int
from fairlead.storage.commit import pack_key, prefix_range, unpack_key
from fairlead.storage.contract import FIRST_REVISION, Key, StoreUnavailable
from fairlead.storage.data_version import check_layout, parse_needs

NO_REVISION = -1
"""A mod revision that no key has."""

# Compare.CompareTarget. Compare.CompareResult is always EQUAL, which is 0 and thus omitted.
_CREATE, _MOD = 1, 2


@dataclass(frozen=True, slots=True)
class KeyValue:
    key: bytes
    value: bytes
    create_revision: int
    mod_revision: int

    @classmethod
    def parse(cls, encoded: bytes) -> "KeyValue":
        key = value = b""
        created = modified = 0
        for field, _, integer, content in decode_fields(encoded):
            if field == 1:
                key = content
            elif field == 2:
                created = integer
            elif field == 3:
                modified = integer
            elif field == 5:
                value = content
        return cls(key, value, created, modified)


@dataclass(frozen=True, slots=True)
class RangeResponse:
    """The response to a range request: the records, and whether there are more."""

    records: Sequence[KeyValue]
    more: bool
    revision: int
    """etcd's current revision; 0 within a transaction, whose own revision applies."""

    @classmethod
    def parse(cls, encoded: bytes) -> "RangeResponse":
        records: list[KeyValue] = []
        more, revision = False, 0
        for field, _, integer, content in decode_fields(encoded):
            if field == 1:
                revision = parse_header_revision(content)
            elif field == 2:
                records.append(KeyValue.parse(content))
            elif field == 3:
                more = bool(integer)
        return cls(records, more, revision)


@dataclass(frozen=True, slots=True)
class TxnResponse:
    """The response to a transaction: which branch was executed, at which revision, and its range responses."""

    succeeded: bool
    revision: int
    ranges: Sequence[RangeResponse]

    @classmethod
    def parse(cls, encoded: bytes) -> "TxnResponse":
        succeeded, revision = False, 0
        found: list[RangeResponse] = []
        for field, _, integer, content in decode_fields(encoded):
            if field == 1:
                revision = parse_header_revision(content)
            elif field == 2:
                succeeded = bool(integer)
            elif field == 3:
                found += [RangeResponse.parse(inner) for kind, _, _, inner in decode_fields(content) if kind == 1]
        return cls(succeeded, revision, found)


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """The change of one key in a watch."""

    record: KeyValue
    deleted: bool

    @classmethod
    def parse(cls, encoded: bytes) -> "WatchEvent":
        deleted, record = False, b""
        for field, _, integer, content in decode_fields(encoded):
            if field == 1:
                deleted = integer == 1
            elif field == 2:
                record = content
        return cls(KeyValue.parse(record), deleted)


@dataclass(frozen=True, slots=True)
class WatchResponse:
    """One watch response. If `fragment` is set, the same revision may continue in the next one."""

    revision: int
    created: bool
    canceled: bool
    compact_revision: int
    reason: str
    fragment: bool
    events: Sequence[WatchEvent]

    @classmethod
    def parse(cls, encoded: bytes) -> "WatchResponse":
        numbers = dict.fromkeys((3, 4, 5, 7), 0)
        revision, reason = 0, ""
        happenings: list[WatchEvent] = []
        for field, _, integer, content in decode_fields(encoded):
            if field == 11:
                happenings.append(WatchEvent.parse(content))
            elif field == 1:
                revision = parse_header_revision(content)
            elif field == 6:
                reason = content.decode(errors="replace")
            elif field in numbers:
                numbers[field] = integer
        return cls(revision, bool(numbers[3]), bool(numbers[4]), numbers[5], reason, bool(numbers[7]), happenings)


def parse_header_revision(encoded: bytes) -> int:
    return next((integer for field, _, integer, _ in decode_fields(encoded) if field == 3), 0)


def parse_lease_id(encoded: bytes) -> int:
    return next((integer for field, _, integer, _ in decode_fields(encoded) if field == 2), 0)


def parse_token(encoded: bytes) -> str:
    return next((content.decode() for field, _, _, content in decode_fields(encoded) if field == 2), "")


def range_request(key: bytes, end: bytes = b"", *, limit: int = 0, revision: int = 0, keys_only: bool = False) -> bytes:
    """A range request for the keys from `key` to `end`, or for one key; at a revision, or linearizable."""
    request = (
        encode_nonempty_bytes(1, key)
        + encode_nonempty_bytes(2, end)
        + encode_nonzero_int(3, limit)
        + encode_nonzero_int(4, revision)
    )
    return request + encode_nonzero_int(8, keys_only)


def txn_request(compares: Sequence[bytes], success: Sequence[bytes], failure: Sequence[bytes] = ()) -> bytes:
    parts = [encode_bytes(1, each) for each in compares]
    parts += [encode_bytes(2, each) for each in success]
    parts += [encode_bytes(3, each) for each in failure]
    return b"".join(parts)


def compare_mod_revision(key: bytes, revision: int) -> bytes:
    """Compare the mod revision of a key; 0 means that it must not exist."""
    return encode_nonzero_int(2, _MOD) + encode_nonempty_bytes(3, key) + encode_nonzero_int(6, revision)


def compare_create_revision(key: bytes, revision: int) -> bytes:
    return encode_nonzero_int(2, _CREATE) + encode_nonempty_bytes(3, key) + encode_nonzero_int(5, revision)


def op_range(request: bytes) -> bytes:
    return encode_bytes(1, request)


def op_put(key: bytes, value: bytes, lease: int = 0) -> bytes:
    return encode_bytes(
        2, encode_nonempty_bytes(1, key) + encode_nonempty_bytes(2, value) + encode_nonzero_int(3, lease)
    )


def op_delete(key: bytes) -> bytes:
    return encode_bytes(3, encode_nonempty_bytes(1, key))


def compaction_request(revision: int) -> bytes:
    """A compaction request. Physical: the response comes after the data was removed from the member's database."""
    return encode_nonzero_int(1, revision) + encode_nonzero_int(2, 1)


def watch_request(key: bytes, end: bytes, start: int) -> bytes:
    """A watch request from a revision on, with progress notifications and fragments."""
    return encode_bytes(
        1,
        encode_nonempty_bytes(1, key)
        + encode_nonempty_bytes(2, end)
        + encode_nonzero_int(3, start)
        + encode_nonzero_int(4, 1)
        + encode_nonzero_int(8, 1),
    )


def lease_request(seconds: int) -> bytes:
    return encode_nonzero_int(1, seconds)


def auth_request(user: str, password: str) -> bytes:
    return encode_nonempty_bytes(1, user.encode()) + encode_nonempty_bytes(2, password.encode())


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
