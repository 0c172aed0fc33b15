"""The wire format of protobuf, as far as it takes to read a message by a table of its fields.

`server/api/protobuf.py` has the tables. What is not in a table is passed over, as protobuf asks for; what cannot be right is
Malformed.
"""

import base64
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from fairlead.core.body_errors import Malformed
from fairlead.core.clock import timestamp
from fairlead.core.objects import Object

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LONGEST_VARINT = 10
_MOST_FIELDS = 10_000
_LAST_SECOND = int(datetime(9999, 12, 31, tzinfo=UTC).timestamp())

Value = int | bytes
Read = Callable[[Value], Any]


@dataclass(frozen=True, slots=True)
class Field:
    """A field's name and how its value is read.

    `many` collects, `keyed` makes a map of two-field entries, and `telling` is one that says something by being there.
    """

    name: str
    read: Read
    many: bool = False
    keyed: bool = False
    telling: bool = False


Message = Mapping[int, Field]


def _wire(data: bytes) -> Iterator[tuple[int, Value]]:
    """The fields of a message as they stand: number and value."""
    at = count = 0
    while at < len(data):
        count += 1
        if count > _MOST_FIELDS:
            raise Malformed(f"a structure has more than {_MOST_FIELDS} fields; send JSON")
        tag, at = _varint(data, at)
        number, sort = tag >> 3, tag & 7
        if sort == _VARINT:
            value, at = _varint(data, at)
            yield number, value
            continue
        if sort == _BYTES:
            size, at = _varint(data, at)
        elif sort in (_FIXED64, _FIXED32):
            size = 8 if sort == _FIXED64 else 4
        else:
            raise Malformed(f"a field has the unknown wire type {sort}")
        if at + size > len(data):
            raise Malformed("it ends in the middle of a field")
        yield number, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(_LONGEST_VARINT):
        if at + shift >= len(data):
            break
        byte = data[at + shift]
        value |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return value, at + shift + 1
    raise Malformed("a number does not end")


def message(fields: Message) -> Read:
    """How a structure with these fields is read."""
    telling = frozenset(field.name for field in fields.values() if field.telling)

    def read(value: Value) -> Object:
        found: Object = {}
        for place, each in _wire(raw(value)):
            field = fields.get(place)
            if field is None:
                continue
            if field.keyed:
                entry = dict(_wire(raw(each)))
                found.setdefault(field.name, {})[text(entry.get(1, b""))] = field.read(entry.get(2, b""))
            elif field.many:
                found.setdefault(field.name, []).append(field.read(each))
            else:
                found[field.name] = field.read(each)
        # Kubernetes writes empty values out; nearly all of them mean what an absent field means.
        return {name: value for name, value in found.items() if value not in ("", None, {}, b"") or name in telling}

    return read


def raw(value: Value) -> bytes:
    if isinstance(value, int):
        raise Malformed("a number stands where a text or a structure should")
    return value


def text(value: Value) -> str:
    try:
        return raw(value).decode()
    except UnicodeDecodeError:
        raise Malformed("a text is not UTF-8") from None


def texts(value: Value) -> list[str]:
    """A structure that holds nothing but a list of texts."""
    return [text(each) for place, each in _wire(raw(value)) if place == 1]


def base64_text(value: Value) -> str:
    return base64.b64encode(raw(value)).decode()


def number(value: Value) -> int:
    if not isinstance(value, int):
        raise Malformed("a number is of the wrong wire type")
    return value - (1 << 64) if value >= 1 << 63 else value


def flag(value: Value) -> bool:
    return bool(number(value))


def moment(value: Value) -> str | None:
    seconds = number(dict(_wire(raw(value))).get(1, 0))
    if not 0 <= seconds <= _LAST_SECOND:
        raise Malformed("a time is out of range")
    return timestamp(datetime.fromtimestamp(seconds, UTC)) if seconds else None
