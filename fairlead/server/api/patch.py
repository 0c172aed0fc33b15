"""Patch bodies: the media type selects the type of patch, and the body becomes a function that edits the old object.

The body of an apply patch is a configuration in YAML or JSON, which the registry merges by field ownership.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from fairlead.core import json, yaml
from fairlead.core.body_errors import Malformed, NumberTooLong
from fairlead.core.call import Call
from fairlead.core.concurrency import LARGE_JSON_BYTES, LARGE_YAML_BYTES, compute
from fairlead.core.errors import BadRequest, Invalid, Problem, UnsupportedMediaType
from fairlead.core.objects import Object
from fairlead.registry.patching import json_patch
from fairlead.registry.patching.merge_patches import apply_merge_patch, apply_strategic_merge_patch
from fairlead.registry.patching.merge_schema import MergeSchema
from fairlead.registry.resource import Edit
from fairlead.server.api.content import media_type_of, parse_json, read_raw, too_many_values

_APPLY = "application/apply-patch+yaml"
_STRATEGIC = "application/strategic-merge-patch+json"
_JSON_PATCH = "application/json-patch+json"
_MERGE_PATCH = "application/merge-patch+json"
_PATCH_FUNCTIONS: dict[str, Callable[[Object, Any], Any]] = {
    _JSON_PATCH: json_patch.apply,
    _MERGE_PATCH: apply_merge_patch,
}
_PATCH_MEDIA_TYPES = (*_PATCH_FUNCTIONS, _STRATEGIC, _APPLY)


def is_apply_patch(call: Call) -> bool:
    """Whether this is a server-side apply. Raises UnsupportedMediaType if the body is not a patch."""
    media_type = media_type_of(call)
    if media_type not in _PATCH_MEDIA_TYPES:
        raise UnsupportedMediaType(
            "the body of the request was in an unknown format - accepted media types include: "
            f"{', '.join(_PATCH_MEDIA_TYPES)}"
        )
    return media_type == _APPLY


@dataclass(frozen=True, slots=True)
class _ParsedPatch:
    """A patch, and for a JSON patch, what its operations have."""

    body: Any
    duplicates: Sequence[str]
    has_copy_operation: bool = False
    unknown_fields: Sequence[str] = ()


def _parse_patch(raw: bytes) -> _ParsedPatch:
    return _ParsedPatch(*parse_json(raw))


def _parse_operations(raw: bytes) -> _ParsedPatch:
    body, duplicates = parse_json(raw)
    return _ParsedPatch(body, duplicates, json_patch.has_copy_operation(body), json_patch.unknown_fields(body))


async def read_patch(call: Call, merge_schema: MergeSchema) -> tuple[Edit, Sequence[str]]:
    """Returns the edit of a patch, and the duplicate keys of its body. `merge_schema` defines how lists merge."""
    media_type = media_type_of(call)
    raw = await read_raw(call)
    parse = _parse_operations if media_type == _JSON_PATCH else _parse_patch
    try:
        parsed = await compute(len(raw), parse, raw)
    except BadRequest as error:
        return _failing_edit(error), ()
    body, duplicates = parsed.body, parsed.duplicates
    if parsed.has_copy_operation:
        call.body_size += json_patch.MAX_COPIED_BYTES
    if media_type == _MERGE_PATCH and isinstance(body, list) and _ignores_mistakes(call):
        replacement: Any = body
        return lambda old: replacement, duplicates  # without strict decoding, a list replaces the object
    patch = _PATCH_FUNCTIONS.get(media_type) or partial(apply_strategic_merge_patch, schema=merge_schema)
    if parsed.unknown_fields and not _ignores_mistakes(call):
        return _checked_edit(call, body, parsed.unknown_fields), duplicates
    return lambda old: patch(old, body), duplicates


def _checked_edit(call: Call, body: Any, unknown: Sequence[str]) -> Edit:
    """The edit of a JSON patch with unknown fields: with `fieldValidation=Strict` an error, otherwise warnings. As in
    Kubernetes, operations that fail are reported first."""
    found = [f'json patch unknown field "{path}"' for path in unknown]

    def edit(old: Object) -> Object:
        result = json_patch.apply(old, body)
        if call.parameter("fieldValidation") == "Strict":
            problem = Problem("patch", "FieldValueInvalid", f"Invalid value: strict decoding error: {', '.join(found)}")
            raise Invalid.of("", "", "", [problem])
        call.warnings.extend(each for each in found if each not in call.warnings)
        return result

    return edit


def _ignores_mistakes(call: Call) -> bool:
    return call.parameter("fieldValidation") == "Ignore"


def _failing_edit(error: BadRequest) -> Edit:
    """The edit of a patch that cannot be decoded: as in Kubernetes, that there is no such object is reported first."""

    def edit(old: Object) -> Object:
        # Without its traceback: that has frames of this request which are still in use, and a worker thread clears the
        # frames of an exception that is raised in it.
        raise error.with_traceback(None)

    return edit


async def read_apply_configuration(call: Call) -> tuple[Any, Sequence[str]]:
    """Returns the configuration to apply, and its duplicate keys. Tries JSON first, which nearly all clients send."""
    body = await read_raw(call)
    call.body_size = size = yaml.expanded_size(body)
    inline_size = LARGE_JSON_BYTES if body.startswith(b"{") else LARGE_YAML_BYTES
    return await compute(size, _parse_configuration, body, inline_size=inline_size)


def _parse_configuration(body: bytes) -> tuple[Any, Sequence[str]]:
    if body.lstrip().startswith(b"{"):
        try:
            return json.parse_body(body)
        except json.TooManyValues as error:
            raise too_many_values(error) from None
        except NumberTooLong as error:  # in YAML it would be a string
            raise BadRequest(f"error decoding patch: {error}") from None
        except Malformed:
            pass  # YAML flow mappings start with a brace as well
    try:
        return yaml.decode(body)
    except Malformed as error:
        raise BadRequest(f"error decoding patch: error converting YAML to JSON: {error}") from None
