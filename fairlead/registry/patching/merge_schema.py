"""The merge schema of a kind: its OpenAPI schema reduced to what ownership and merging need. Built once per kind.

`field_walk.py` computes field sets with it; `merge.py` and `strategic_merge.py` merge objects with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from fairlead.core.objects import Object
from fairlead.registry.kind import Kind
from fairlead.registry.patching.field_set import key_text
from fairlead.registry.schema import Schema

MOST_SEEN = 32
"""How many combinations of field names a merge schema caches."""


class Parts(NamedTuple):
    """How the fields of one object are owned and merged, in the object's order."""

    owned: tuple[tuple[str, str, Shape], ...]
    """The fields that can have an owner: name, step, schema."""
    nested: tuple[tuple[str, str, Shape], ...]
    """The owned fields that are not atomic."""
    flat: dict[str, dict[str, Any]]
    """The field set of all owned fields, without anything below them. Copy before use."""
    merging: tuple[tuple[str, Shape], ...]
    """The fields, owned or not, that are merged instead of replaced by apply."""


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """How one part of an object is owned and merged."""

    fields: Mapping[str, Shape] = field(default_factory=dict)
    entries: Shape | None = None
    """The schema of undeclared fields, or of list entries. None means DEDUCED."""
    keys: tuple[str, ...] | None = None
    """For a set or map list, the fields that identify an entry (empty for a set); None for everything else."""
    defaults: Object = field(default_factory=dict)
    """Default values of `keys`, which entries may omit."""
    _seen: dict[tuple[str, ...], Parts | None] = field(default_factory=dict)

    def parts(self, value: Object) -> Parts | None:
        """The plan for the fields of `value`; None if one of them is not declared.

        Most objects of a kind have the same fields, so plans are cached by field names. Undeclared names are never
        cached.
        """
        if not self.fields:
            return None
        names = tuple(value)
        try:
            return self._seen[names]
        except KeyError:
            return self._look_at(names)

    def _look_at(self, names: tuple[str, ...]) -> Parts | None:
        if not self.fields.keys() >= set(names):
            return None
        if len(self._seen) >= MOST_SEEN:
            self._seen.clear()
        owned = tuple([(name, "f:" + name, self.fields[name]) for name in names if self.fields[name] is not UNOWNED])
        nested = tuple([each for each in owned if each[2] is not LEAF])
        merging = tuple([(name, self.fields[name]) for name in names if self.fields[name] is not LEAF])
        parts = self._seen[names] = Parts(owned, nested, {step: {} for _, step, _ in owned}, merging)
        return parts


FREE = Shape()
"""Nothing is declared: objects are owned field by field, everything else is atomic."""
LEAF = Shape()
"""Owned as a whole."""
UNOWNED = Shape()
"""Set by the server or given by the URL: never part of a field set."""

_METADATA = Shape(
    {
        **dict.fromkeys(("name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp"), UNOWNED),
        **dict.fromkeys(("selfLink", "clusterName", "managedFields"), UNOWNED),
        "labels": Shape(entries=LEAF),
        "annotations": Shape(entries=LEAF),
        "finalizers": Shape(entries=LEAF, keys=()),
        "ownerReferences": Shape(entries=LEAF, keys=("uid",)),
    }
)


@dataclass(frozen=True, slots=True)
class Shapes:
    """The merge schema of a whole kind, and by subresource (`""` for the main resource) of what its writes can own."""

    whole: Shape
    written: Mapping[str, Shape]


def shapes_of(kind: Kind) -> Shapes:
    """Builds the merge schemas of a kind. With a status subresource, only /status owns the status, and nothing else."""
    schema = kind.schema()
    whole = shape_of(schema)
    if not kind.status_subresource:
        return Shapes(whole, dict.fromkeys(("", *kind.parts), whole))
    beside_status = shape_of(schema, ("status",))
    status = shape_of(schema, (name for name in schema["properties"] if name != "status"))
    return Shapes(whole, {**dict.fromkeys(("", *kind.parts), beside_status), "status": status})


def shape_of(schema: Schema, without: Iterable[str] = ()) -> Shape:
    """The merge schema of a whole object.

    `without` are dotted paths of fields that a write ignores, such as `status`: with everything below them they are
    UNOWNED.
    """
    properties = {name: _shape(each) for name, each in schema.get("properties", {}).items()}
    shape = Shape({**properties, "apiVersion": UNOWNED, "kind": UNOWNED, "metadata": _METADATA})
    for path in without:
        shape = _disowned(shape, path.split("."))
    return shape


def _disowned(shape: Shape, path: list[str]) -> Shape:
    inner = _disowned(shape.fields.get(path[0], FREE), path[1:]) if len(path) > 1 else UNOWNED
    return replace(shape, fields={**shape.fields, path[0]: inner})


def _shape(schema: Schema) -> Shape:
    wanted = schema.get("type")
    if wanted == "array":
        return _list_shape(schema)
    if wanted not in (None, "object") or schema.get("x-kubernetes-map-type") == "atomic":
        return LEAF
    additional = schema.get("additionalProperties")
    properties = {name: _shape(each) for name, each in schema.get("properties", {}).items()}
    return Shape(properties, _shape(additional) if isinstance(additional, dict) else None)


def _list_shape(schema: Schema) -> Shape:
    sort = schema.get("x-kubernetes-list-type")
    if sort == "set":
        return Shape(entries=LEAF, keys=())
    if sort != "map":
        return LEAF
    items = schema["items"]
    keys = tuple(sorted(schema["x-kubernetes-list-map-keys"]))
    declared = items.get("properties", {})
    defaults = {key: declared[key]["default"] for key in keys if "default" in declared.get(key, {})}
    return Shape(entries=_shape(items), keys=keys, defaults=defaults)


def step_of(entry: Any, shape: Shape) -> str | None:
    """The step of a list entry; None if the entry has none of the keys."""
    if not shape.keys:
        return "v:" + key_text(entry)
    if not isinstance(entry, dict):
        return None
    named = {**shape.defaults, **entry}
    keys = {key: named[key] for key in shape.keys if key in named}
    return "k:" + key_text(keys) if keys else None


def indexed(values: list[Any], shape: Shape) -> dict[str, list[Any]]:
    """The entries of a list by step. Duplicates are grouped; an entry without any key is left out."""
    found: dict[str, list[Any]] = {}
    for value in values:
        step = step_of(value, shape)
        if step is not None:
            found.setdefault(step, []).append(value)
    return found
