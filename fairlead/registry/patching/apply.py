"""Server-side apply: merges a configuration into an object and makes its manager the owner of exactly those fields.

`registry/resource.py` runs `ApplyEngine.apply_config` as an edit in its compare-and-swap loop, again after every lost
race. Fields that the manager applied before and omits now are removed, unless another manager owns them. Changing a
field that another manager owns is a conflict, unless forced. The proposed object contains the new managedFields;
`patching/managed_fields.py` sorts them once the object is as it will be stored.

The manager `kubectl` can switch from client-side to server-side apply without conflicts with itself. Client-side apply
records its configuration in the last-applied annotation, and its fields belong to an Update entry. The manager may take
these fields over if they have not changed since. If the annotation exists, it is kept up to date, so that client-side
apply keeps working.

Type checks of an applied configuration: every field declared, every value of its type.

A configuration is part of an object, so nothing is required in it; the merged object is validated later. The messages
are those of structured-merge-diff, which Kubernetes uses.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import jsonschema_rs
import orjson

from fairlead.core import json
from fairlead.core.errors import MAX_PROBLEMS, BadRequest, Conflict, Details, Problem, quote_value
from fairlead.core.objects import LAST_APPLIED, Object, annotations_of, deep_copy, metadata
from fairlead.registry import object_metadata
from fairlead.registry.kind import Kind
from fairlead.registry.object_metadata import MAX_ANNOTATIONS_BYTES
from fairlead.registry.patching.field_set import (
    SELF,
    FieldSet,
    canonical_json,
    difference,
    format_field_path,
    intersection,
    iter_paths,
    union,
    union_all,
)
from fairlead.registry.patching.field_walk import add_parents, all_fields, applied_fields, compare_objects
from fairlead.registry.patching.managed_fields import Entries, FieldManager, filter_by_version, release_fields
from fairlead.registry.patching.merge_schema import (
    ATOMIC,
    DEDUCED,
    UNOWNED,
    MergeSchema,
    MergeSchemas,
    build_merge_schemas,
    entries_by_step,
    entry_step,
)
from fairlead.registry.schema import Schema

_EXPECTED: dict[str, tuple[str, type | tuple[type, ...]]] = {
    "object": ("map", dict),
    "array": ("list", list),
    "string": ("string", str),
    "boolean": ("boolean", bool),
    "integer": ("numeric (int or float)", (int, float)),
    "number": ("numeric (int or float)", (int, float)),
}
_MAX_ERRORS = 10
_MAX_VALUE_LENGTH = 60


class FastTypeCheck:
    """A fast check that a configuration has no type errors, with a compiled validator.

    False negatives are possible: of set and map lists it accepts only those with one entry, which has no duplicates.
    Then call `type_errors`.
    """

    __slots__ = ("_compiled", "_schema")

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._compiled: jsonschema_rs.Draft4Validator | None = None

    def __call__(self, config: Object) -> bool:
        if self._compiled is None:  # compiled on first use: most kinds are never applied
            self._compiled = jsonschema_rs.Draft4Validator(_to_json_schema(self._schema))
        return self._compiled.is_valid(config)


def _to_json_schema(schema: Schema) -> Schema:
    wanted = schema.get("type")
    if wanted is None:
        return {}
    fitting: Schema = {"type": [wanted, "null"]}
    if wanted == "object":
        others = schema.get("additionalProperties")
        fitting["properties"] = {name: _to_json_schema(each) for name, each in schema.get("properties", {}).items()}
        preserves_unknown = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
        fitting["additionalProperties"] = preserves_unknown if others is None else _to_json_schema(others)
    elif wanted == "array":
        fitting["items"] = items = _to_json_schema(schema["items"])
        if schema.get("x-kubernetes-list-type") in ("set", "map"):
            fitting["maxItems"] = 1
        if schema.get("x-kubernetes-list-type") == "map":
            keys = schema["x-kubernetes-list-map-keys"]
            known = {key: {"not": {"type": "null"}, **items["properties"][key]} for key in keys}
            fitting["items"] = {**items, "required": keys, "properties": {**items["properties"], **known}}
    return fitting


def type_errors(config: Object, schema: Schema) -> str:
    """The type errors as one text; empty if there are none. Only the first few are reported."""
    found = list(islice(_object_errors(config, schema, None), _MAX_ERRORS))
    return "\n  ".join(["errors:", *found]) if len(found) > 1 else "".join(found)


PathNode = tuple["PathNode | None", str] | None
"""The path to a value as a linked list: the node of its parent, and one step. It is formatted only for errors, because
formatting it for every value would copy long names again and again."""


def _format_path(path: PathNode) -> str:
    steps = []
    while path is not None:
        path, step = path
        steps.append(step)
    return format_field_path(tuple(reversed(steps)))


def _value_errors(value: Any, schema: Schema, path: PathNode) -> Iterator[str]:
    wanted = schema.get("type")
    if value is None or wanted is None:
        return
    name, types = _EXPECTED[wanted]
    fits = isinstance(value, types) and (wanted == "boolean" or not isinstance(value, bool))
    if not fits:
        yield f"{_format_path(path)}: expected {name}, got {quote_value(value):.{_MAX_VALUE_LENGTH}}"
    elif wanted == "object":
        yield from _object_errors(value, schema, path)
    elif wanted == "array":
        yield from _list_errors(value, schema, path)


def _object_errors(value: Object, schema: Schema, path: PathNode) -> Iterator[str]:
    properties = schema.get("properties", {})
    others = schema.get("additionalProperties")
    for name, each in value.items():
        expected = properties.get(name, others)
        if expected is not None:
            yield from _value_errors(each, expected, (path, f"f:{name}"))
        elif not schema.get("x-kubernetes-preserve-unknown-fields"):
            yield f"{_format_path(path)}.{name}: field not declared in schema"


def _list_errors(values: list[Any], schema: Schema, path: PathNode) -> Iterator[str]:
    sort, items = schema.get("x-kubernetes-list-type"), schema["items"]
    seen = set()
    for index, each in enumerate(values):
        step = f"i:{index}"
        if sort == "set":
            step = "v:" + canonical_json(each)
        elif sort == "map" and isinstance(each, dict):
            keys = {
                key: each.get(key, _key_default(items, key)) for key in sorted(schema["x-kubernetes-list-map-keys"])
            }
            missing = [key for key, value in keys.items() if value is None]
            if missing:
                where = f"{_format_path(path)}: element {index}"
                yield f'{where}: associative list with keys has an element that omits "{missing[0]}"'
                continue
            step = "k:" + canonical_json(keys)
        if step in seen:
            yield f"{_format_path(path)}: duplicate entries for key {format_field_path((step,))}"
        seen.add(step)
        yield from _value_errors(each, items, (path, step))


def _key_default(items: Schema, key: str) -> Any:
    return items.get("properties", {}).get(key, {}).get("default")


BEFORE_FIRST_APPLY = "before-first-apply"
"""From the first apply on, the manager of fields that no entry recorded."""
KUBECTL_MANAGER = "kubectl"
"""The manager for which fields of client-side apply are taken over. Other managers get conflicts."""

ConflictingOwners = list[tuple[Object, FieldSet]]
"""Entries of managedFields, each with those of its fields that another manager wants to change."""


@dataclass(frozen=True, slots=True)
class ApplyEngine:
    """Server-side apply for one kind."""

    kind: Kind
    merge_schemas: MergeSchemas
    schema: Schema
    is_well_typed: FastTypeCheck

    @staticmethod
    def for_kind(kind: Kind) -> ApplyEngine:
        schema = kind.schema()
        merge_schemas = kind.derive(build_merge_schemas)
        whole = {**schema, "properties": {**schema["properties"], "metadata": object_metadata.METADATA}}
        return ApplyEngine(kind, merge_schemas, whole, FastTypeCheck(whole))

    def check_config(self, body: Any) -> Object:
        """The configuration, if it is a valid one for this kind."""
        if not isinstance(body, dict | None):
            raise BadRequest("error decoding patch: the body must be an object with apiVersion, kind and metadata")
        config: Object = body or {}
        kind = self.kind
        if (config.get("apiVersion"), config.get("kind")) != (kind.api_version, kind.name):
            sent = _format_gvk(config)
            expected = _format_gvk({"apiVersion": kind.api_version, "kind": kind.name})
            raise BadRequest(f"invalid object type: {sent}; expected {expected}")
        sent_meta = config.get("metadata")
        config_meta = sent_meta if isinstance(sent_meta, dict) else {}
        if config_meta.get("managedFields") is not None:
            raise BadRequest("metadata.managedFields must be nil")
        errors = "" if self.is_well_typed(config) else type_errors(config, self.schema)
        if errors:
            sent = _format_gvk(config)
            name = f"{config_meta.get('namespace') or ''}/{config_meta.get('name') or ''}"
            raise BadRequest(f"failed to create typed patch object ({name}; {sent}): {errors}")
        return config

    def build_new(self, config: Object, manager: FieldManager) -> Object:
        """A new object from the configuration."""
        obj = deep_copy(config)
        uid = metadata(obj).pop("uid", None)
        if uid:
            reason = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            raise Conflict.of(self.kind.plural, self.kind.group, metadata(obj).get("name") or "", reason)
        version = metadata(obj).pop("resourceVersion", None)
        if version and not version.isdecimal():
            raise BadRequest(f"invalid resource version: resourceVersion: Invalid value: {quote_value(version)}")
        claimed = applied_fields(config, self.merge_schemas.by_subresource[manager.subresource])
        metadata(obj)["managedFields"] = [manager.build_entry(claimed)] if claimed else []
        return obj

    def apply_config(self, live: Object, config: Object, manager: FieldManager, *, force: bool) -> Object:
        """The object with the configuration applied. Raises Conflict if other managers own fields that would change."""
        whole, owned = self.merge_schemas.whole, self.merge_schemas.by_subresource[manager.subresource]
        entries = filter_by_version(_entries_or_initial(live, owned, manager), manager)
        mine = next(filter(manager.owns, entries), None)
        others = [entry for entry in entries if entry is not mine]
        claimed = applied_fields(config, owned)
        new = merge_config(live, config, whole)
        if mine is not None and difference(mine["fieldsV1"], claimed):
            managed = union_all([claimed, *(entry["fieldsV1"] for entry in others)])
            new = _prune(new, mine["fieldsV1"], managed, whole)
        changed, removed = compare_objects(live, new, owned)
        if not force:
            self._check_conflicts(live, _find_conflicts(others, changed), manager)
        new = deep_copy(new)
        if manager.subresource == "status" and new.get("status") is None and "status" not in live:
            new.pop("status", None)  # there is none to remove
        if manager.name == KUBECTL_MANAGER:
            update_last_applied(new, config)
        remaining = release_fields(others, changed, removed)
        if claimed:
            remaining.append(_claim_fields(mine, claimed, manager, is_change=bool(changed or removed)))
        metadata(new)["managedFields"] = remaining
        return new

    def _check_conflicts(self, live: Object, conflicts: ConflictingOwners, manager: FieldManager) -> None:
        if conflicts and manager.name == KUBECTL_MANAGER:
            free = unchanged_since_last_applied(live, self.merge_schemas.whole, self.schema)
            conflicts = [(entry, left) for entry, fields in conflicts if (left := difference(fields, free))]
        if conflicts:
            raise conflict_error(conflicts)


def _format_gvk(obj: Object) -> str:
    """Group, version and kind in Kubernetes' format for messages."""
    version = obj.get("apiVersion")
    kind = obj.get("kind")
    text = version if isinstance(version, str) and version.count("/") <= 1 else ""
    group_version = text if "/" in text else f"/{text}"
    return f"{group_version}, Kind={kind if isinstance(kind, str) else ''}"


