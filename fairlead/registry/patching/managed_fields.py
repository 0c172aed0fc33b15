"""Maintains metadata.managedFields the way a kube-apiserver does.

`registry/resource.py` calls `record_update` as the last step of every create, update and patch, and `record_apply`
after an apply, for which `patching/apply.py` has computed the owners. An entry is identified by manager, operation, API
version and subresource. Setting a field takes it from all other managers; removing it removes it from every entry; an
entry without fields is removed.

As in Kubernetes: an object without entries stays untracked until it is applied, entries sent by a client replace the
stored ones, and invalid entries are ignored. `registry/object_metadata.py` has checked their types before.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from fairlead.core.clock import timestamp
from fairlead.core.errors import Problem
from fairlead.core.objects import Object, json_equal, metadata
from fairlead.registry.patching.field_set import FieldSet, difference, parse_field_set, union, union_all
from fairlead.registry.patching.field_walk import all_fields, compare_objects
from fairlead.registry.patching.merge_schema import MergeSchema

Entries = list[Object]

MAX_UPDATE_ENTRIES = 10
"""If there are more update entries, the oldest are merged, so that managedFields cannot outgrow the object."""
MAX_SENT_ENTRIES = 1_000
"""More entries in a body are treated as invalid: parsing them would cost more than the rest of the request."""
ANCIENT_MANAGER = "ancient-changes"
APPLY, UPDATE = "Apply", "Update"
MAX_MANAGER_BYTES = 128
SAFE_MANAGER_LENGTH = MAX_MANAGER_BYTES // 4
"""A name of this many characters is within the limit, which is in bytes."""
MAX_SUBRESOURCE_BYTES = 256
_NO_FIELDS: Mapping[str, Any] = {}


class FieldManager(Struct, frozen=True):
    """The entry that a write belongs to, and the time of the write."""

    name: str
    api_version: str
    now: str
    subresource: str = ""
    operation: str = UPDATE

    def build_entry(self, fields: FieldSet) -> Object:
        entry: Object = {
            "manager": self.name,
            "operation": self.operation,
            "apiVersion": self.api_version,
            "time": self.now,
            "fieldsType": "FieldsV1",
            "fieldsV1": fields,
        }
        if self.subresource:
            entry["subresource"] = self.subresource
        return entry

    def owns(self, entry: Object) -> bool:
        """Whether the entry is this manager's, by the rules of `_entry_identity`."""
        return (
            entry["operation"] == self.operation
            and entry.get("manager", "") == self.name
            and entry.get("subresource", "") == self.subresource
            and (self.operation == APPLY or entry["apiVersion"] == self.api_version)
        )


def record_update(
    old: Object | None,
    new: Object,
    schema: MergeSchema,
    manager: FieldManager,
    empty_fields: Mapping[str, Any] = _NO_FIELDS,
    *,
    is_custom: bool = False,
) -> None:
    """Sets the managedFields of `new` after a create (`old` is None), an update or a patch.

    `empty_fields` are fields that every object has even if empty: unless changed, no manager owns them.
    `is_custom`: as for custom resources, entries of another API version make the object untracked, and an empty list
    of entries counts as none. Otherwise only such entries are dropped, and an empty list clears all.

    If nothing changed, the entries are the very list of `old`, so that a comparison detects a write without effect.
    """
    meta = new["metadata"]
    sent = meta.pop("managedFields", None)
    if is_custom and sent == []:
        sent = None
    stored: Entries = [] if old is None else old["metadata"].get("managedFields") or []
    entries = stored if manager.subresource or sent is None or sent == stored else _choose_entries(sent, stored)
    removed: FieldSet = {}
    if is_custom and entries is not stored and len(filter_by_version(entries, manager)) < len(entries):
        return
    if old is None:
        changed = (
            compare_objects({"metadata": {}, **empty_fields}, new, schema)[0]
            if empty_fields
            else all_fields(new, schema)
        )
        if changed and not entries:
            meta["managedFields"] = [manager.build_entry(changed)]
            return
    elif entries:
        changed, removed = compare_objects(old, new, schema)
    else:
        return
    if changed or removed or entries is not stored:
        entries = sort_entries(transfer_fields(entries, changed, removed, manager))
    if entries:
        meta["managedFields"] = entries


def record_apply(new: Object) -> None:
    """Completes the entries that apply has put into `new`."""
    meta = metadata(new)
    entries: Entries = meta.pop("managedFields", None) or []
    if entries:
        meta["managedFields"] = sort_entries(entries)


def keep_unchanged_entries(old: Object | None, new: Object) -> None:
    """Restores the entries of `old` if nothing but their times has changed, so that the write has no effect."""
    if old is None or not json_equal(_without_managed_fields(old), _without_managed_fields(new)):
        return
    before, after = (metadata(obj).get("managedFields") or [] for obj in (old, new))
    if before and [{**each, "time": ""} for each in before] == [{**each, "time": ""} for each in after]:
        metadata(new)["managedFields"] = before


def _without_managed_fields(obj: Object) -> Object:
    remaining = dict(metadata(obj))
    remaining.pop("managedFields", None)
    return {**obj, "metadata": remaining}


def transfer_fields(entries: Entries, changed: FieldSet, removed: FieldSet, manager: FieldManager) -> Entries:
    """The entries after a manager has set some fields and removed others.

    The time of an entry is that of its manager's last change; losing fields to other managers does not count.
    """
    entries = filter_by_version(entries, manager)
    mine = next(filter(manager.owns, entries), None)
    remaining = release_fields([entry for entry in entries if entry is not mine], changed, removed)
    fields = difference(mine["fieldsV1"], removed) if mine else {}
    if mine and fields and not changed and fields is mine["fieldsV1"]:
        remaining.append(mine)
    elif changed or fields:
        remaining.append(manager.build_entry(union(fields, changed)))
    return remaining


