"""Kubernetes' protobuf bodies, as far as kubectl sends them.

From 1.32 on, `kubectl create configmap` and its likes send the core kinds as protobuf and do not fall back to JSON. The
tables below are the field numbers of Kubernetes' published schemas; what is not in them is passed over, as protobuf
asks for. Nothing is ever answered in protobuf: JSON is what clients read when they can.
"""

import base64
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from fairlead.core.clock import timestamp
from fairlead.core.malformed import Malformed
from fairlead.core.objects import Object

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LONGEST_VARINT = 10
_MOST_FIELDS = 10_000
_LAST_SECOND = int(datetime(9999, 12, 31, tzinfo=UTC).timestamp())

Value = int | bytes
Read = Callable[[Value], Any]


@dataclass(frozen=True, slots=True)
class Field:
    """A field's name and how its value is read; `many` collects, `keyed` makes a map of two-field entries."""

    name: str
    read: Read
    many: bool = False
    keyed: bool = False


Message = Mapping[int, Field]


def decode(body: bytes) -> Object:
    """The object in a body; Malformed where it is none, or of a kind that is not read."""
    if not body.startswith(_MAGIC):
        raise Malformed("it does not begin as Kubernetes' protobuf does")
    envelope = _message(_ENVELOPE)(body[len(_MAGIC) :])
    types = envelope.get("typeMeta") or {}
    kind = types.get("kind", "")
    fields = _KINDS.get(kind)
    if fields is None:
        raise Malformed(f"a {kind or 'nameless kind'} is not read as protobuf here; send JSON or YAML")
    return {**types, **_message(fields)(envelope.get("raw", b""))}


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


def _message(fields: Message) -> Read:
    def read(value: Value) -> Object:
        found: Object = {}
        for number, each in _wire(_raw(value)):
            field = fields.get(number)
            if field is None:
                continue
            if field.keyed:
                entry = dict(_wire(_raw(each)))
                found.setdefault(field.name, {})[_text(entry.get(1, b""))] = field.read(entry.get(2, b""))
            elif field.many:
                found.setdefault(field.name, []).append(field.read(each))
            else:
                found[field.name] = field.read(each)
        # Kubernetes writes empty values out; they mean what an absent field means.
        return {name: value for name, value in found.items() if value not in ("", None, {}, b"")}

    return read


def _raw(value: Value) -> bytes:
    if isinstance(value, int):
        raise Malformed("a number stands where a text or a structure should")
    return value


def _text(value: Value) -> str:
    try:
        return _raw(value).decode()
    except UnicodeDecodeError:
        raise Malformed("a text is not UTF-8") from None


def _base64(value: Value) -> str:
    return base64.b64encode(_raw(value)).decode()


def _number(value: Value) -> int:
    if not isinstance(value, int):
        raise Malformed("a number is of the wrong wire type")
    return value - (1 << 64) if value >= 1 << 63 else value


def _flag(value: Value) -> bool:
    return bool(_number(value))


def _time(value: Value) -> str | None:
    seconds = _number(dict(_wire(_raw(value))).get(1, 0))
    if not 0 <= seconds <= _LAST_SECOND:
        raise Malformed("a time is out of range")
    return timestamp(datetime.fromtimestamp(seconds, UTC)) if seconds else None


_ENVELOPE: Message = {
    1: Field("typeMeta", _message({1: Field("apiVersion", _text), 2: Field("kind", _text)})),
    2: Field("raw", _raw),
}

_OWNER: Message = {
    1: Field("kind", _text),
    3: Field("name", _text),
    4: Field("uid", _text),
    5: Field("apiVersion", _text),
    6: Field("controller", _flag),
    7: Field("blockOwnerDeletion", _flag),
}

_METADATA = Field(
    "metadata",
    _message(
        {
            1: Field("name", _text),
            2: Field("generateName", _text),
            3: Field("namespace", _text),
            5: Field("uid", _text),
            6: Field("resourceVersion", _text),
            8: Field("creationTimestamp", _time),
            11: Field("labels", _text, keyed=True),
            12: Field("annotations", _text, keyed=True),
            13: Field("ownerReferences", _message(_OWNER), many=True),
            14: Field("finalizers", _text, many=True),
        }
    ),
)

_KINDS: Mapping[str, Message] = {
    "ConfigMap": {
        1: _METADATA,
        2: Field("data", _text, keyed=True),
        3: Field("binaryData", _base64, keyed=True),
        4: Field("immutable", _flag),
    },
    "Secret": {
        1: _METADATA,
        2: Field("data", _base64, keyed=True),
        3: Field("type", _text),
        4: Field("stringData", _text, keyed=True),
        5: Field("immutable", _flag),
    },
    "Namespace": {1: _METADATA, 2: Field("spec", _message({1: Field("finalizers", _text, many=True)}))},
}
