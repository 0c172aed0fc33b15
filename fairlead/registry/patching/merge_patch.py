"""JSON merge patch, RFC 7386: an object with the fields to change, where null removes a field.

`server/api/patch.py` decodes the body. The registry applies the patch to the current object, again after every lost
race, so the result is a new value that shares nothing with the arguments.
"""

from typing import Any

import orjson

from fairlead.core.errors import BadRequest
from fairlead.core.objects import Object, deep_copy


def apply(document: Object, patch: Any) -> Object:
    """The document with the patch merged in, as a new value."""
    if not isinstance(patch, dict):
        found = "null" if patch is None else "a list" if isinstance(patch, list) else "a single value"
        raise BadRequest(
            f"error decoding patch: the body is {found}; send a JSON object with the fields to change, "
            "and null for those to remove"
        )
    try:
        changes = deep_copy(patch)
    except orjson.JSONEncodeError as error:
        raise BadRequest(f"error decoding patch: {error}; send a patch with less nesting") from error
    return _merge(deep_copy(document), changes)


def _merge(target: Any, patch: Object) -> Object:
    """Changes and returns `target`. A target that is not an object is replaced, so nulls in new objects are dropped,
    too."""
    result: Object = target if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict):
            result[name] = _merge(result.get(name), value)
        else:
            result[name] = value
    return result
