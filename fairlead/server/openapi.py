"""OpenAPI v3: one document for each group and version, and the index that names them by their content's hash.

`documents.py` makes these once at start. The schemas are those that kinds are declared and validated with, so what
`kubectl explain` says is what the server checks. Schema names are the group's domain backwards, as in Kubernetes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fairlead.registry import schema as words
from fairlead.registry.kind import Kind
from fairlead.registry.schema import Schema
from fairlead.server.discovery import Resource, gvk
from fairlead.server.openapi_metadata import LIST_META, OBJECT_META, ref, shared_schemas, type_fields
from fairlead.server.openapi_paths import STRATEGIC_PATCH, PatchTypes, patch_types, paths_of

TITLE = "Fairlead"

_ENDING = ".k8s.io"
_GVK = "x-kubernetes-group-version-kind"


def schema_name(kind: Kind) -> str:
    """`sh.service.management.v1.App`; Kubernetes' own groups keep the names that it gives them."""
    if not kind.group:
        return f"io.k8s.api.core.{kind.version}.{kind.name}"
    if kind.group.endswith(_ENDING):
        return f"io.k8s.api.{kind.group.partition('.')[0]}.{kind.version}.{kind.name}"
    domain = ".".join(reversed(kind.group.split(".")))
    return f"{domain}.{kind.version}.{kind.name}"


def describe(
    resources: Iterable[Resource], *, version: str, prefix: str, types: PatchTypes = patch_types
) -> dict[str, Any]:
    """The document of one group and version. `prefix` is where the API root is mounted, `version` the server's own."""
    schemas, paths = shared_schemas(), {}
    for resource in resources:
        paths.update(paths_of(resource, schema_name, types))
        for kind in (resource.kind, *(sub.kind for sub in resource.subresources)):
            schemas.update(_schemas_of(kind, merges=STRATEGIC_PATCH in types(kind)))
    return {
        "openapi": "3.0.0",
        "info": {"title": TITLE, "version": version},
        "servers": [{"url": prefix or "/"}],
        "security": [{"BearerToken": []}],
        "paths": paths,
        "components": {
            "schemas": dict(sorted(schemas.items())),
            "securitySchemes": {"BearerToken": {"type": "http", "scheme": "bearer", "description": "An access key."}},
        },
    }


def index(locations: Mapping[str, str]) -> dict[str, Any]:
    """The answer to /openapi/v3: for `apis/<group>/<version>` the URL of its document."""
    return {"paths": {name: {"serverRelativeURL": location} for name, location in locations.items()}}


def _schemas_of(kind: Kind, merges: bool) -> dict[str, Schema]:
    name = schema_name(kind)
    found = {name: _object_schema(kind, merges)}
    if "list" in kind.verbs:
        found[f"{name}List"] = _list_schema(kind)
    return found


def _object_schema(kind: Kind, merges: bool) -> Schema:
    schema = kind.schema()
    fields = {name: _with_merge_keys(each) if merges else each for name, each in schema["properties"].items()}
    own: Schema = {**fields, **type_fields(), "metadata": ref(OBJECT_META, "Standard object metadata.")}
    return {**schema, "properties": own, _GVK: [gvk(kind)]}


def _list_schema(kind: Kind) -> Schema:
    schema = words.obj(
        f"A list of {kind.name} objects.",
        required=("items",),
        **type_fields(),
        items={"type": "array", "items": ref(schema_name(kind)), "description": "The objects."},
        metadata=ref(LIST_META, "Standard list metadata."),
    )
    return {**schema, _GVK: [gvk(kind, kind.list_kind)]}


def _with_merge_keys(schema: Schema) -> Schema:
    """The same schema in the words of strategic merge patches too, where a list's entries are told apart by one key."""
    found = dict(schema)
    keys = schema.get("x-kubernetes-list-map-keys", ())
    if len(keys) == 1:
        found |= {"x-kubernetes-patch-merge-key": keys[0], "x-kubernetes-patch-strategy": "merge"}
    if "properties" in schema:
        found["properties"] = {name: _with_merge_keys(each) for name, each in schema["properties"].items()}
    for inner in ("items", "additionalProperties"):
        if isinstance(schema.get(inner), dict):
            found[inner] = _with_merge_keys(schema[inner])
    return found
