"""PUT: replaces an object, and for some kinds creates it if there is none.

`server/api/verbs.py` calls this. As in Kubernetes, a body that cannot be decoded is rejected even if the object does
not exist.
"""

from collections.abc import Sequence
from typing import Any

from fairlead.core.errors import AlreadyExists, BadRequest, Conflict, Invalid, NotFound, quote_value
from fairlead.core.objects import deep_copy, metadata
from fairlead.registry import request_body, write_rules
from fairlead.registry.request_body import BodyContext
from fairlead.registry.resource import MAX_ATTEMPTS, Resource
from fairlead.registry.write_options import WriteOptions


async def replace_object(
    resource: Resource, body: Any, key: tuple[str, str], options: WriteOptions, duplicates: Sequence[str]
) -> tuple[bytes, bool]:
    """Replaces the object with this namespace and name. Returns the response body, and whether it was created."""
    kind, (namespace, name) = resource.kind, key
    for _ in range(MAX_ATTEMPTS):
        try:
            return await resource.modify(namespace, name, lambda old: _copy(body), options, duplicates), False
        except NotFound:
            if resource.get_cached(namespace, name) is not None:
                raise
            _check_decodable(resource, body, key, options, duplicates)
            if not kind.allows_create_on_update or options.subresource:
                raise
        new = _copy(body)
        uid = metadata(new).get("uid")
        if uid:
            reason = f"Precondition failed: UID in precondition: {uid}, and no existing object was found"
            raise Conflict.of(kind.plural, kind.group, name, reason)
        version = metadata(new).pop("resourceVersion", None)
        if version and not version.isdecimal():
            raise BadRequest(f"metadata.resourceVersion: {quote_value(version)} is not a version")
        options.authorize_create()
        try:
            return await resource.create(new, namespace, options, duplicates), True
        except AlreadyExists:
            if resource.get_cached(namespace, name) is None:
                raise
    raise Conflict.of(kind.plural, kind.group, name, write_rules.MODIFIED_MESSAGE)


def _copy(body: Any) -> Any:
    """A copy for each attempt, as the registry modifies its argument."""
    return deep_copy(body) if isinstance(body, dict) else body


def _check_decodable(
    resource: Resource, body: Any, key: tuple[str, str], options: WriteOptions, duplicates: Sequence[str]
) -> None:
    """Raises BadRequest if the body is not an object of the kind, with the name in the URL."""
    kind, new = resource.kind, _copy(body)
    try:
        request_body.check_type_meta(new, kind)
        request_body.prune_and_validate(new, kind, resource.validator, options, BodyContext(duplicates))
    except Invalid:
        return  # the object would have been decoded, and then rejected
    request_body.check_name_and_namespace(new, kind, *key)