def _entries_or_initial(live: Object, owned: MergeSchema, manager: FieldManager) -> Entries:
    recorded: Entries = metadata(live).get("managedFields") or []
    if recorded:
        return recorded
    fields = all_fields(live, owned)
    first = FieldManager(BEFORE_FIRST_APPLY, manager.api_version, manager.now, manager.subresource)
    return [first.build_entry(fields)] if fields else []


def _claim_fields(mine: Object | None, claimed: FieldSet, manager: FieldManager, *, is_change: bool) -> Object:
    """The manager's entry with the claimed fields.

    Its time is that of the manager's last change of the object. Claiming fields that have their values already is none,
    and neither is the update of the last-applied annotation: an entry that has never changed the object has no time.
    """
    if is_change:
        return manager.build_entry(claimed)
    if mine is not None:
        return mine if mine["fieldsV1"] == claimed else {**mine, "fieldsV1": claimed}
    entry = manager.build_entry(claimed)
    del entry["time"]
    return entry


def _find_conflicts(others: Entries, changed: FieldSet) -> ConflictingOwners:
    shared = ((entry, intersection(entry["fieldsV1"], changed)) for entry in others) if changed else ()
    return [(entry, fields) for entry, fields in shared if fields]


def _prune(obj: Object, last: FieldSet, managed: FieldSet, schema: MergeSchema) -> Object:
    """The object without fields that the manager applied last time and that no manager owns now.

    Removing a field removes everything below it, so this takes three steps: remove what was applied last, restore what
    is managed, and of the rest remove only what was applied, directly or through its parent.
    """
    last = add_parents(last, schema)
    managed = add_parents(managed, schema)
    everything = _present_fields(obj, schema)
    dropped = difference(everything, union(_present_fields(remove_fields(obj, last, schema), schema), managed))
    missing = difference(everything, _present_fields(remove_fields(obj, dropped, schema), schema))
    return remove_fields(obj, intersection(missing, last), schema)


