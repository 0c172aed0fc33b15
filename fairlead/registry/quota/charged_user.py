"""The annotation that says whom a stored object counts for, for the quotas of `enforcement.py`.

Only the server writes it: bodies cannot set, change or remove it, and no field manager owns it. `codec.encode` stores
it at a fixed position, where it is found without parsing the object.
"""

import re

import orjson

from fairlead.core.objects import Object
from fairlead.storage.view.entry import Entry

CHARGED_USER = "quota.service.sh/user"
"""The annotation with the user whom an object counts for."""

_MARKER = b'"annotations":{"' + CHARGED_USER.encode() + b'":"'
_MAX_MARKER_END = 2_048
"""Before it are apiVersion, kind and resourceVersion, which are short."""
_PREFIX = re.compile(
    rb'\{"apiVersion":"[^"]*","kind":"[^"]*","metadata":\{"resourceVersion":"[0-9]+",'
    + re.escape(_MARKER)
    + rb'((?:[^"\\]|\\.)*)"',
    re.DOTALL,
)


def charged_user(entry: Entry) -> str:
    """The user whom an object counts for; empty if it counts for none."""
    body = entry.full_body or entry.body
    if body.find(_MARKER, 0, _MAX_MARKER_END) < 0:
        return ""
    found = _PREFIX.match(body)
    if found is None:
        return ""
    name: str = found[1].decode() if b"\\" not in found[1] else orjson.loads(b'"%b"' % found[1])
    return name


def set_charged_user(meta: Object, user: str) -> None:
    """Sets or (empty) removes the annotation in the metadata of an object."""
    annotations = meta.get("annotations")
    if user:
        meta["annotations"] = {**(annotations or {}), CHARGED_USER: user}
    elif isinstance(annotations, dict) and CHARGED_USER in annotations:
        annotations = {key: value for key, value in annotations.items() if key != CHARGED_USER}
        if annotations:
            meta["annotations"] = annotations
        else:
            del meta["annotations"]


def preserve_charged_user(old: Object, new: Object) -> None:
    """Restores the annotation in new metadata as it was in the old."""
    before, after = ((each.get("annotations") or {}) for each in (old, new))
    if before.get(CHARGED_USER) != (after.get(CHARGED_USER) if isinstance(after, dict) else None):
        set_charged_user(new, before.get(CHARGED_USER) or "")
