"""API objects as plain JSON values, and the few ways that everybody reaches into them."""

from typing import Any

import orjson

Object = dict[str, Any]
"""A whole API object, or a part of one: what JSON calls an object."""

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""The annotation in which `kubectl apply` keeps a copy of what it was given."""


def metadata(obj: Object) -> Object:
    """The object's metadata, made if it is missing."""
    found = obj.get("metadata")
    if not isinstance(found, dict):
        found = obj["metadata"] = {}
    return found


def name_of(obj: Object) -> str:
    return str(metadata(obj).get("name") or "")


def has_finalizer(obj: Object, name: str) -> bool:
    return name in (metadata(obj).get("finalizers") or ())


def add_finalizer(obj: Object, name: str) -> Object:
    """The object with the finalizer. One that is being deleted takes no new ones."""
    meta = metadata(obj)
    if has_finalizer(obj, name) or "deletionTimestamp" in meta:
        return obj
    return {**obj, "metadata": {**meta, "finalizers": [*(meta.get("finalizers") or ()), name]}}


def remove_finalizer(obj: Object, name: str) -> Object:
    meta = metadata(obj)
    if not has_finalizer(obj, name):
        return obj
    return {**obj, "metadata": {**meta, "finalizers": [each for each in meta["finalizers"] if each != name]}}


def dig(value: Any, path: str) -> Any:
    """What stands at a dotted path such as `status.phase`; None where any step is missing."""
    for step in path.split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(step)
    return value


def copied(obj: Object) -> Object:
    """A deep copy; through JSON, which is several times as fast as `copy.deepcopy`."""
    copy: Object = orjson.loads(orjson.dumps(obj))
    return copy


def identical(one: Object, other: Object) -> bool:
    """Equality as JSON has it. Python alone takes `true` for `1`, so a seeming match is looked at again as bytes."""
    if one != other:
        return False
    return orjson.dumps(one, option=orjson.OPT_SORT_KEYS) == orjson.dumps(other, option=orjson.OPT_SORT_KEYS)