def _present_fields(obj: Object, schema: MergeSchema) -> FieldSet:
    return add_parents(applied_fields(obj, schema), schema)


def conflict_error(conflicts: ConflictingOwners) -> Conflict:
    """The Conflict error, with a cause for each field and owner. `--force-conflicts` of kubectl overrides it."""
    named = sorted(
        (_format_owner(entry), sorted(map(format_field_path, iter_paths(fields)))) for entry, fields in conflicts
    )
    causes = [
        Problem(path, "FieldManagerConflict", f"conflict with {owner}") for owner, fields in named for path in fields
    ]
    if len(causes) == 1:
        message = f"1 conflict: {causes[0].message}: {causes[0].field}"
    else:
        shown = ((owner, fields[:MAX_PROBLEMS]) for owner, fields in named[:MAX_PROBLEMS])
        listed = (f"conflicts with {owner}:" + "".join(f"\n- {path}" for path in fields) for owner, fields in shown)
        message = f"{len(causes)} conflicts: " + "\n".join(listed)
    return Conflict(f"Apply failed with {message}", Details(problems=causes[:MAX_PROBLEMS]))


def _format_owner(entry: Object) -> str:
    owner = f'"{entry.get("manager", "")}"'
    if entry.get("subresource"):
        owner += f' with subresource "{entry["subresource"]}"'
    return f"{owner} using {entry['apiVersion']}" if entry["operation"] == "Update" else owner


