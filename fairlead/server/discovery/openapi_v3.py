"""OpenAPI v3: one document for each group and version, and the index that links to them by content hash.

`documents.py` builds these once at startup. The schemas are those that kinds are declared and validated with, so
`kubectl explain` describes what the server checks. Schema names are the reversed domain of the group, as in Kubernetes.

kubectl depends on details of the paths: it validates on the server only if PATCH has the parameter `fieldValidation`,
computes a strategic merge patch on `apply` only if PATCH accepts one, and finds the kind of a path by
`x-kubernetes-group-version-kind`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fairlead.registry.kind import Kind
from fairlead.registry.schema import Schema, obj
from fairlead.server.discovery.openapi_meta import (
    DELETE_OPTIONS,
    LIST_META,
    OBJECT_META,
    PATCH,
    STATUS,
    ref,
    shared_schemas,
    type_fields,
)
from fairlead.server.discovery.resources import ResourceInfo, group_version_path, gvk

PatchTypes = Callable[[Kind], tuple[str, ...]]
SchemaName = Callable[[Kind], str]

TITLE = "Fairlead"

_K8S_GROUP_SUFFIX = ".k8s.io"
_GVK = "x-kubernetes-group-version-kind"

APPLY = "application/apply-patch+yaml"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"

_BODY_MEDIA_TYPES = ("application/json", "application/yaml")
_WATCH_MEDIA_TYPE = "application/json;stream=watch"

_COLLECTION_VERBS = {"get": "list", "post": "create", "delete": "deletecollection"}
_ALL_NAMESPACES_VERBS = {"get": "list"}
_OBJECT_VERBS = {"get": "get", "put": "update", "patch": "patch", "delete": "delete"}
_SUBRESOURCE_VERBS = {"get": "get", "post": "create", "put": "update", "patch": "patch", "delete": "delete"}

_KUBERNETES_ACTIONS = {"create": "post", "update": "put"}
_OPERATION_ID_VERBS = {"get": "read", "update": "replace", "deletecollection": "delete"}

_DESCRIPTIONS = {
    "create": "Create an object of kind {}.",
    "delete": "Delete one {} by name.",
    "deletecollection": "Delete all {} objects that match the selectors.",
    "get": "Read one {} by name.",
    "list": "List or watch objects of kind {}.",
    "patch": "Patch one {}.",
    "update": "Replace one {}.",
}
_REVIEW_DESCRIPTION = "Create a {} and return the result. Nothing is stored."
_LIST_DESCRIPTION = "List all {} objects that belong to the object."

_PARAMETERS: dict[str, tuple[str, str]] = {
    "allowWatchBookmarks": (
        "boolean",
        "With watch: also send BOOKMARK events, whose resourceVersion a new watch can start from.",
    ),
    "continue": ("string", "The metadata.continue of the previous page."),
    "dryRun": ("string", "All: run all checks, but store nothing."),
    "fieldManager": (
        "string",
        "Name of the client that makes this change. It becomes the owner of the fields that it sets.",
    ),
    "fieldSelector": ("string", "Select by fields, such as metadata.name=a."),
    "fieldValidation": ("string", "Unknown and duplicate fields: Ignore, Warn (the default) or Strict."),
    "force": ("boolean", "With apply: take over fields that other managers own."),
    "gracePeriodSeconds": ("integer", "Seconds until the object is deleted; 0 deletes it immediately."),
    "labelSelector": ("string", "Select by labels, such as team=a,tier!=test."),
    "limit": ("integer", "Maximum number of objects to return; continue requests the next page."),
    "pretty": ("string", "true: indent the response."),
    "propagationPolicy": ("string", "How dependents are deleted: Background, Foreground or Orphan."),
    "resourceVersion": ("string", "The version to read at, or to watch from."),
    "resourceVersionMatch": ("string", "How resourceVersion is applied: Exact or NotOlderThan."),
    "sendInitialEvents": (
        "boolean",
        "With watch: first send all existing objects, then a bookmark that marks their end.",
    ),
    "timeoutSeconds": ("integer", "End the list or watch after this time."),
    "watch": ("boolean", "Send changes as they happen, as a stream of events."),
}

_LIST_PARAMETERS = ("continue", "fieldSelector", "labelSelector", "limit", "resourceVersion", "resourceVersionMatch")
_WATCH_PARAMETERS = ("allowWatchBookmarks", "sendInitialEvents", "timeoutSeconds", "watch")
_WRITE_PARAMETERS = ("dryRun", "fieldManager", "fieldValidation")
_DELETE_PARAMETERS = ("dryRun", "gracePeriodSeconds", "propagationPolicy")

_PARAMETERS_BY_VERB: dict[str, tuple[str, ...]] = {
    "create": _WRITE_PARAMETERS,
    "delete": _DELETE_PARAMETERS,
    "deletecollection": (*_LIST_PARAMETERS, *_DELETE_PARAMETERS),
    "get": (),
    "list": (*_LIST_PARAMETERS, *_WATCH_PARAMETERS),
    "patch": (*_WRITE_PARAMETERS, "force"),
    "update": _WRITE_PARAMETERS,
}


def patch_types(kind: Kind) -> tuple[str, ...]:
    """The patch types that the document lists for a kind.

    Strategic merge patch is only listed for Kubernetes' own kinds: where it is listed, `kubectl apply` uses it. Our
    kinds behave like custom resources, which only support JSON merge patch.
    """
    common = (APPLY, JSON_PATCH, MERGE_PATCH)
    is_native = not kind.group or kind.group.endswith(".k8s.io")
    return (*common, STRATEGIC_PATCH) if is_native else common


def schema_name(kind: Kind) -> str:
    """For example `sh.service.management.v1.App`. Kinds of Kubernetes keep their Kubernetes schema names."""
    if not kind.group:
        return f"io.k8s.api.core.{kind.version}.{kind.name}"
    if kind.group.endswith(_K8S_GROUP_SUFFIX):
        return f"io.k8s.api.{kind.group.partition('.')[0]}.{kind.version}.{kind.name}"
    domain = ".".join(reversed(kind.group.split(".")))
    return f"{domain}.{kind.version}.{kind.name}"


def build_openapi(
    resources: Iterable[ResourceInfo], *, version: str, prefix: str, types: PatchTypes = patch_types
) -> dict[str, Any]:
    """The document of one group and version. `prefix` is the path of the API root, `version` that of the server."""
    schemas, paths = shared_schemas(), {}
    for resource in resources:
        paths.update(build_paths(resource, schema_name, types))
        for kind in (resource.kind, *(sub.kind for sub in resource.subresources)):
            schemas.update(_build_schemas(kind, add_merge_keys=STRATEGIC_PATCH in types(kind)))
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


def build_index(locations: Mapping[str, str]) -> dict[str, Any]:
    """The response to /openapi/v3: the URL of the document for each `apis/<group>/<version>`."""
    return {"paths": {name: {"serverRelativeURL": location} for name, location in locations.items()}}


def _build_schemas(kind: Kind, add_merge_keys: bool) -> dict[str, Schema]:
    name = schema_name(kind)
    found = {name: _object_schema(kind, add_merge_keys)}
    if "list" in kind.verbs:
        found[f"{name}List"] = _list_schema(kind)
    return found


def _object_schema(kind: Kind, add_merge_keys: bool) -> Schema:
    schema = kind.schema()
    fields = {name: _with_merge_keys(each) if add_merge_keys else each for name, each in schema["properties"].items()}
    own: Schema = {**fields, **type_fields(), "metadata": ref(OBJECT_META, "Standard object metadata.")}
    return {**schema, "properties": own, _GVK: [gvk(kind)]}


def _list_schema(kind: Kind) -> Schema:
    schema = obj(
        f"A list of {kind.name} objects.",
        required=("items",),
        **type_fields(),
        items={"type": "array", "items": ref(schema_name(kind)), "description": "The objects."},
        metadata=ref(LIST_META, "Standard list metadata."),
    )
    return {**schema, _GVK: [gvk(kind, kind.list_kind)]}


def _with_merge_keys(schema: Schema) -> Schema:
    """Adds the strategic merge patch extensions to lists whose entries have one key."""
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


@dataclass(frozen=True, slots=True)
class _PathSpec:
    """A path and its operations. `kind` is their kind; `id_prefix` and `id_suffix` surround it in operation ids.

    With `returns_list`, a read returns a list although the path is below an object.
    """

    kind: Kind
    verbs: tuple[str, ...]
    verbs_by_method: dict[str, str]
    id_prefix: str = ""
    id_suffix: str = ""
    returns_list: bool = False

    def served_operations(self) -> Iterable[tuple[str, str]]:
        return ((method, verb) for method, verb in self.verbs_by_method.items() if verb in self.verbs)


def build_paths(resource: ResourceInfo, name_of: SchemaName, types: PatchTypes) -> dict[str, Schema]:
    """path -> path item, for a kind and its subresources."""
    kind, root = resource.kind, group_version_path(resource.kind.group, resource.kind.version)
    before = "Namespaced" if kind.namespaced else ""
    collection = f"{root}/namespaces/{{namespace}}/{kind.plural}" if kind.namespaced else f"{root}/{kind.plural}"
    specs = {collection: _PathSpec(kind, kind.verbs, _COLLECTION_VERBS, before)}
    specs[f"{collection}/{{name}}"] = _PathSpec(kind, kind.verbs, _OBJECT_VERBS, before)
    for sub in resource.subresources:
        after = sub.name.capitalize() if sub.kind == kind else f"For{kind.name}{sub.name.capitalize()}"
        specs[f"{collection}/{{name}}/{sub.name}"] = _PathSpec(
            kind=sub.kind,
            verbs=sub.verbs,
            verbs_by_method=_SUBRESOURCE_VERBS,
            id_prefix=before,
            id_suffix=after,
            returns_list=sub.returns_list,
        )
    if kind.namespaced:
        specs[f"{root}/{kind.plural}"] = _PathSpec(
            kind, kind.verbs, _ALL_NAMESPACES_VERBS, id_suffix="ForAllNamespaces"
        )
    return {
        path: _path_item(path, spec, name_of, types) for path, spec in specs.items() if any(spec.served_operations())
    }


def _path_item(path: str, spec: _PathSpec, name_of: SchemaName, types: PatchTypes) -> Schema:
    parameters = [_path_parameter(name) for name in ("name", "namespace") if f"{{{name}}}" in path]
    item: Schema = {"parameters": [*parameters, _query_parameter("pretty")]}
    for method, verb in spec.served_operations():
        item[method] = _operation(spec, verb, name_of, types)
    return item


def _operation(spec: _PathSpec, verb: str, name_of: SchemaName, types: PatchTypes) -> Schema:
    kind = spec.kind
    operation: Schema = {
        "tags": [_tag(kind)],
        "description": _description(spec, verb).format(kind.name),
        "operationId": _operation_id(spec, verb),
        "parameters": [
            _query_parameter(name) for name in _PARAMETERS_BY_VERB[verb] if name not in _unsupported_parameters(kind)
        ],
        "responses": _responses(spec, verb, name_of),
        "x-kubernetes-action": _KUBERNETES_ACTIONS.get(verb, verb),
        "x-kubernetes-group-version-kind": gvk(kind),
    }
    body = _request_body(kind, verb, name_of, types)
    return {**operation, "requestBody": body} if body else operation


def _description(spec: _PathSpec, verb: str) -> str:
    if verb == "get" and spec.returns_list:
        return _LIST_DESCRIPTION
    return _REVIEW_DESCRIPTION if verb == "create" and not spec.kind.persisted else _DESCRIPTIONS[verb]


def _unsupported_parameters(kind: Kind) -> tuple[str, ...]:
    return () if "watch" in kind.verbs else _WATCH_PARAMETERS


def _query_parameter(name: str) -> Schema:
    type_, description = _PARAMETERS[name]
    return {"name": name, "in": "query", "description": description, "schema": {"type": type_}}


def _path_parameter(name: str) -> Schema:
    description = "Name of the object." if name == "name" else "Namespace of the object, or of all objects listed."
    return {"name": name, "in": "path", "required": True, "description": description, "schema": {"type": "string"}}


def _request_body(kind: Kind, verb: str, name_of: SchemaName, types: PatchTypes) -> Schema | None:
    match verb:
        case "create" | "update":
            return {"required": True, "content": _content(ref(name_of(kind)))}
        case "patch":
            return {"required": True, "content": _content(ref(PATCH), types(kind))}
        case "delete" | "deletecollection":
            return {"content": _content(ref(DELETE_OPTIONS))}
    return None


def _responses(spec: _PathSpec, verb: str, name_of: SchemaName) -> Schema:
    kind = spec.kind
    unauthorized = {"401": {"description": "Unauthorized"}}
    match verb:
        case "list":
            bodies = (*_BODY_MEDIA_TYPES, _WATCH_MEDIA_TYPE) if "watch" in kind.verbs else _BODY_MEDIA_TYPES
            return {"200": _response("OK", ref(f"{name_of(kind)}List"), bodies), **unauthorized}
        case "create":
            return {"201": _response("Created", ref(name_of(kind))), **unauthorized}
        case "patch":
            found = ref(name_of(kind))
            return {"200": _response("OK", found), "201": _response("Created by apply", found), **unauthorized}
        case "delete" | "deletecollection":
            return {"200": _response("OK", ref(STATUS)), **unauthorized}
        case "get" if spec.returns_list:
            return {"200": _response("OK", ref(f"{name_of(kind)}List")), **unauthorized}
    return {"200": _response("OK", ref(name_of(kind))), **unauthorized}


def _response(description: str, schema: Schema, media_types: Iterable[str] = _BODY_MEDIA_TYPES) -> Schema:
    return {"description": description, "content": _content(schema, media_types)}


def _content(schema: Schema, media_types: Iterable[str] = _BODY_MEDIA_TYPES) -> dict[str, Any]:
    return {media_type: {"schema": schema} for media_type in media_types}


def _group_id_part(kind: Kind) -> str:
    return "".join(part.capitalize() for part in kind.group.removesuffix(".k8s.io").split(".")) or "Core"


def _tag(kind: Kind) -> str:
    word = _group_id_part(kind)
    return f"{word[0].lower()}{word[1:]}_{kind.version}"


def _operation_id(spec: _PathSpec, verb: str) -> str:
    kind = spec.kind
    collection = "Collection" if verb == "deletecollection" else ""
    prefix = f"{_OPERATION_ID_VERBS.get(verb, verb)}{_group_id_part(kind)}{kind.version.capitalize()}"
    return f"{prefix}{collection}{spec.id_prefix}{kind.name}{spec.id_suffix}"
