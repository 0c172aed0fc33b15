"""Server-side apply: merges a configuration into an object and makes its manager the owner of exactly those fields.

`registry/resource.py` runs `ApplyEngine.apply_config` as an edit in its compare-and-swap loop, again after every lost
race. Fields that the manager applied before and omits now are removed, unless another manager owns them. Changing a
field that another manager owns is a conflict, unless forced. The proposed object contains the new managedFields;
`patching/managed_fields.py` sets their times once the object is as it will be stored.

The manager `kubectl` can switch from client-side to server-side apply without conflicts with itself. Client-side apply
records its configuration in the last-applied annotation, and its fields belong to an Update entry. The manager may take
these fields over if they have not changed since. If the annotation exists, it is kept up to date, so that client-side
apply keeps working.
"""

from dataclasses import dataclass
from typing import Any

import orjson

from fairlead.core import json
from fairlead.core.errors import MAX_PROBLEMS, BadRequest, Conflict, Details, Problem
from fairlead.core.objects import LAST_APPLIED, Object, copied, dig, metadata
from fairlead.registry import metadata as meta
from fairlead.registry.kind import Kind
from fairlead.registry.metadata import ANNOTATIONS_LIMIT
from fairlead.registry.patching.field_set import (
    FieldSet,
    difference,
    intersection,
    paths,
    shown_path,
    union,
    union_of_all,
)
from fairlead.registry.patching.field_walk import all_fields, applied_fields, changed, with_parents
from fairlead.registry.patching.managed_fields import Entries, Writer, released, understood
from fairlead.registry.patching.merge import merged, without
from fairlead.registry.patching.merge_schema import Shape, Shapes
from fairlead.registry.patching.type_check import Fitting, faults
from fairlead.registry.schema import Schema

BEFORE_FIRST_APPLY = "before-first-apply"
"""From the first apply on, the manager of fields that no entry recorded."""
KUBECTL = "kubectl"
"""The manager for which fields of client-side apply are taken over. Other managers get conflicts."""

Contested = list[tuple[Object, FieldSet]]
"""Entries of managedFields, each with those of its fields that another manager wants to change."""


@dataclass(frozen=True, slots=True)
class Applying:
    """Server-side apply for one kind."""

    kind: Kind
    shapes: Shapes
    schema: Schema
    fits: Fitting

    @staticmethod
    def of(kind: Kind, shapes: Shapes) -> "Applying":
        schema = kind.schema()
        whole = {**schema, "properties": {**schema["properties"], "metadata": meta.METADATA}}
        return Applying(kind, shapes, whole, Fitting(whole))

    def checked(self, body: Any) -> Object:
        """The configuration, if it is a valid one for this kind."""
        if not isinstance(body, dict | None):
            raise BadRequest("error decoding patch: the body must be an object with apiVersion, kind and metadata")
        config: Object = body or {}
        kind = self.kind
        if (config.get("apiVersion"), config.get("kind")) != (kind.api_version, kind.name):
            sent = _type_text(config)
            expected = _type_text({"apiVersion": kind.api_version, "kind": kind.name})
            raise BadRequest(f"invalid object type: {sent}; expected {expected}")
        sent_meta = config.get("metadata")
        config_meta = sent_meta if isinstance(sent_meta, dict) else {}
        if config_meta.get("managedFields") is not None:
            raise BadRequest("metadata.managedFields must be nil")
        errors = "" if self.fits(config) else faults(config, self.schema)
        if errors:
            sent = _type_text(config)
            name = f"{config_meta.get('namespace') or ''}/{config_meta.get('name') or ''}"
            raise BadRequest(f"failed to create typed patch object ({name}; {sent}): {errors}")
        return config

    def created(self, config: Object, writer: Writer) -> Object:
        """A new object from the configuration."""
        obj = copied(config)
        uid = metadata(obj).pop("uid", None)
        if uid:
            reason = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            raise Conflict.of(self.kind.plural, self.kind.group, metadata(obj).get("name") or "", reason)
        metadata(obj).pop("resourceVersion", None)
        claimed = applied_fields(config, self.shapes.written[writer.subresource])
        metadata(obj)["managedFields"] = [writer.entry(claimed)] if claimed else []
        return obj

    def applied(self, live: Object, config: Object, writer: Writer, *, force: bool) -> Object:
        """The object with the configuration applied. Raises Conflict if other managers own fields that would change."""
        whole, owned = self.shapes.whole, self.shapes.written[writer.subresource]
        entries = understood(_entries(live, owned, writer), writer)
        mine = next(filter(writer.owns, entries), None)
        others = [entry for entry in entries if entry is not mine]
        claimed = applied_fields(config, owned)
        new = merged(live, config, whole)
        if mine is not None and difference(mine["fieldsV1"], claimed):
            managed = union_of_all([claimed, *(entry["fieldsV1"] for entry in others)])
            new = _pruned(new, mine["fieldsV1"], managed, whole)
        taken, removed = changed(live, new, owned)
        if not force:
            self._refuse_conflicts(live, _contested(others, taken), writer)
        new = copied(new)
        if writer.manager == KUBECTL:
            renew(new, config)
        kept = released(others, taken, removed)
        if claimed:
            kept.append(mine if mine is not None and mine["fieldsV1"] == claimed else writer.entry(claimed))
        metadata(new)["managedFields"] = kept
        return new

    def _refuse_conflicts(self, live: Object, contested: Contested, writer: Writer) -> None:
        if contested and writer.manager == KUBECTL:
            free = unchanged_since(live, self.shapes.whole, self.schema)
            contested = [(entry, left) for entry, fields in contested if (left := difference(fields, free))]
        if contested:
            raise conflict(contested)


