"""The etcd messages that we send and receive.

Requests are functions that return bytes; responses are values with a `parse` method. Field numbers are those of
etcd's rpc.proto and kv.proto (API version 3).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from fairlead.storage.etcd.wire import data, fields, message, number

NEVER = -1
"""A mod revision that no key has."""

# Compare.CompareTarget. Compare.CompareResult is always EQUAL, which is 0 and thus omitted.
_CREATE, _MOD = 1, 2


@dataclass(frozen=True, slots=True)
class KeyValue:
    key: bytes
    value: bytes
    created: int
    modified: int

    @classmethod
    def parse(cls, encoded: bytes) -> "KeyValue":
        key = value = b""
        created = modified = 0
        for field, integer, content in fields(encoded):
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
class Found:
    """The response to a range request: the records, and whether there are more."""

    records: Sequence[KeyValue]
    more: bool
    revision: int
    """etcd's current revision; 0 within a transaction, whose own revision applies."""

    @classmethod
    def parse(cls, encoded: bytes) -> "Found":
        records: list[KeyValue] = []
        more, revision = False, 0
        for field, integer, content in fields(encoded):
            if field == 1:
                revision = header_revision(content)
            elif field == 2:
                records.append(KeyValue.parse(content))
            elif field == 3:
                more = bool(integer)
        return cls(records, more, revision)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The response to a transaction: which branch was executed, at which revision, and its range responses."""

    succeeded: bool
    revision: int
    found: Sequence[Found]

    @classmethod
    def parse(cls, encoded: bytes) -> "Outcome":
        succeeded, revision = False, 0
        found: list[Found] = []
        for field, integer, content in fields(encoded):
            if field == 1:
                revision = header_revision(content)
            elif field == 2:
                succeeded = bool(integer)
            elif field == 3:
                found += [Found.parse(inner) for kind, _, inner in fields(content) if kind == 1]
        return cls(succeeded, revision, found)


@dataclass(frozen=True, slots=True)
class Happening:
    """The change of one key in a watch."""

    record: KeyValue
    deleted: bool

    @classmethod
    def parse(cls, encoded: bytes) -> "Happening":
        deleted, record = False, b""
        for field, integer, content in fields(encoded):
            if field == 1:
                deleted = integer == 1
            elif field == 2:
                record = content
        return cls(KeyValue.parse(record), deleted)


@dataclass(frozen=True, slots=True)
class Notice:
    """One watch response. If `fragment` is set, the same revision may continue in the next one."""

    revision: int
    created: bool
    canceled: bool
    compacted: int
    reason: str
    fragment: bool
    happenings: Sequence[Happening]

    @classmethod
    def parse(cls, encoded: bytes) -> "Notice":
        numbers = dict.fromkeys((3, 4, 5, 7), 0)
        revision, reason = 0, ""
        happenings: list[Happening] = []
        for field, integer, content in fields(encoded):
            if field == 11:
                happenings.append(Happening.parse(content))
            elif field == 1:
                revision = header_revision(content)
            elif field == 6:
                reason = content.decode(errors="replace")
            elif field in numbers:
                numbers[field] = integer
        return cls(revision, bool(numbers[3]), bool(numbers[4]), numbers[5], reason, bool(numbers[7]), happenings)


def header_revision(encoded: bytes) -> int:
    return next((integer for field, integer, _ in fields(encoded) if field == 3), 0)


def lease_id(encoded: bytes) -> int:
    return next((integer for field, integer, _ in fields(encoded) if field == 2), 0)


def token(encoded: bytes) -> str:
    return next((content.decode() for field, _, content in fields(encoded) if field == 2), "")


def find(key: bytes, end: bytes = b"", *, limit: int = 0, revision: int = 0, keys_only: bool = False) -> bytes:
    """A range request for the keys from `key` to `end`, or for one key; at a revision, or linearizable."""
    asked = data(1, key) + data(2, end) + number(3, limit) + number(4, revision)
    return asked + number(8, keys_only)


def transaction(compares: Sequence[bytes], success: Sequence[bytes], failure: Sequence[bytes] = ()) -> bytes:
    parts = [message(1, each) for each in compares]
    parts += [message(2, each) for each in success]
    parts += [message(3, each) for each in failure]
    return b"".join(parts)


def if_modified_at(key: bytes, revision: int) -> bytes:
    """Compare the mod revision of a key; 0 means that it must not exist."""
    return number(2, _MOD) + data(3, key) + number(6, revision)


def if_created_at(key: bytes, revision: int) -> bytes:
    return number(2, _CREATE) + data(3, key) + number(5, revision)


def op_find(asked: bytes) -> bytes:
    return message(1, asked)


def op_put(key: bytes, value: bytes, lease: int = 0) -> bytes:
    return message(2, data(1, key) + data(2, value) + number(3, lease))


def op_delete(key: bytes) -> bytes:
    return message(3, data(1, key))


def compaction(revision: int) -> bytes:
    """A compaction request. Physical: the response comes after the data was removed from the member's database."""
    return number(1, revision) + number(2, 1)


def watching(key: bytes, end: bytes, start: int) -> bytes:
    """A watch request from a revision on, with progress notifications and fragments."""
    return message(1, data(1, key) + data(2, end) + number(3, start) + number(4, 1) + number(8, 1))


def lease(seconds: int) -> bytes:
    return number(1, seconds)


def login(user: str, password: str) -> bytes:
    return data(1, user.encode()) + data(2, password.encode())
