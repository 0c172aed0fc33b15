"""Deletion with finalizers: marks an object with deletionTimestamp, and tells when it can be removed."""

from fairlead.core.errors import Conflict
from fairlead.core.objects import Object, copied, dig, metadata
from fairlead.registry.kind import Change, Kind
from fairlead.registry.write_options import Deleting

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"
_POLICY_FINALIZER = {"Foreground": FOREGROUND, "Orphan": ORPHAN}


def held(obj: Object, kind: Kind) -> bool:
    """Whether the object has finalizers left, which block its removal."""
    return any(dig(obj, path) for path in kind.held_by)


def finished(obj: Object, kind: Kind) -> bool:
    """Whether the object is marked as deleted and has no finalizers left."""
    return "deletionTimestamp" in metadata(obj) and not held(obj, kind)


def is_ending(change: Change) -> bool:
    """Whether the change removes the object from the store."""
    if change.verb == "update":
        return finished(change.obj, change.kind)
    return change.verb == "delete" and not held(change.obj, change.kind)


def marked(old: Object, kind: Kind, deleting: Deleting, now: str) -> Object | None:
    """The object marked as deleted, or None if it can be removed at once."""
    new = copied(old)
    meta = metadata(new)
    finalizers = [each for each in meta.get("finalizers") or () if each not in _obsolete(deleting.propagation)]
    wanted = _POLICY_FINALIZER.get(deleting.propagation)
    if wanted and wanted not in finalizers:
        finalizers.append(wanted)
    if finalizers:
        meta["finalizers"] = finalizers
    else:
        meta.pop("finalizers", None)
    if not held(new, kind):
        return None
    if "deletionTimestamp" not in meta:
        meta["deletionTimestamp"] = now
        meta["deletionGracePeriodSeconds"] = 0
        if "generation" in meta:
            meta["generation"] += 1
        if kind.deleting is not None:
            kind.deleting(new)
    return new


def _obsolete(propagation: str) -> frozenset[str]:
    """The finalizers of an earlier delete that an explicit propagation policy replaces."""
    return frozenset({FOREGROUND, ORPHAN}) if propagation else frozenset()


def check_preconditions(old: Object, kind: Kind, deleting: Deleting) -> None:
    meta = metadata(old)
    if deleting.uid and deleting.uid != meta["uid"]:
        reason = (
            f"the UID in the precondition ({deleting.uid}) does not match the UID in record ({meta['uid']}). "
            "The object might have been deleted and then recreated"
        )
        raise Conflict.of(kind.name, kind.group, meta["name"], reason)
    if deleting.resource_version and deleting.resource_version != meta["resourceVersion"]:
        reason = (
            f"the ResourceVersion in the precondition ({deleting.resource_version}) does not match the ResourceVersion "
            f"in record ({meta['resourceVersion']}). The object might have been modified"
        )
        raise Conflict.of(kind.name, kind.group, meta["name"], reason)
