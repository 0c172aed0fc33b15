"""Exports kinds as CustomResourceDefinitions, for a kube-apiserver. `fairlead export crds` prints them.

A CRD can express less than a `Kind`. The rest is left out: computed columns, rules in code, action subresources, and
kinds that are not persisted.
"""

from collections.abc import Iterable
from typing import Any

from fairlead.registry.kind import Column, Kind
from fairlead.registry.schema import NO_EFFECT, Schema

MAX_SELECTABLE_FIELDS = 8
"""A kube-apiserver rejects a definition with more selectable fields."""

_SCALARS = ("string", "integer", "boolean")
_AGE = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}


def build_crds(kinds: Iterable[Kind], group: str) -> list[dict[str, Any]]:
    """The definitions of the persisted kinds of a group."""
    return [build_crd(kind) for kind in kinds if kind.group == group and kind.persisted]


def build_crd(kind: Kind) -> dict[str, Any]:
    names = {"kind": kind.name, "listKind": kind.list_kind, "plural": kind.plural, "singular": kind.singular}
    optional = {"shortNames": kind.short_names, "categories": kind.categories}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{kind.group}"},
        "spec": {
            "group": kind.group,
            "names": names | {name: list(values) for name, values in optional.items() if values},
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "versions": [_build_version(kind)],
        },
    }


def _build_version(kind: Kind) -> dict[str, Any]:
    schema = kind.schema()
    # A definition may only declare metadata as an object.
    properties = {**schema["properties"], "metadata": {"type": "object"}}
    version: dict[str, Any] = {
        "name": kind.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _adapt_schema({**schema, "properties": properties})},
    }
    if kind.status_subresource:
        version["subresources"] = {"status": {}}
    if columns := [_printer_column(column, column.path) for column in kind.columns if isinstance(column.path, str)]:
        # A kube-apiserver always adds Name, but Age only if there are no other columns.
        version["additionalPrinterColumns"] = [*columns, _AGE]
    if selectable := [path for path in kind.selectable if _is_scalar(schema, path)]:
        version["selectableFields"] = [{"jsonPath": f".{path}"} for path in selectable[:MAX_SELECTABLE_FIELDS]]
    return version


def _printer_column(column: Column, path: str) -> dict[str, Any]:
    found: dict[str, Any] = {"name": column.name, "type": column.type, "jsonPath": f".{path}"}
    if column.description:
        found["description"] = column.description
    if column.wide:
        found["priority"] = 1
    return found


def _is_scalar(schema: Schema, path: str) -> bool:
    """Whether a path is a declared scalar outside of lists and maps; only those can be selectable."""
    found: Schema = schema
    for step in path.split("."):
        found = found.get("properties", {}).get(step, {})
    return found.get("type") in _SCALARS


def _adapt_schema(schema: Schema) -> Schema:
    """A copy in which the keys of map lists are required, as a kube-apiserver demands, without our own keyword."""
    found = {keyword: value for keyword, value in schema.items() if keyword != NO_EFFECT}
    if "properties" in schema:
        found["properties"] = {name: _adapt_schema(each) for name, each in schema["properties"].items()}
    for inner in ("items", "additionalProperties"):
        if isinstance(schema.get(inner), dict):
            found[inner] = _adapt_schema(schema[inner])
    if keys := schema.get("x-kubernetes-list-map-keys"):
        fields = found["items"].get("properties", {})
        without_default = [key for key in keys if "default" not in fields.get(key, {})]
        required = dict.fromkeys([*found["items"].get("required", ()), *without_default])
        found["items"] = {**found["items"], "required": list(required)}
    return found