def unchanged_since_last_applied(live: Object, merge_schema: MergeSchema, schema: Schema) -> FieldSet:
    """The fields of the last client-side apply that have not changed since."""
    text = annotations_of(live).get(LAST_APPLIED)
    try:
        last = json.decode(text.encode()) if text else None
    except json.Malformed:
        return {}
    if not isinstance(last, dict) or last.get("apiVersion") != live["apiVersion"] or type_errors(last, schema):
        return {}
    changed, removed = compare_objects(last, live, merge_schema)
    return difference(difference(applied_fields(last, merge_schema), changed), removed)


def update_last_applied(obj: Object, config: Object) -> None:
    """Updates the last-applied annotation, if the object has it. Removes it if the annotations become too large."""
    annotations = metadata(obj).get("annotations") or {}
    if not annotations.get(LAST_APPLIED):
        return
    config_meta = {name: value for name, value in metadata(config).items() if name != "annotations"}
    if (config_annotations := metadata(config).get("annotations")) is not None:
        config_meta["annotations"] = {name: value for name, value in config_annotations.items() if name != LAST_APPLIED}
    annotations[LAST_APPLIED] = _encode_like_kubectl({**config, "metadata": config_meta})
    if (
        sum(len(name.encode()) + len((value or "").encode()) for name, value in annotations.items())
        > MAX_ANNOTATIONS_BYTES
    ):
        del annotations[LAST_APPLIED]


