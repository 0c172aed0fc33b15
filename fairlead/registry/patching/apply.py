"""Server-side apply: somebody says which fields they want to have and how, and owns exactly those afterwards.

`registry/resource.py` runs `applied` as an edit in its compare-and-swap loop, again after every lost race. The
configuration is merged into the object; what its manager applied before and left out now goes, unless somebody else
owns it; a field that others own and that would get another value is a conflict, unless taken by force. The proposed
object carries the new managedFields with it, and `registry/patching/managed_fields.py` settles their times once the object is as it
will be stored.
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
from fairlead.registry.patching import apply
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

# DOC-MERGED registry/patching/conflicts
# Fields that one manager applies and others own: what `kubectl` shows and `--force-conflicts` overrides.


Contested = list[tuple[Object, FieldSet]]
"""Entries of managedFields, each with the part of its fields that somebody else wants to have."""


def conflict(contested: Contested) -> Conflict:
    """The refusal, with a cause for each field and each of its owners."""
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


BEFORE_FIRST_APPLY = "before-first-apply"
"""Owns what was there before anybody was recorded, from the first apply on."""


@dataclass(frozen=True, slots=True)
class Applying:
    """What apply needs to know of a kind. Made once."""

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
        """The configuration, if it is one of this kind."""
        if not isinstance(body, dict | None):
            raise BadRequest("error decoding patch: the body must be an object with apiVersion, kind and metadata")
        config: Object = body or {}
        kind = self.kind
        if (config.get("apiVersion"), config.get("kind")) != (kind.api_version, kind.name):
            sent = _type_text(config)
            expected = _type_text({"apiVersion": kind.api_version, "kind": kind.name})
            raise BadRequest(f"invalid object type: {sent}; expected {expected}")
        sent_meta = config.get("metadata")
        where = sent_meta if isinstance(sent_meta, dict) else {}
        if where.get("managedFields") is not None:
            raise BadRequest("metadata.managedFields must be nil")
        wrong = "" if self.fits(config) else faults(config, self.schema)
        if wrong:
            sent = _type_text(config)
            name = f"{where.get('namespace') or ''}/{where.get('name') or ''}"
            raise BadRequest(f"failed to create typed patch object ({name}; {sent}): {wrong}")
        return config

    def created(self, config: Object, writer: Writer) -> Object:
        """A new object that is what the configuration says."""
        obj = copied(config)
        uid = metadata(obj).pop("uid", None)
        if uid:
            why = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            raise Conflict.of(self.kind.plural, self.kind.group, metadata(obj).get("name") or "", why)
        metadata(obj).pop("resourceVersion", None)
        claimed = applied_fields(config, self.shapes.written[writer.subresource])
        metadata(obj)["managedFields"] = [writer.entry(claimed)] if claimed else []
        return obj

    def applied(self, live: Object, config: Object, writer: Writer, *, force: bool) -> Object:
        """The object with the configuration applied. Raises if others own what would change."""
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
        if writer.manager == apply.KUBECTL:
            apply.renew(new, config)
        kept = released(others, taken, removed)
        if claimed:
            kept.append(mine if mine is not None and mine["fieldsV1"] == claimed else writer.entry(claimed))
        metadata(new)["managedFields"] = kept
        return new

    def _refuse_conflicts(self, live: Object, contested: Contested, writer: Writer) -> None:
        if contested and writer.manager == apply.KUBECTL:
            free = apply.unchanged_since(live, self.shapes.whole, self.schema)
            contested = [(entry, left) for entry, fields in contested if (left := difference(fields, free))]
        if contested:
            raise conflict(contested)


def _type_text(obj: Object) -> str:
    """Group, version and kind as Kubernetes writes them in messages."""
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
    """The object without what was applied last and is managed by nobody now.

    Removing a field removes all that is below it, so it takes three steps: away with what was applied last; back with
    all that is managed; and of the rest only that goes which was applied, itself or the structure around it.
    """
    last, managed = with_parents(last, shape), with_parents(managed, shape)
    everything = _present(obj, shape)
    dropped = difference(everything, union(_present(without(obj, last, shape), shape), managed))
    gone = difference(everything, _present(without(obj, dropped, shape), shape))
    return without(obj, intersection(gone, last), shape)


def _present(obj: Object, shape: Shape) -> FieldSet:
    return with_parents(applied_fields(obj, shape), shape)


# DOC-MERGED registry/patching/lastapplied
# From `kubectl apply` to `kubectl apply --server-side` on the same object, without conflicts with oneself.
#
# The older way keeps what was applied in an annotation, and its fields belong to an entry for updates. Whoever goes on as
# the manager `kubectl` may take those over, as long as nobody has changed them since. While the annotation is there it
# follows what is applied, so that the older way keeps working, too.


KUBECTL = "kubectl"
"""The manager that this is done for. Under any other name, applying is just applying."""


def unchanged_since(live: Object, shape: Shape, schema: Schema) -> FieldSet:
    """The fields that were applied the older way and still are as they were applied."""
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
    """Keeps the annotation in step, if the object has it. One that has become too large goes."""
    annotations = metadata(obj).get("annotations") or {}
    if not annotations.get(LAST_APPLIED):
        return
    meta = {name: value for name, value in metadata(config).items() if name != "annotations"}
    noted = metadata(config).get("annotations") or {}
    meta["annotations"] = {name: value for name, value in noted.items() if name != LAST_APPLIED}
    annotations[LAST_APPLIED] = _as_kubectl_writes({**config, "metadata": meta})
    if sum(len(name.encode()) + len((value or "").encode()) for name, value in annotations.items()) > ANNOTATIONS_LIMIT:
        del annotations[LAST_APPLIED]


_ESCAPED = str.maketrans({char: f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"})


def _as_kubectl_writes(config: Object) -> str:
    return orjson.dumps(config, option=orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE).decode().translate(_ESCAPED)
