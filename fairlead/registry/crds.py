"""Kinds as CustomResourceDefinitions, so that a kube-apiserver can be given them: `fairlead export crds` prints these.

Pure: a Kind in, a manifest out. A CRD says less than a Kind does. What it cannot say is left out and never bent:
columns that are computed, rules in code, subresources that do something, and kinds of which nothing is stored.
"""

from collections.abc import Iterable
from typing import Any

from fairlead.registry.kind import Column, Kind
from fairlead.registry.schema import Schema

MOST_SELECTABLE = 8
"""A kube-apiserver refuses a definition with more selectable fields."""

_SCALARS = ("string", "integer", "boolean")
_AGE = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}


def crds(kinds: Iterable[Kind], group: str) -> list[dict[str, Any]]:
    """The definitions of those kinds of a group whose objects are stored."""
    return [crd(kind) for kind in kinds if kind.group == group and kind.stored]


def crd(kind: Kind) -> dict[str, Any]:
    names = {"kind": kind.name, "listKind": kind.list_kind, "plural": kind.plural, "singular": kind.singular}
    several = {"shortNames": kind.short_names, "categories": kind.categories}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{kind.group}"},
        "spec": {
            "group": kind.group,
            "names": names | {name: list(values) for name, values in several.items() if values},
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "versions": [_version(kind)],
        },
    }


def _version(kind: Kind) -> dict[str, Any]:
    schema = kind.schema()
    # About metadata a definition may only say that it is there.
    properties = {**schema["properties"], "metadata": {"type": "object"}}
    version: dict[str, Any] = {
        "name": kind.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _structural({**schema, "properties": properties})},
    }
    if kind.status_subresource:
        version["subresources"] = {"status": {}}
    if columns := [_column(column, column.path) for column in kind.columns if isinstance(column.path, str)]:
        # Name comes by itself; Age only as long as there are no other columns.
        version["additionalPrinterColumns"] = [*columns, _AGE]
    if selectable := [path for path in kind.selectable if _is_scalar(schema, path)]:
        version["selectableFields"] = [{"jsonPath": f".{path}"} for path in selectable[:MOST_SELECTABLE]]
    return version


def _column(column: Column, path: str) -> dict[str, Any]:
    found: dict[str, Any] = {"name": column.name, "type": column.type, "jsonPath": f".{path}"}
    if column.description:
        found["description"] = column.description
    if column.wide:
        found["priority"] = 1
    return found


def _is_scalar(schema: Schema, path: str) -> bool:
    """Only a field that the schema names, outside of lists and maps, can be selected by."""
    found: Schema = schema
    for step in path.split("."):
        found = found.get("properties", {}).get(step, {})
    return found.get("type") in _SCALARS


def _structural(schema: Schema) -> Schema:
    """A copy, in which the keys of list entries are required: a kube-apiserver insists on it."""
    found = dict(schema)
    if "properties" in schema:
        found["properties"] = {name: _structural(each) for name, each in schema["properties"].items()}
    for inner in ("items", "additionalProperties"):
        if isinstance(schema.get(inner), dict):
            found[inner] = _structural(schema[inner])
    if keys := schema.get("x-kubernetes-list-map-keys"):
        fields = found["items"].get("properties", {})
        bare = [key for key in keys if "default" not in fields.get(key, {})]
        required = dict.fromkeys([*found["items"].get("required", ()), *bare])
        found["items"] = {**found["items"], "required": list(required)}
    return found