def filter_by_version(entries: Entries, manager: FieldManager) -> Entries:
    """The entries that use the field names of the manager's API version.

    A kind that is served in two groups may have entries of the other group. As in a kube-apiserver, the next write
    drops them, because their field names have no meaning here.
    """
    return [entry for entry in entries if entry["apiVersion"] == manager.api_version]


def release_fields(entries: Entries, changed: FieldSet, removed: FieldSet) -> Entries:
    """The entries without the fields that another manager has set or removed."""
    remaining: Entries = []
    for entry in entries:
        fields = entry["fieldsV1"]
        left = difference(difference(fields, removed), changed)
        if left:
            remaining.append(entry if left is fields else {**entry, "fieldsV1": left})
    return remaining


def sort_entries(entries: Entries) -> Entries:
    """The entries in Kubernetes' order: applies, then updates, oldest first."""
    return sorted(_merge_oldest_updates(entries), key=_sort_key) if len(entries) > 1 else entries


def _sort_key(entry: Object) -> tuple[str, ...]:
    manager, operation, _, subresource = _entry_identity(entry)
    return (operation, entry.get("time") or "", manager, entry["apiVersion"], subresource)


def _entry_identity(entry: Object) -> tuple[str, str, str, str]:
    """What identifies an entry. A manager has one apply entry, whichever API version it used."""
    version = "" if entry["operation"] == APPLY else entry["apiVersion"]
    return (entry.get("manager", ""), entry["operation"], version, entry.get("subresource", ""))


def _merge_oldest_updates(entries: Entries) -> Entries:
    """Merges the oldest update entries, per API version, until at most `MAX_UPDATE_ENTRIES` are left."""
    updates = [entry for entry in entries if entry["operation"] == UPDATE]
    excess = len(updates) - MAX_UPDATE_ENTRIES
    if excess <= 0:
        return entries
    remaining = {_entry_identity(entry): entry for entry in entries}
    oldest: dict[str, list[Object]] = {entry["apiVersion"]: [entry] for entry in updates if _is_ancient(entry)}
    for entry in sorted(updates, key=_sort_key):
        older = oldest.setdefault(entry["apiVersion"], [entry])
        if excess > 0 and older[0] is not entry and not _is_ancient(entry):
            older.append(entry)
            excess -= 1
    for together in oldest.values():
        if len(together) > 1:
            for entry in together:
                del remaining[_entry_identity(entry)]
            merged = _merge_entries(together)
            remaining[_entry_identity(merged)] = merged
    return list(remaining.values())


def _is_ancient(entry: Object) -> bool:
    return entry.get("manager") == ANCIENT_MANAGER and not entry.get("subresource")


def _merge_entries(entries: Entries) -> Object:
    latest = max(entry.get("time") or "" for entry in entries)
    fields = union_all(entry["fieldsV1"] for entry in entries)
    return FieldManager(ANCIENT_MANAGER, entries[0]["apiVersion"], latest).build_entry(fields)


def _choose_entries(sent: Any, stored: Entries) -> Entries:
    """The entries to start from. An empty list, or a list with one empty entry, clears managedFields."""
    if sent == [] or sent == [{}]:
        return []
    try:
        return _parse_entries(sent) or stored
    except (ValueError, OverflowError):  # OverflowError: a time that cannot be converted to UTC
        return stored


def _parse_entries(sent: Any) -> Entries:
    """Entries sent by a client, in stored form. Raises ValueError if one of them is invalid."""
    if len(sent or ()) > MAX_SENT_ENTRIES:
        raise ValueError(f"more than {MAX_SENT_ENTRIES} entries")
    found: dict[tuple[str, str, str, str], Object] = {}
    for entry in sent or ():
        if entry.get("operation") not in (APPLY, UPDATE) or not entry.get("apiVersion"):
            raise ValueError("an entry needs an operation, Apply or Update, and an apiVersion")
        if entry.get("fieldsType") != "FieldsV1":
            raise ValueError("fieldsType must be FieldsV1")
        known = {name: entry[name] for name in ("manager", "operation", "apiVersion", "subresource") if entry.get(name)}
        if entry.get("time"):
            known["time"] = timestamp(datetime.fromisoformat(entry["time"]).astimezone(UTC))
        known.update(fieldsType="FieldsV1", fieldsV1=parse_field_set(entry.get("fieldsV1") or {}))
        found[_entry_identity(known)] = known
    return list(found.values())


def managed_fields_problems(obj: Object) -> Iterator[Problem]:
    """Problems with entries sent by a client that are reported instead of ignored: names that are too long or
    unprintable."""
    for index, entry in enumerate(obj["metadata"].get("managedFields") or ()):
        name = entry.get("manager") or ""
        if len(name) <= SAFE_MANAGER_LENGTH and name.isprintable() and not entry.get("subresource"):
            continue
        path = f"metadata.managedFields[{index}]"
        if len(name.encode()) > MAX_MANAGER_BYTES:
            yield Problem.too_long(f"{path}.manager", MAX_MANAGER_BYTES)
        if not name.isprintable():
            yield Problem.invalid(f"{path}.manager", name, "should only contain printable characters")
        if len((entry.get("subresource") or "").encode()) > MAX_SUBRESOURCE_BYTES:
            yield Problem.too_long(f"{path}.subresource", MAX_SUBRESOURCE_BYTES)
