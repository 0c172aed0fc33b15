"""metadata.managedFields: who wrote which field, kept the way a kube-apiserver keeps it.

`registry/resource.py` calls `record_update` last in every create, update and patch, when the object is as it will be
stored; after an apply it calls `record_apply`, as `patching/apply.py` has reckoned by then who owns what. An entry
belongs to a manager's name, an operation, an API version and a subresource. Whoever gives a field a value takes it from
everybody else; a field that goes leaves every entry; an entry without fields goes too.

What may look odd is Kubernetes' own: an object without any entry stays untracked until somebody applies it, entries
that a client sends replace the stored ones, and entries that make no sense are passed over as if they were not sent.
Their types are right by then: `registry/metadata.py` has looked at them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from fairlead.core.clock import timestamp
from fairlead.core.errors import Problem
from fairlead.core.objects import Object, identical, metadata
from fairlead.registry.patching.field_set import FieldSet, difference, parsed, union, union_of_all
from fairlead.registry.patching.field_walk import all_fields, changed
from fairlead.registry.patching.merge_schema import Shape

Entries = list[Object]

MAX_UPDATES = 10
"""Of more updaters than that the oldest are thrown together, so that the record cannot outgrow the object."""
MAX_SENT = 1_000
"""More entries than that in a body are nonsense, and would cost more than the rest of the request."""
ANCIENT = "ancient-changes"
APPLY, UPDATE = "Apply", "Update"
NAME_LIMIT = 128
SHORT_NAME = NAME_LIMIT // 4
"""Whatever its characters, a name of so many fits into the limit, which is of bytes."""
SUBRESOURCE_LIMIT = 256
_NOTHING: Mapping[str, Any] = {}


@dataclass(slots=True)
class Writer:
    """Whose entry a write goes to, and when it happened. Read only; a frozen one takes each write thrice as long."""

    manager: str
    api_version: str
    now: str
    subresource: str = ""
    operation: str = UPDATE

    def entry(self, fields: FieldSet) -> Object:
        made: Object = {
            "manager": self.manager,
            "operation": self.operation,
            "apiVersion": self.api_version,
            "time": self.now,
            "fieldsType": "FieldsV1",
            "fieldsV1": fields,
        }
        if self.subresource:
            made["subresource"] = self.subresource
        return made

    def owns(self, entry: Object) -> bool:
        """As `_identity` tells entries apart."""
        return (
            entry["operation"] == self.operation
            and entry.get("manager", "") == self.manager
            and entry.get("subresource", "") == self.subresource
            and (self.operation == APPLY or entry["apiVersion"] == self.api_version)
        )


def record_update(
    old: Object | None, new: Object, shape: Shape, writer: Writer, empty: Mapping[str, Any] = _NOTHING
) -> None:
    """Sets the managedFields of `new` after a create (`old` is None), an update or a patch.

    `empty` is what an object has with nothing in it: as it is, it belongs to nobody.

    When nothing changed they are the very list of `old`, so that a write without effect is recognised by comparing.
    """
    meta = metadata(new)
    sent = meta.pop("managedFields", None)
    stored: Entries = [] if old is None else metadata(old).get("managedFields") or []
    entries = stored if writer.subresource or sent is None or sent == stored else _sent_or_stored(sent, stored)
    removed: FieldSet = {}
    if old is None:
        taken = changed({"metadata": {}, **empty}, new, shape)[0] if empty else all_fields(new, shape)
        if taken and not entries:
            meta["managedFields"] = [writer.entry(taken)]
            return
    elif entries:
        taken, removed = changed(old, new, shape)
    else:
        return
    if taken or removed or entries is not stored:
        entries = arranged(moved(entries, taken, removed, writer))
    if entries:
        meta["managedFields"] = entries


def record_apply(old: Object | None, new: Object, writer: Writer) -> None:
    """Settles the entries that apply has put into `new`, where `old` is None if it was created.

    The time of the writer's entry is that of its last change, be it of the object or of what the writer claims. When
    nothing changed, the entries are those of `old`.
    """
    meta = metadata(new)
    entries: Entries = meta.pop("managedFields", None) or []
    if old is None or not identical(_unrecorded(old), _unrecorded(new)):
        entries = [{**entry, "time": writer.now} if writer.owns(entry) else entry for entry in entries]
    if entries:
        meta["managedFields"] = arranged(entries)


def _unrecorded(obj: Object) -> Object:
    kept = dict(metadata(obj))
    kept.pop("managedFields", None)
    return {**obj, "metadata": kept}


def moved(entries: Entries, taken: FieldSet, removed: FieldSet, writer: Writer) -> Entries:
    """The entries after the writer took fields, new ones or other managers', and removed some from the object.

    The time of an entry is that of its manager's last change; losing fields to others does not count.
    """
    entries = understood(entries, writer)
    mine = next(filter(writer.owns, entries), None)
    kept = released([entry for entry in entries if entry is not mine], taken, removed)
    fields = difference(mine["fieldsV1"], removed) if mine else {}
    if mine and fields and not taken and fields is mine["fieldsV1"]:
        kept.append(mine)
    elif taken or fields:
        kept.append(writer.entry(union(fields, taken)))
    return kept


def understood(entries: Entries, writer: Writer) -> Entries:
    """The entries whose fields have the names that the writer's version gives them.

    A kind that is served in two groups may have entries of the other one. As in a kube-apiserver they are dropped by
    the next write: the names of their fields mean nothing here.
    """
    return [entry for entry in entries if entry["apiVersion"] == writer.api_version]


def released(entries: Entries, taken: FieldSet, removed: FieldSet) -> Entries:
    """The entries without fields that somebody else took or removed."""
    kept: Entries = []
    for entry in entries:
        fields = entry["fieldsV1"]
        left = difference(difference(fields, removed), taken)
        if left:
            kept.append(entry if left is fields else {**entry, "fieldsV1": left})
    return kept


def arranged(entries: Entries) -> Entries:
    """The entries in Kubernetes' order: what was applied, then what was updated, each from the oldest on."""
    return sorted(_capped(entries), key=_order) if len(entries) > 1 else entries


