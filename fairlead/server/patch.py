"""Patch bodies: the media type says which kind of patch it is, the body becomes an edit of the old object."""

from collections.abc import Callable, Sequence
from typing import Any

from fairlead.core.call import Call
from fairlead.core.errors import UnsupportedMediaType
from fairlead.core.objects import Object
from fairlead.registry.patching import jsonpatch, mergepatch
from fairlead.registry.resource import Edit
from fairlead.server.negotiate import media_type_of, parsed_json

_PATCHES: dict[str, Callable[[Object, Any], Any]] = {
    "application/json-patch+json": jsonpatch.apply,
    "application/merge-patch+json": mergepatch.apply,
}


async def read_patch(call: Call) -> tuple[Edit, Sequence[str]]:
    """The edit that a patch asks for, and the keys that its body holds twice."""
    patch = _PATCHES.get(media_type_of(call))
    if patch is None:
        raise UnsupportedMediaType(
            f"the body of the request was in an unknown format - accepted media types include: {', '.join(_PATCHES)}"
        )
    body, duplicates = parsed_json(await call.read_body())
    return lambda old: patch(old, body), duplicates