def _type_text(obj: Object) -> str:
    """Group, version and kind in Kubernetes' format for messages."""
    version, kind = obj.get("apiVersion"), obj.get("kind")
    text = version if isinstance(version, str) and version.count("/") <= 1 else ""
    group_version = text if "/" in text else f"/{text}"
    return f"{group_version}, Kind={kind if isinstance(kind, str) else ''}"


def _entries(live: Object, owned: Shape, writer: Writer) -> Entries:
    recorded: Entries = metadata(live).get("managedFields") or []
    if recorded:
        return recorded
    fields = all_fields(live, owned)
    first = Writer(BEFORE_FIRST_APPLY, writer.api_version, writer.now, writer.subresource)
    return [first.entry(fields)] if fields else []


def _contested(others: Entries, taken: FieldSet) -> Contested:
    shared = ((entry, intersection(entry["fieldsV1"], taken)) for entry in others) if taken else ()
    return [(entry, fields) for entry, fields in shared if fields]


def _pruned(obj: Object, last: FieldSet, managed: FieldSet, shape: Shape) -> Object:
    """The object without fields that the manager applied last time and that no manager owns now.

    Removing a field removes everything below it, so this takes three steps: remove what was applied last, restore what
    is managed, and of the rest remove only what was applied, directly or through its parent.
    """
    last, managed = with_parents(last, shape), with_parents(managed, shape)
    everything = _present(obj, shape)
    dropped = difference(everything, union(_present(without(obj, last, shape), shape), managed))
    gone = difference(everything, _present(without(obj, dropped, shape), shape))
    return without(obj, intersection(gone, last), shape)


def _present(obj: Object, shape: Shape) -> FieldSet:
    return with_parents(applied_fields(obj, shape), shape)


def conflict(contested: Contested) -> Conflict:
    """The Conflict error, with a cause for each field and owner. `--force-conflicts` of kubectl overrides it."""
    named = sorted((_shown_owner(entry), sorted(map(shown_path, paths(fields)))) for entry, fields in contested)
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


def _shown_owner(entry: Object) -> str:
    owner = f'"{entry.get("manager", "")}"'
    if entry.get("subresource"):
        owner += f' with subresource "{entry["subresource"]}"'
    return f"{owner} using {entry['apiVersion']}" if entry["operation"] == "Update" else owner


def unchanged_since(live: Object, shape: Shape, schema: Schema) -> FieldSet:
    """The fields of the last client-side apply that have not changed since."""
    text = (dig(live, "metadata.annotations") or {}).get(LAST_APPLIED)
    try:
        last = json.decode(text.encode()) if text else None
    except json.Malformed:
        return {}
    if not isinstance(last, dict) or last.get("apiVersion") != live["apiVersion"] or faults(last, schema):
        return {}
    taken, removed = changed(last, live, shape)
    return difference(difference(applied_fields(last, shape), taken), removed)


def renew(obj: Object, config: Object) -> None:
    """Updates the last-applied annotation, if the object has it. Removes it if the annotations become too large."""
    annotations = metadata(obj).get("annotations") or {}
    if not annotations.get(LAST_APPLIED):
        return
    config_meta = {name: value for name, value in metadata(config).items() if name != "annotations"}
    config_annotations = metadata(config).get("annotations") or {}
    config_meta["annotations"] = {name: value for name, value in config_annotations.items() if name != LAST_APPLIED}
    annotations[LAST_APPLIED] = _as_kubectl_writes({**config, "metadata": config_meta})
    if sum(len(name.encode()) + len((value or "").encode()) for name, value in annotations.items()) > ANNOTATIONS_LIMIT:
        del annotations[LAST_APPLIED]


_ESCAPED = str.maketrans({char: f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"})


def _as_kubectl_writes(config: Object) -> str:
    return orjson.dumps(config, option=orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE).decode().translate(_ESCAPED)
