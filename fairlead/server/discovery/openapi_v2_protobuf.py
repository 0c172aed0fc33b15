"""OpenAPI v2 as protobuf, the only format that client-go's `OpenAPISchema()` reads.

With JSON, client-go fails with "cannot parse invalid wire-format data", whatever the Content-Type is. Then kubectl up
to 1.28 can neither explain nor apply, and Argo CD marks the whole cluster as failed. These clients accept a media type
with an `@`, which Go cannot parse in a Content-Type; so the response uses the newer name of the type.

The messages are those of the protobuf schema `openapi.v2`; the numbers below are its field numbers. Only what
`openapi_v2.py` produces is encoded. The security definitions are left out, because no client reads them.

Each encoder takes a field number and a value, and returns the bytes of the field. A message is a sequence of fields.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import orjson

from fairlead.registry.schema import Schema

MEDIA_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
REQUESTED_MEDIA_TYPE = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"

FieldEncoder = Callable[[int, Any], bytes]
MessageFields = Mapping[str, tuple[int, FieldEncoder]]

_VARINT, _FIXED64, _LENGTH_DELIMITED = 0, 1, 2
_EXTENSION_PREFIX = "x-"


def encode(document: Mapping[str, Any]) -> bytes:
    """Encodes a v2 document."""
    return _message(_DOCUMENT, document)


# --- wire format ---


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _tag(number: int, wire_type: int) -> bytes:
    return _varint(number << 3 | wire_type)


def _bytes_field(number: int, content: bytes) -> bytes:
    return _tag(number, _LENGTH_DELIMITED) + _varint(len(content)) + content


def _string(number: int, value: str) -> bytes:
    return _bytes_field(number, value.encode())


def _strings(number: int, values: Iterable[str]) -> bytes:
    return b"".join(_string(number, value) for value in values)


def _bool(number: int, value: bool) -> bytes:
    return _tag(number, _VARINT) + _varint(int(value))


def _int64(number: int, value: int) -> bytes:
    # Negative numbers are encoded as 64-bit two's complement.
    return _tag(number, _VARINT) + _varint(value & 0xFFFF_FFFF_FFFF_FFFF)


def _double(number: int, value: float) -> bytes:
    return _tag(number, _FIXED64) + struct.pack("<d", value)


def _message(known: MessageFields, value: Mapping[str, Any], extensions: int = 0) -> bytes:
    """The fields of a message. `extensions` is the field number for its `x-` extensions; 0 if it has none."""
    parts = [encoder(number, value[name]) for name, (number, encoder) in known.items() if name in value]
    if extensions:
        parts += [_map_entry(_any)(extensions, pair) for pair in value.items() if pair[0].startswith(_EXTENSION_PREFIX)]
    return b"".join(parts)


# --- common structures ---


def _any(number: int, value: Any) -> bytes:
    """Any value, as YAML text; JSON is valid YAML."""
    return _bytes_field(number, _bytes_field(2, orjson.dumps(value)))


def _anys(number: int, values: Iterable[Any]) -> bytes:
    return b"".join(_any(number, value) for value in values)


def _map_entry(encoder: FieldEncoder) -> FieldEncoder:
    """A map entry: the key is field 1, the value field 2."""
    return lambda number, pair: _bytes_field(number, _string(1, pair[0]) + encoder(2, pair[1]))


def _map(encoder: FieldEncoder, inner: int = 1) -> FieldEncoder:
    """A map as a message whose entries are all field `inner`."""
    entry = _map_entry(encoder)
    return lambda number, value: _bytes_field(number, b"".join(entry(inner, pair) for pair in value.items()))


# --- messages ---


def _schema(number: int, schema: Schema) -> bytes:
    return _bytes_field(number, _message(_SCHEMA, schema, 31))


def _schema_type(number: int, value: str) -> bytes:
    return _bytes_field(number, _string(1, value))


def _inner_schema(number: int, value: Schema) -> bytes:
    """A message that wraps a schema: the items of a list, or the schema of a response."""
    return _bytes_field(number, _schema(1, value))


def _additional(number: int, value: Schema | bool) -> bytes:
    return _bytes_field(number, _bool(2, value) if isinstance(value, bool) else _schema(1, value))


def _info(number: int, value: Schema) -> bytes:
    return _bytes_field(number, _message({"title": (1, _string), "version": (2, _string)}, value))


def _path_item(number: int, value: Schema) -> bytes:
    return _bytes_field(number, _message(_PATH_ITEM, value))


def _operation(number: int, value: Schema) -> bytes:
    return _bytes_field(number, _message(_OPERATION, value, 13))


def _parameters(number: int, values: Iterable[Schema]) -> bytes:
    return b"".join(_bytes_field(number, _bytes_field(1, _parameter(value))) for value in values)


def _parameter(value: Schema) -> bytes:
    """Wrapped by location: body parameters are field 1, others field 2, in which query is 3 and path is 4."""
    if value["in"] == "body":
        return _bytes_field(1, _message(_BODY, value))
    return _bytes_field(
        2,
        _bytes_field(3, _message(_QUERY, value)) if value["in"] == "query" else _bytes_field(4, _message(_PATH, value)),
    )


def _response(number: int, value: Schema) -> bytes:
    return _bytes_field(
        number, _bytes_field(1, _message({"description": (1, _string), "schema": (2, _inner_schema)}, value))
    )


_SCHEMA: MessageFields = {
    "$ref": (1, _string),
    "format": (2, _string),
    "title": (3, _string),
    "description": (4, _string),
    "default": (5, _any),
    "multipleOf": (6, _double),
    "maximum": (7, _double),
    "exclusiveMaximum": (8, _bool),
    "minimum": (9, _double),
    "exclusiveMinimum": (10, _bool),
    "maxLength": (11, _int64),
    "minLength": (12, _int64),
    "pattern": (13, _string),
    "maxItems": (14, _int64),
    "minItems": (15, _int64),
    "uniqueItems": (16, _bool),
    "maxProperties": (17, _int64),
    "minProperties": (18, _int64),
    "required": (19, _strings),
    "enum": (20, _anys),
    "additionalProperties": (21, _additional),
    "type": (22, _schema_type),
    "items": (23, _inner_schema),
    "properties": (25, _map(_schema)),
}

_BODY: MessageFields = {
    "description": (1, _string),
    "name": (2, _string),
    "in": (3, _string),
    "required": (4, _bool),
    "schema": (5, _schema),
}

_QUERY: MessageFields = {"in": (2, _string), "description": (3, _string), "name": (4, _string), "type": (6, _string)}

_PATH: MessageFields = {
    "required": (1, _bool),
    "in": (2, _string),
    "description": (3, _string),
    "name": (4, _string),
    "type": (5, _string),
}

_OPERATION: MessageFields = {
    "tags": (1, _strings),
    "description": (3, _string),
    "operationId": (5, _string),
    "produces": (6, _strings),
    "consumes": (7, _strings),
    "parameters": (8, _parameters),
    "responses": (9, _map(_response)),
}

_PATH_ITEM: MessageFields = {
    "get": (2, _operation),
    "put": (3, _operation),
    "post": (4, _operation),
    "delete": (5, _operation),
    "patch": (8, _operation),
    "parameters": (9, _parameters),
}

_DOCUMENT: MessageFields = {
    "swagger": (1, _string),
    "info": (2, _info),
    "basePath": (4, _string),
    "paths": (8, _map(_path_item, inner=2)),
    "definitions": (9, _map(_schema)),
}