_HTML_ESCAPES = str.maketrans({char: f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"})


def _encode_like_kubectl(config: Object) -> str:
    return (
        orjson.dumps(config, option=orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE).decode().translate(_HTML_ESCAPES)
    )


# --- merging ---
# Objects and maps merge field by field, set and map lists entry by entry; everything else is replaced. Nothing is
# changed in place, and results share parts with their arguments.


def merge_config(live: Object, config: Object, schema: MergeSchema) -> Object:
    """The object with the configuration merged into it."""
    parts = schema.field_plan(config)
    if parts is not None:
        known = {**live, **config}
        for name, inner in parts.mergeable:
            if name in live:
                known[name] = _merge_value(live[name], config[name], inner)
        return known
    fields, entries = schema.fields, schema.entries or DEDUCED
    result = dict(live)
    for name, wanted in config.items():
        result[name] = _merge_value(live[name], wanted, fields.get(name, entries)) if name in live else wanted
    return result


def _merge_value(live: Any, wanted: Any, schema: MergeSchema) -> Any:
    if schema is ATOMIC:
        return wanted
    if schema is UNOWNED:
        # An empty resourceVersion or uid is not a precondition.
        return wanted or live
    if isinstance(live, dict) and schema.keys is None:
        if isinstance(wanted, dict):
            return merge_config(live, wanted, schema)
        return live if wanted is None else wanted
    if isinstance(live, list) and schema.keys is not None:
        return _merge_lists(live, wanted or [], schema)
    return wanted


def _merge_lists(live: list[Any], wanted: list[Any], schema: MergeSchema) -> list[Any]:
    """Entries of both lists, in the configured order; other entries keep their position between their neighbours."""
    known = entries_by_step(live, schema)
    ordered = [(entry_step(entry, schema), entry) for entry in wanted]
    steps = {step for step, _ in ordered}
    remaining, shared = iter(ordered), (step for step, _ in ordered if step in known)
    result: list[Any] = []
    next_shared = next(shared, None)
    for entry in live:
        step = entry_step(entry, schema)
        if step not in steps:
            result.append(entry)
        elif step == next_shared:
            for each, configured in remaining:
                result.append(_merge_entry(known, each, configured, schema))
                if each == step:
                    break
            next_shared = next(shared, None)
    return [*result, *(_merge_entry(known, step, configured, schema) for step, configured in remaining)]


def _merge_entry(known: dict[str, list[Any]], step: str | None, wanted: Any, schema: MergeSchema) -> Any:
    """An entry merged with its counterpart. Duplicates in the live list have none: all of them are replaced."""
    found = known.get(step or "", ())
    return _merge_value(found[0], wanted, schema.entries or DEDUCED) if len(found) == 1 else wanted


def remove_fields(value: Object, fields: FieldSet, schema: MergeSchema) -> Object:
    """The object without the fields of a set and everything below them. What becomes empty by that is null, as in
    structured-merge-diff."""
    remaining = {}
    for name, each in value.items():
        below = fields.get("f:" + name)
        if below is None:
            remaining[name] = each
        elif below and SELF not in below:
            remaining[name] = _remove_below(each, below, schema.fields.get(name, schema.entries or DEDUCED))
    return remaining


def _remove_below(value: Any, fields: FieldSet, schema: MergeSchema) -> Any:
    if isinstance(value, dict) and schema.keys is None:
        return remove_fields(value, fields, schema) or None
    if not isinstance(value, list) or schema.keys is None:
        return value
    remaining = []
    for each in value:
        below = fields.get(entry_step(each, schema) or "")
        if below is None:
            remaining.append(each)
        elif below and SELF not in below:
            remaining.append(_remove_below(each, below, schema.entries or DEDUCED))
    return remaining or None
