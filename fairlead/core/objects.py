"""API objects as plain JSON values, with helpers for metadata, finalizers and paths."""

from collections.abc import Mapping
from typing import Any

import orjson

Object = dict[str, Any]
"""An API object or a part of one: a JSON object."""

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""The annotation in which client-side `kubectl apply` stores the last applied manifest."""


def metadata(obj: Object) -> Object:
    """The object's metadata, created if it is missing."""
    found = obj.get("metadata")
    if not isinstance(found, dict):
        found = obj["metadata"] = {}
    return found


def name_of(obj: Object) -> str:
    return str(metadata(obj).get("name") or "")


def labels_of(obj: Any) -> Mapping[str, str]:
    """The labels of an object that may have none."""
    return _string_map(get_path(obj, "metadata.labels"))


def annotations_of(obj: Any) -> Mapping[str, str]:
    """The annotations of an object that may have none."""
    return _string_map(get_path(obj, "metadata.annotations"))


def _string_map(found: Any) -> Mapping[str, str]:
    """Those of an object of another server may have any type."""
    return found if isinstance(found, dict) else {}


def has_finalizer(obj: Object, name: str) -> bool:
    return name in (metadata(obj).get("finalizers") or ())


def add_finalizer(obj: Object, name: str) -> Object:
    """The object with the finalizer added. An object that is being deleted is returned unchanged."""
    meta = metadata(obj)
    if has_finalizer(obj, name) or "deletionTimestamp" in meta:
        return obj
    return {**obj, "metadata": {**meta, "finalizers": [*(meta.get("finalizers") or ()), name]}}


def remove_finalizer(obj: Object, name: str) -> Object:
    meta = metadata(obj)
    if not has_finalizer(obj, name):
        return obj
    return {**obj, "metadata": {**meta, "finalizers": [each for each in meta["finalizers"] if each != name]}}


def get_path(value: Any, path: str) -> Any:
    """The value at a dotted path such as `status.phase`; None if any step is missing."""
    for step in path.split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(step)
    return value


_MAX_PARSED_COPY = 64 * 1024


def deep_copy(obj: Object) -> Object:
    """A deep copy of a JSON object."""
    copy: Object = copy_json(obj)
    return copy


def copy_json(value: Any) -> Any:
    """A deep copy of a JSON object or list. Through JSON, several times faster than `copy.deepcopy`; if it is large, in
    Python, so that other threads can run meanwhile."""
    text = orjson.dumps(value)
    return orjson.loads(text) if len(text) <= _MAX_PARSED_COPY else _copy_large(value)


def _copy_large(value: Any) -> Any:
    """The recursion is as deep as the value, which orjson has just encoded: its limit is below that of Python."""
    if type(value) is not dict:
        return [_copy_large(each) if type(each) in _CONTAINERS else each for each in value]
    copy = value.copy()
    for key, each in copy.items():
        if type(each) in _CONTAINERS:
            copy[key] = _copy_large(each)
    return copy


_CONTAINERS = frozenset({dict, list})


def json_equal(one: Object, other: Object) -> bool:
    """JSON equality. Python treats `true` and `1` as equal, so a match is confirmed on the encoded bytes."""
    if one != other:
        return False
    return orjson.dumps(one, option=orjson.OPT_SORT_KEYS) == orjson.dumps(other, option=orjson.OPT_SORT_KEYS)


def format_scalar(value: Any) -> str:
    """A value as text, with booleans as in JSON and nothing for null."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
