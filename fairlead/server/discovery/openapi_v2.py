"""OpenAPI v2 (Swagger 2.0): the v3 documents of all groups, converted into one v2 document.

`documents.py` calls `build_swagger` on the first request. Terraform plans with it; Argo CD and kubectl up to 1.28 need
it for every apply. The latter two only accept protobuf, so `encode_swagger` encodes the same document again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import orjson

from fairlead.core.protobuf_wire import encode_bytes, encode_double, encode_int
from fairlead.registry.schema import Schema
from fairlead.server.discovery.openapi_meta import REF_PREFIX

_DEFINITIONS = "#/definitions/"
_METHODS = ("get", "put", "post", "delete", "patch")
_UNSUPPORTED_KEYWORDS = ("nullable", "oneOf", "anyOf", "not")
_PRESERVE_UNKNOWN_FIELDS = "x-kubernetes-preserve-unknown-fields"


def build_swagger(documents: Iterable[dict[str, Any]], prefix: str) -> dict[str, Any]:
    """One v2 document out of the v3 documents of all groups and versions."""
    paths: dict[str, Any] = {}
    definitions: dict[str, Schema] = {}
    info: dict[str, Any] = {}
    for document in documents:
        info = document["info"]
        paths |= {path: _convert_path_item(item) for path, item in document["paths"].items()}
        definitions |= {name: _convert_schema(each) for name, each in document["components"]["schemas"].items()}
    bearer = {"type": "apiKey", "name": "authorization", "in": "header", "description": "`Bearer` and an access key."}
    return {
        "swagger": "2.0",
        "info": info,
        "basePath": prefix or "/",
        "paths": paths,
        "definitions": dict(sorted(definitions.items())),
        "securityDefinitions": {"BearerToken": bearer},
        "security": [{"BearerToken": []}],
    }


def _convert_path_item(item: Schema) -> Schema:
    found: Schema = {method: _convert_operation(item[method]) for method in _METHODS if method in item}
    return {**found, "parameters": [_convert_parameter(each) for each in item["parameters"]]}


def _convert_operation(operation: Schema) -> Schema:
    found = {name: value for name, value in operation.items() if name != "requestBody"}
    found["parameters"] = [_convert_parameter(each) for each in operation["parameters"]]
    body = operation.get("requestBody")
    if body:
        found["consumes"] = list(body["content"])
        found["parameters"].append(_body_parameter(body))
    found["produces"] = list(operation["responses"][_success_code(operation)]["content"])
    found["responses"] = {code: _convert_response(each) for code, each in operation["responses"].items()}
    return found


def _success_code(operation: Schema) -> str:
    codes: Iterable[str] = operation["responses"]
    return next(code for code in codes if code.startswith("2"))


def _convert_parameter(parameter: Schema) -> Schema:
    found = {name: value for name, value in parameter.items() if name != "schema"}
    return {**found, **parameter["schema"]}


def _body_parameter(body: Schema) -> Schema:
    found: Schema = {"name": "body", "in": "body", "schema": _convert_schema(_content_schema(body))}
    return {**found, "required": True} if body.get("required") else found


def _convert_response(response: Schema) -> Schema:
    found: Schema = {"description": response["description"]}
    return {**found, "schema": _convert_schema(_content_schema(response))} if "content" in response else found


def _content_schema(part: Schema) -> Schema:
    """v2 has one schema for all media types. In our documents, they are the same for all media types."""
    first: Schema = next(iter(part["content"].values()))["schema"]
    return first


def _convert_schema(schema: Schema) -> Schema:
    """The schema without the keywords that v2 does not support."""
    found = {name: value for name, value in schema.items() if name not in _UNSUPPORTED_KEYWORDS}
    if "allOf" in found:
        found |= found.pop("allOf")[0]
    if "$ref" in found:
        found["$ref"] = found["$ref"].replace(REF_PREFIX, _DEFINITIONS)
    if found.get(_PRESERVE_UNKNOWN_FIELDS):
        # Old kubectl rejects fields that are not in `properties`; without `properties` it accepts all fields.
        found.pop("properties", None)
    if "properties" in found:
        found["properties"] = {name: _convert_schema(each) for name, each in found["properties"].items()}
    for inner in ("items", "additionalProperties"):
        if isinstance(found.get(inner), dict):
            found[inner] = _convert_schema(found[inner])
    return found


# --- protobuf ---
# The only format that client-go's `OpenAPISchema()` reads. With JSON, client-go fails with "cannot parse invalid
# wire-format data", whatever the Content-Type is. Then kubectl up to 1.28 can neither explain nor apply, and Argo CD
# marks the whole cluster as failed. These clients accept a media type with an `@`, which Go cannot parse in a
# Content-Type; so the response uses the newer name of the type.
#
# The messages are those of the protobuf schema `openapi.v2`; the numbers below are its field numbers. Only what is
# produced above is encoded. The security definitions are left out, because no client reads them.
#
# Each encoder takes a field number and a value, and returns the bytes of the field. A message is a sequence of fields.

PROTOBUF_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
REQUESTED_PROTOBUF_TYPE = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
FieldEncoder = Callable[[int, Any], bytes]
MessageFields = Mapping[str, tuple[int, FieldEncoder]]
_EXTENSION_PREFIX = "x-"


def encode_swagger(document: Mapping[str, Any]) -> bytes:
    """Encodes a v2 document."""
    return _message(_DOCUMENT, document)


def _string(number: int, value: str) -> bytes:
    return encode_bytes(number, value.encode())


def _strings(number: int, values: Iterable[str]) -> bytes:
    return b"".join(_string(number, value) for value in values)


def _message(known: MessageFields, value: Mapping[str, Any], extensions: int = 0) -> bytes:
    """The fields of a message. `extensions` is the field number for its `x-` extensions; 0 if it has none."""
    parts = [encoder(number, value[name]) for name, (number, encoder) in known.items() if name in value]
    if extensions:
        parts += [_map_entry(_any)(extensions, pair) for pair in value.items() if pair[0].startswith(_EXTENSION_PREFIX)]
    return b"".join(parts)


def _any(number: int, value: Any) -> bytes:
    """Any value, as YAML text; JSON is valid YAML."""
    return encode_bytes(number, encode_bytes(2, orjson.dumps(value)))


def _anys(number: int, values: Iterable[Any]) -> bytes:
    return b"".join(_any(number, value) for value in values)


def _map_entry(encoder: FieldEncoder) -> FieldEncoder:
    """A map entry: the key is field 1, the value field 2."""
    return lambda number, pair: encode_bytes(number, _string(1, pair[0]) + encoder(2, pair[1]))


def _map(encoder: FieldEncoder, inner: int = 1) -> FieldEncoder:
    """A map as a message whose entries are all field `inner`."""
    entry = _map_entry(encoder)
    return lambda number, value: encode_bytes(number, b"".join(entry(inner, pair) for pair in value.items()))


def _schema(number: int, schema: Schema) -> bytes:
    return encode_bytes(number, _message(_SCHEMA, schema, 31))


def _schema_type(number: int, value: str) -> bytes:
    return encode_bytes(number, _string(1, value))


def _inner_schema(number: int, value: Schema) -> bytes:
    """A message that wraps a schema: the items of a list, or the schema of a response."""
    return encode_bytes(number, _schema(1, value))


def _additional(number: int, value: Schema | bool) -> bytes:
    return encode_bytes(number, encode_int(2, value) if isinstance(value, bool) else _schema(1, value))


def _info(number: int, value: Schema) -> bytes:
    return encode_bytes(number, _message({"title": (1, _string), "version": (2, _string)}, value))


def _path_item(number: int, value: Schema) -> bytes:
    return encode_bytes(number, _message(_PATH_ITEM, value))


def _operation(number: int, value: Schema) -> bytes:
    return encode_bytes(number, _message(_OPERATION, value, 13))


def _parameters(number: int, values: Iterable[Schema]) -> bytes:
    return b"".join(encode_bytes(number, encode_bytes(1, _parameter(value))) for value in values)


def _parameter(value: Schema) -> bytes:
    """Wrapped by location: body parameters are field 1, others field 2, in which query is 3 and path is 4."""
    if value["in"] == "body":
        return encode_bytes(1, _message(_BODY, value))
    return encode_bytes(
        2,
        encode_bytes(3, _message(_QUERY, value)) if value["in"] == "query" else encode_bytes(4, _message(_PATH, value)),
    )


def _response(number: int, value: Schema) -> bytes:
    return encode_bytes(
        number, encode_bytes(1, _message({"description": (1, _string), "schema": (2, _inner_schema)}, value))
    )


_SCHEMA: MessageFields = {
    "$ref": (1, _string),
    "format": (2, _string),
    "title": (3, _string),
    "description": (4, _string),
    "default": (5, _any),
    "multipleOf": (6, encode_double),
    "maximum": (7, encode_double),
    "exclusiveMaximum": (8, encode_int),
    "minimum": (9, encode_double),
    "exclusiveMinimum": (10, encode_int),
    "maxLength": (11, encode_int),
    "minLength": (12, encode_int),
    "pattern": (13, _string),
    "maxItems": (14, encode_int),
    "minItems": (15, encode_int),
    "uniqueItems": (16, encode_int),
    "maxProperties": (17, encode_int),
    "minProperties": (18, encode_int),
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
    "required": (4, encode_int),
    "schema": (5, _schema),
}
_QUERY: MessageFields = {"in": (2, _string), "description": (3, _string), "name": (4, _string), "type": (6, _string)}
_PATH: MessageFields = {
    "required": (1, encode_int),
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
