"""What a delete does to an object that something still holds: marks it, and lets it go when nothing does."""

from fairlead.core.errors import Conflict
from fairlead.core.objects import Object, copied, dig, metadata
from fairlead.registry.kind import Change, Kind
from fairlead.registry.write_options import Deleting

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"
_POLICY_FINALIZER = {"Foreground": FOREGROUND, "Orphan": ORPHAN}


def held(obj: Object, kind: Kind) -> bool:
    """Whether something has still to be cleaned up before the object may go."""
    return any(dig(obj, path) for path in kind.held_by)


def finished(obj: Object, kind: Kind) -> bool:
    """Whether deletion was asked for and nothing stands in its way any more."""
    return "deletionTimestamp" in metadata(obj) and not held(obj, kind)


def is_ending(change: Change) -> bool:
    """Whether the object is gone when the change is done."""
    if change.verb == "update":
        return finished(change.obj, change.kind)
    return change.verb == "delete" and not held(change.obj, change.kind)


def marked(old: Object, kind: Kind, deleting: Deleting, now: str) -> Object | None:
    """The object with its deletion under way, or None if it can go at once."""
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
    """An explicit policy replaces the one that an earlier delete asked for."""
    return frozenset({FOREGROUND, ORPHAN}) if propagation else frozenset()


def check_preconditions(old: Object, kind: Kind, deleting: Deleting) -> None:
    meta = metadata(old)
    if deleting.uid and deleting.uid != meta["uid"]:
        why = (
            f"the UID in the precondition ({deleting.uid}) does not match the UID in record ({meta['uid']}). "
            "The object might have been deleted and then recreated"
        )
        raise Conflict.of(kind.name, kind.group, meta["name"], why)
    if deleting.resource_version and deleting.resource_version != meta["resourceVersion"]:
        why = (
            f"the ResourceVersion in the precondition ({deleting.resource_version}) does not match the ResourceVersion "
            f"in record ({meta['resourceVersion']}). The object might have been modified"
        )
        raise Conflict.of(kind.name, kind.group, meta["name"], why)
