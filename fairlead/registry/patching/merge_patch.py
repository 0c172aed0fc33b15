"""JSON merge patch, RFC 7386: an object of what should be different, where null means that a field should go.

`server/api/verbs.py` decodes the body; the registry applies the patch to the current object, again after every lost race,
so the result shares nothing with either argument and may be changed at will.
"""

from typing import Any

import orjson

from fairlead.core.errors import BadRequest
from fairlead.core.objects import Object, copied


def apply(document: Object, patch: Any) -> Object:
    """The document with the patch merged in, as a new value."""
    if not isinstance(patch, dict):
        what = "null" if patch is None else "a list" if isinstance(patch, list) else "a single value"
        raise BadRequest(
            f"error decoding patch: the body is {what}; send a JSON object with the fields to change, "
            "and null for those to remove"
        )
    try:
        changes = copied(patch)
    except orjson.JSONEncodeError as error:
        raise BadRequest(f"error decoding patch: {error}; send a patch with fewer levels") from error
    return _merged(copied(document), changes)


def _merged(target: Any, patch: Object) -> Object:
    """Changes and returns the target. What is not an object gives way, so nulls in new objects vanish as well."""
    result: Object = target if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict):
            result[name] = _merged(result.get(name), value)
        else:
            result[name] = value
    return result
