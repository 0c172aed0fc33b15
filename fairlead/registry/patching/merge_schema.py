"""The merge schema of a kind: its OpenAPI schema reduced to what ownership and merging need. Built once per kind.

`field_walk.py` computes field sets with it; `apply.py` and `merge_patches.py` merge objects with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from fairlead.core.bounded_cache import BoundedCache
from fairlead.core.objects import Object
from fairlead.registry.kind import Kind
from fairlead.registry.patching.field_set import canonical_json
from fairlead.registry.schema import Schema

PLAN_CACHE_SIZE = 32
"""How many combinations of field names a merge schema caches."""


class FieldPlan(NamedTuple):
    """How the fields of one object are owned and merged, in the object's order."""

    owned: tuple[tuple[str, str, MergeSchema], ...]
    """The fields that can have an owner: name, step, schema."""
    nested: tuple[tuple[str, str, MergeSchema], ...]
    """The owned fields that are not atomic."""
    flat_set: dict[str, dict[str, Any]]
    """The field set of all owned fields, without anything below them. Copy before use."""
    mergeable: tuple[tuple[str, MergeSchema], ...]
    """The fields, owned or not, that are merged instead of replaced by apply."""


def _new_plan_cache() -> BoundedCache[tuple[str, ...], FieldPlan]:
    return BoundedCache(PLAN_CACHE_SIZE)


@dataclass(frozen=True, slots=True, eq=False)
class MergeSchema:
    """How one part of an object is owned and merged."""

    fields: Mapping[str, MergeSchema] = field(default_factory=dict)
    entries: MergeSchema | None = None
    """The schema of undeclared fields, or of list entries. None means DEDUCED."""
    keys: tuple[str, ...] | None = None
    """For a set or map list, the fields that identify an entry (empty for a set); None for everything else."""
    defaults: Object = field(default_factory=dict)
    """Default values of `keys`, which entries may omit."""
    _plans: BoundedCache[tuple[str, ...], FieldPlan] = field(default_factory=_new_plan_cache, init=False)

    def field_plan(self, value: Object) -> FieldPlan | None:
        """The plan for the fields of `value`; None if one of them is not declared.

        Most objects of a kind have the same fields, so plans are cached by field names. Undeclared names are never
        cached.
        """
        if not self.fields:
            return None
        names = tuple(value)
        try:
            return self._plans[names]
        except KeyError:
            return self._build_plan(names)

    def _build_plan(self, names: tuple[str, ...]) -> FieldPlan | None:
        if not self.fields.keys() >= set(names):
            return None
        owned = tuple([(name, "f:" + name, self.fields[name]) for name in names if self.fields[name] is not UNOWNED])
        nested = tuple([each for each in owned if each[2] is not ATOMIC])
        merging = tuple([(name, self.fields[name]) for name in names if self.fields[name] is not ATOMIC])
        parts = self._plans[names] = FieldPlan(owned, nested, {step: {} for _, step, _ in owned}, merging)
        return parts


DEDUCED = MergeSchema()
"""Nothing is declared: objects are owned field by field, everything else is atomic."""
ATOMIC = MergeSchema()
"""Owned as a whole."""
UNOWNED = MergeSchema()
"""Set by the server or given by the URL: never part of a field set."""

_METADATA_SCHEMA = MergeSchema(
    {
        **dict.fromkeys(("name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp"), UNOWNED),
        **dict.fromkeys(("selfLink", "clusterName", "managedFields"), UNOWNED),
        "labels": MergeSchema(entries=ATOMIC),
        "annotations": MergeSchema(entries=ATOMIC),
        "finalizers": MergeSchema(entries=ATOMIC, keys=()),
        "ownerReferences": MergeSchema(entries=ATOMIC, keys=("uid",)),
    }
)


@dataclass(frozen=True, slots=True)
class MergeSchemas:
    """The merge schema of a whole kind, and by subresource (`""` for the main resource) of what its writes can own."""

    whole: MergeSchema
    by_subresource: Mapping[str, MergeSchema]


def build_merge_schemas(kind: Kind) -> MergeSchemas:
    """Builds the merge schemas of a kind. With a status subresource, only /status owns the status, and metadata, but
    nothing else."""
    schema = kind.schema()
    whole = build_merge_schema(schema)
    if not kind.status_subresource:
        return MergeSchemas(whole, dict.fromkeys(("", *kind.extra_subresources), whole))
    beside_status = build_merge_schema(schema, ("status",))
    status = build_merge_schema(schema, (name for name in schema["properties"] if name not in ("status", "metadata")))
    return MergeSchemas(whole, {**dict.fromkeys(("", *kind.extra_subresources), beside_status), "status": status})


def build_merge_schema(schema: Schema, without: Iterable[str] = ()) -> MergeSchema:
    """The merge schema of a whole object.

    `without` are dotted paths of fields that a write ignores, such as `status`: with everything below them they are
    UNOWNED.
    """
    properties = {name: _build(each) for name, each in schema.get("properties", {}).items()}
    shape = MergeSchema({**properties, "apiVersion": UNOWNED, "kind": UNOWNED, "metadata": _METADATA_SCHEMA})
    for path in without:
        shape = _mark_unowned(shape, path.split("."))
    return shape


def _mark_unowned(schema: MergeSchema, path: list[str]) -> MergeSchema:
    inner = _mark_unowned(schema.fields.get(path[0], DEDUCED), path[1:]) if len(path) > 1 else UNOWNED
    return replace(schema, fields={**schema.fields, path[0]: inner})


def _build(schema: Schema) -> MergeSchema:
    wanted = schema.get("type")
    if wanted == "array":
        return _build_list(schema)
    if wanted not in (None, "object") or schema.get("x-kubernetes-map-type") == "atomic":
        return ATOMIC
    additional = schema.get("additionalProperties")
    properties = {name: _build(each) for name, each in schema.get("properties", {}).items()}
    return MergeSchema(properties, _build(additional) if isinstance(additional, dict) else None)


def _build_list(schema: Schema) -> MergeSchema:
    sort = schema.get("x-kubernetes-list-type")
    if sort == "set":
        return MergeSchema(entries=ATOMIC, keys=())
    if sort != "map":
        return ATOMIC
    items = schema["items"]
    keys = tuple(sorted(schema["x-kubernetes-list-map-keys"]))
    declared = items.get("properties", {})
    defaults = {key: declared[key]["default"] for key in keys if "default" in declared.get(key, {})}
    return MergeSchema(entries=_build(items), keys=keys, defaults=defaults)


def entry_step(entry: Any, schema: MergeSchema) -> str | None:
    """The step of a list entry; None if the entry has none of the keys."""
    if not schema.keys:
        return "v:" + canonical_json(entry)
    if not isinstance(entry, dict):
        return None
    named = {**schema.defaults, **entry}
    keys = {key: named[key] for key in schema.keys if key in named}
    return "k:" + canonical_json(keys) if keys else None


def entries_by_step(values: list[Any], schema: MergeSchema) -> dict[str, list[Any]]:
    """The entries of a list by step. Duplicates are grouped; an entry without any key is left out."""
    found: dict[str, list[Any]] = {}
    for value in values:
        step = entry_step(value, schema)
        if step is not None:
            found.setdefault(step, []).append(value)
    return found
