"""OpenAPI v2 (Swagger 2.0): the v3 documents of all groups, converted into one v2 document.

`documents.py` calls `build_swagger` on the first request. Terraform plans with it; Argo CD and kubectl up to 1.28 need
it for every apply. The latter two only accept protobuf, so `openapi_v2_protobuf.py` encodes the same document again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

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
