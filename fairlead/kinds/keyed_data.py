"""What ConfigMap and Secret have in common: maps of named pieces, a limit for all of them together, and freezing."""

import re
from collections.abc import Iterable, Iterator, Mapping

from fairlead.core.objects import Object
from fairlead.registry import limits
from fairlead.registry.kind import Change, Problem
from fairlead.registry.schema import Schema, boolean, string

SIZE_LIMIT = limits.DATA_BYTES
"""Bytes of all values together, decoded."""

# Null stands for an empty piece, so that a client may leave a value open.
TEXT: Schema = {**string(longest=limits.DATA), "nullable": True}
BYTES: Schema = {**string(format="byte", longest=limits.DATA), "nullable": True}

IMMUTABLE = boolean(
    "Freeze the data: only metadata can change from then on, and there is no way back but to delete the object. "
    "Defaults to false."
)

_KEY = "[-._a-zA-Z0-9]+"
_key = re.compile(_KEY, re.ASCII)
_KEY_LENGTH = 253


def key_faults(key: str) -> Iterator[str]:
    """Why a key is none: it must be able to be a file's name, and no way out of the file's folder."""
    if len(key) > _KEY_LENGTH:
        yield f"must be no more than {_KEY_LENGTH} bytes"
    if not _key.fullmatch(key):
        yield (
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or "
            f"'KEY_NAME',  or 'key-name', regex used for validation is '{_KEY}')"
        )
    elif key in (".", ".."):
        yield f"must not be '{key}'"
    elif key.startswith(".."):
        yield "must not start with '..'"


def key_problems(field: str, data: Mapping[str, str]) -> Iterable[Problem]:
    return (Problem.invalid(f"{field}[{key}]", key, fault) for key in data for fault in key_faults(key))


def frozen_problems(change: Change, *fields: str) -> Iterable[Problem]:
    """Changes of what an immutable object froze."""
    old, new = change.old, change.new
    if old is None or new is None or not old.get("immutable"):
        return
    why = "field is immutable when `immutable` is set"
    if not new.get("immutable"):
        yield Problem.forbidden("immutable", why)
    for field in fields:
        if (old.get(field) or {}) != (new.get(field) or {}):
            yield Problem.forbidden(field, why)


def decoded_size(text: str) -> int:
    """How many bytes a base64 text stands for."""
    return len(text) * 3 // 4 - text[-2:].count("=")


def pieces(obj: Object, field: str) -> dict[str, str]:
    """The map in `field`, null standing for an empty piece."""
    return {key: "" if value is None else value for key, value in (obj.get(field) or {}).items()}


def put(obj: Object, field: str, data: dict[str, str]) -> None:
    """Sets the map in `field`. Without entries it is left out."""
    if data:
        obj[field] = data
    else:
        obj.pop(field, None)
