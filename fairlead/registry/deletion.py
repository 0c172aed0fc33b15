"""Deletion with finalizers: marks an object with deletionTimestamp, and tells when it can be removed."""

from fairlead.core.errors import Conflict
from fairlead.core.objects import Object, deep_copy, get_path, metadata
from fairlead.registry.kind import Change, Kind
from fairlead.registry.write_options import DeleteOptions

FOREGROUND_FINALIZER = "foregroundDeletion"
ORPHAN_FINALIZER = "orphan"
_POLICY_FINALIZER = {"Foreground": FOREGROUND_FINALIZER, "Orphan": ORPHAN_FINALIZER}


def has_finalizers(obj: Object, kind: Kind) -> bool:
    """Whether the object has finalizers left, which block its removal."""
    return any(get_path(obj, path) for path in kind.finalizer_paths)


def is_deletion_complete(obj: Object, kind: Kind) -> bool:
    """Whether the object is marked as deleted and has no finalizers left."""
    return "deletionTimestamp" in metadata(obj) and not has_finalizers(obj, kind)


def is_removal(change: Change) -> bool:
    """Whether the change removes the object from the store."""
    if change.verb == "update":
        return is_deletion_complete(change.obj, change.kind)
    return change.verb == "delete" and not has_finalizers(change.obj, change.kind)


def mark_deleted(old: Object, kind: Kind, delete_options: DeleteOptions, now: str) -> Object | None:
    """The object marked as deleted, or None if it can be removed at once."""
    new = deep_copy(old)
    meta = metadata(new)
    finalizers = [
        each for each in meta.get("finalizers") or () if each not in _replaced_finalizers(delete_options.propagation)
    ]
    wanted = _POLICY_FINALIZER.get(delete_options.propagation)
    if wanted and wanted not in finalizers:
        finalizers.append(wanted)
    if finalizers:
        meta["finalizers"] = finalizers
    else:
        meta.pop("finalizers", None)
    if not has_finalizers(new, kind):
        return None
    if "deletionTimestamp" not in meta:
        meta["deletionTimestamp"] = now
        meta["deletionGracePeriodSeconds"] = 0
        if "generation" in meta:
            meta["generation"] += 1
        if kind.on_delete is not None:
            kind.on_delete(new)
    return new


def _replaced_finalizers(propagation: str) -> frozenset[str]:
    """The finalizers of an earlier delete that an explicit propagation policy replaces."""
    return frozenset({FOREGROUND_FINALIZER, ORPHAN_FINALIZER}) if propagation else frozenset()


def check_preconditions(old: Object, kind: Kind, delete_options: DeleteOptions) -> None:
    meta = metadata(old)
    if delete_options.uid and delete_options.uid != meta["uid"]:
        reason = (
            f"the UID in the precondition ({delete_options.uid}) does not match the UID in record ({meta['uid']}). "
            "The object might have been deleted and then recreated"
        )
        raise Conflict.of(kind.name, kind.group, meta["name"], reason)
    if delete_options.resource_version and delete_options.resource_version != meta["resourceVersion"]:
        reason = (
            f"the ResourceVersion in the precondition ({delete_options.resource_version}) does not match the "
            "ResourceVersion "
            f"in record ({meta['resourceVersion']}). The object might have been modified"
        )
        raise Conflict.of(kind.name, kind.group, meta["name"], reason)
