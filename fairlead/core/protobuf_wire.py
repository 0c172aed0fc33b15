"""A decoder for the protobuf wire format, driven by tables of fields.

The tables are in `server/api/protobuf.py`. Unknown fields are skipped, as protobuf requires; invalid data raises
`Malformed`.
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
_MAX_VARINT_BYTES = 10
_MAX_FIELDS = 10_000
_MAX_TIMESTAMP = int(datetime(9999, 12, 31, tzinfo=UTC).timestamp())

WireValue = int | bytes
FieldReader = Callable[[WireValue], Any]


@dataclass(frozen=True, slots=True)
class Field:
    """A field's JSON name and the function that reads its value.

    `repeated` collects values in a list, `is_map` builds a map from key-value entries, and `has_presence` keeps the
    field even if its value is empty.
    """

    name: str
    read: FieldReader
    repeated: bool = False
    is_map: bool = False
    has_presence: bool = False


MessageSchema = Mapping[int, Field]


def _iter_fields(data: bytes) -> Iterator[tuple[int, WireValue]]:
    """Iterate over the fields of a message: number and raw value."""
    at = count = 0
    while at < len(data):
        count += 1
        if count > _MAX_FIELDS:
            raise Malformed(f"a message has more than {_MAX_FIELDS} fields; send JSON")
        tag, at = _read_varint(data, at)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == _VARINT:
            value, at = _read_varint(data, at)
            yield number, value
            continue
        if wire_type == _BYTES:
            size, at = _read_varint(data, at)
        elif wire_type in (_FIXED64, _FIXED32):
            size = 8 if wire_type == _FIXED64 else 4
        else:
            raise Malformed(f"a field has the unknown wire type {wire_type}")
        if at + size > len(data):
            raise Malformed("the message ends within a field")
        yield number, data[at : at + size]
        at += size


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(_MAX_VARINT_BYTES):
        if at + shift >= len(data):
            break
        byte = data[at + shift]
        value |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return value, at + shift + 1
    raise Malformed("a varint is truncated or too long")


def message_reader(fields: MessageSchema) -> FieldReader:
    """A function that reads a message with these fields."""
    telling = frozenset(field.name for field in fields.values() if field.has_presence)

    def read(value: WireValue) -> Object:
        found: Object = {}
        for field_number, each in _iter_fields(read_bytes(value)):
            field = fields.get(field_number)
            if field is None:
                continue
            if field.is_map:
                entry = dict(_iter_fields(read_bytes(each)))
                found.setdefault(field.name, {})[read_text(entry.get(1, b""))] = field.read(entry.get(2, b""))
            elif field.repeated:
                found.setdefault(field.name, []).append(field.read(each))
            else:
                found[field.name] = field.read(each)
        # Kubernetes encodes empty values explicitly; nearly all of them are equivalent to an absent field.
        return {name: value for name, value in found.items() if value not in ("", None, {}, b"") or name in telling}

    return read


def read_bytes(value: WireValue) -> bytes:
    if isinstance(value, int):
        raise Malformed("a field has a number where a string or a message is expected")
    return value


def read_text(value: WireValue) -> str:
    try:
        return read_bytes(value).decode()
    except UnicodeDecodeError:
        raise Malformed("a string is not UTF-8") from None


def read_text_list(value: WireValue) -> list[str]:
    """Read a message whose only field is a repeated string."""
    return [read_text(each) for field_number, each in _iter_fields(read_bytes(value)) if field_number == 1]


def read_base64(value: WireValue) -> str:
    return base64.b64encode(read_bytes(value)).decode()


def read_int(value: WireValue) -> int:
    if not isinstance(value, int):
        raise Malformed("a number has the wrong wire type")
    return value - (1 << 64) if value >= 1 << 63 else value


def read_bool(value: WireValue) -> bool:
    return bool(read_int(value))


def read_time(value: WireValue) -> str | None:
    seconds = read_int(dict(_iter_fields(read_bytes(value))).get(1, 0))
    if not 0 <= seconds <= _MAX_TIMESTAMP:
        raise Malformed("a time is out of range")
    return timestamp(datetime.fromtimestamp(seconds, UTC)) if seconds else None