def _order(entry: Object) -> tuple[str, ...]:
    manager, operation, _, subresource = _identity(entry)
    return (operation, entry.get("time") or "", manager, entry["apiVersion"], subresource)


def _identity(entry: Object) -> tuple[str, str, str, str]:
    """What tells entries apart. Who applies has one entry, whichever version it was applied in."""
    version = "" if entry["operation"] == APPLY else entry["apiVersion"]
    return (entry.get("manager", ""), entry["operation"], version, entry.get("subresource", ""))


def _capped(entries: Entries) -> Entries:
    """Throws the oldest updates together, those of one API version into one entry, until few enough are left."""
    updates = [entry for entry in entries if entry["operation"] == UPDATE]
    excess = len(updates) - MAX_UPDATES
    if excess <= 0:
        return entries
    kept = {_identity(entry): entry for entry in entries}
    oldest: dict[str, list[Object]] = {entry["apiVersion"]: [entry] for entry in updates if _is_ancient(entry)}
    for entry in sorted(updates, key=_order):
        older = oldest.setdefault(entry["apiVersion"], [entry])
        if excess > 0 and older[0] is not entry and not _is_ancient(entry):
            older.append(entry)
            excess -= 1
    for together in oldest.values():
        if len(together) > 1:
            for entry in together:
                del kept[_identity(entry)]
            joined = _thrown_together(together)
            kept[_identity(joined)] = joined
    return list(kept.values())


def _is_ancient(entry: Object) -> bool:
    return entry.get("manager") == ANCIENT and not entry.get("subresource")


def _thrown_together(entries: Entries) -> Object:
    when = max(entry.get("time") or "" for entry in entries)
    fields = union_of_all(entry["fieldsV1"] for entry in entries)
    return Writer(ANCIENT, entries[0]["apiVersion"], when).entry(fields)


def _sent_or_stored(sent: Any, stored: Entries) -> Entries:
    """The entries to go on from. An empty list, or one with nothing but an empty entry, wipes the record out."""
    if sent == [] or sent == [{}]:
        return []
    try:
        return _parsed(sent) or stored
    except (ValueError, OverflowError):  # the latter for a time that is none in UTC
        return stored


def _parsed(sent: Any) -> Entries:
    """Entries that a client sent, in the form that they are stored in. ValueError if one of them makes no sense."""
    if len(sent or ()) > MAX_SENT:
        raise ValueError("nobody has that many managers")
    found: dict[tuple[str, str, str, str], Object] = {}
    for entry in sent or ():
        if entry.get("operation") not in (APPLY, UPDATE) or not entry.get("apiVersion"):
            raise ValueError("an entry names an operation, Apply or Update, and an API version")
        if entry.get("fieldsType") != "FieldsV1":
            raise ValueError("FieldsV1 is the only type of fields")
        known = {name: entry[name] for name in ("manager", "operation", "apiVersion", "subresource") if entry.get(name)}
        if entry.get("time"):
            known["time"] = timestamp(datetime.fromisoformat(entry["time"]).astimezone(UTC))
        known.update(fieldsType="FieldsV1", fieldsV1=parsed(entry.get("fieldsV1") or {}))
        found[_identity(known)] = known
    return list(found.values())


def record_problems(obj: Object) -> Iterator[Problem]:
    """What is wrong with entries that a client sent, beyond what is passed over: names that are too long to keep."""
    for index, entry in enumerate(metadata(obj).get("managedFields") or ()):
        name = entry.get("manager") or ""
        if len(name) <= SHORT_NAME and name.isprintable() and not entry.get("subresource"):
            continue
        path = f"metadata.managedFields[{index}]"
        if len(name.encode()) > NAME_LIMIT:
            yield Problem.too_long(f"{path}.manager", NAME_LIMIT)
        if not name.isprintable():
            yield Problem.invalid(f"{path}.manager", name, "should only contain printable characters")
        if len((entry.get("subresource") or "").encode()) > SUBRESOURCE_LIMIT:
            yield Problem.too_long(f"{path}.subresource", SUBRESOURCE_LIMIT)
