"""The shape of a kind: its schema reduced to what ownership and merging need to know. Made once per kind.

`field_walk.py` reads sets of fields off objects with it, `merge.py` and `strategic_merge.py` merge objects by it.
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
"""Of how many choices of names a shape remembers what they mean."""


class Parts(NamedTuple):
    """What a structure's shape says about the fields that one value has, in their order."""

    owned: tuple[tuple[str, str, Shape], ...]
    """Those that can belong to somebody: their names, the steps to them, their shapes."""
    nested: tuple[tuple[str, str, Shape], ...]
    """Of these, those that are not merely owned as a whole."""
    flat: dict[str, dict[str, Any]]
    """The set of the owned ones, as if nothing were inside of any. To be copied."""
    merging: tuple[tuple[str, Shape], ...]
    """Those, owned or not, that are not merely replaced by what is applied."""


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """How one part of an object is owned and merged."""

    fields: Mapping[str, Shape] = field(default_factory=dict)
    entries: Shape | None = None
    """What undeclared fields, or the entries of a list, look like. None stands for FREE."""
    keys: tuple[str, ...] | None = None
    """None unless this is a list with entries of their own: what tells them apart, or nothing for a set of values."""
    defaults: Object = field(default_factory=dict)
    """Values of `keys` that entries may leave out."""
    _seen: dict[tuple[str, ...], Parts | None] = field(default_factory=dict)

    def parts(self, value: Object) -> Parts | None:
        """How the fields that are there are owned, if each of them is declared; None if one is not.

        Most objects of a kind have the same fields, so it is found out once for each choice of names. Names that
        anybody may make up are not kept.
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
"""Nothing is declared: objects are owned field by field, all else as a whole."""
LEAF = Shape()
"""Owned as a whole."""
UNOWNED = Shape()
"""Set by the server or given by the URL: never part of a set."""

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
    """A kind's shape as a whole, and what of it belongs to those who write the object (`""`) or a subresource."""

    whole: Shape
    written: Mapping[str, Shape]


def shapes_of(kind: Kind) -> Shapes:
    """Where a controller owns the status, only /status writes it, and it writes nothing else."""
    schema = kind.schema()
    whole = shape_of(schema)
    if not kind.status_subresource:
        return Shapes(whole, dict.fromkeys(("", *kind.parts), whole))
    beside_status = shape_of(schema, ("status",))
    status = shape_of(schema, (name for name in schema["properties"] if name != "status"))
    return Shapes(whole, {**dict.fromkeys(("", *kind.parts), beside_status), "status": status})


def shape_of(schema: Schema, without: Iterable[str] = ()) -> Shape:
    """The shape of a whole object, from its structural schema.

    `without` names fields by dotted path that a write leaves alone whatever it sent (`status`, where a controller owns
    it): with everything below them they are owned by nobody.
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
    """The step that leads to an entry of a list with entries of their own; None if it lacks every key."""
    if not shape.keys:
        return "v:" + key_text(entry)
    if not isinstance(entry, dict):
        return None
    named = {**shape.defaults, **entry}
    keys = {key: named[key] for key in shape.keys if key in named}
    return "k:" + key_text(keys) if keys else None


def indexed(values: list[Any], shape: Shape) -> dict[str, list[Any]]:
    """The entries of a list by their step. Duplicates stay together; an entry without any key has no step."""
    found: dict[str, list[Any]] = {}
    for value in values:
        step = step_of(value, shape)
        if step is not None:
            found.setdefault(step, []).append(value)
    return found
