"""The verbs on resources (get, list, watch, create, update, patch, delete, deletecollection), on top of the registry.

`Dispatcher` calls this for authorized requests. Whether a kind supports a verb is resolved once for each combination.

`extended=true` on get and list adds the requester's permissions on each object to its status: clients hide instances
that the user can see, but not use. These fields are computed for each requester, and never stored.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import orjson

from fairlead.core.call import MANAGEMENT, Authorize, Call, Decision, Reply, RequestInfo, RequestShape
from fairlead.core.concurrency import compute
from fairlead.core.errors import BadRequest, Details, MethodNotAllowed, NotAcceptable, NotFound, Unauthorized
from fairlead.core.objects import Object, metadata
from fairlead.core.user import User
from fairlead.registry.kind import Kind
from fairlead.registry.list import ListQuery, encode_list, list_entries, list_metadata, map_entries, wait_for_version
from fairlead.registry.registry import Registry
from fairlead.registry.resource import Resource, replace_object
from fairlead.registry.write_options import DeleteResult, ListPage
from fairlead.server.api import query_options
from fairlead.server.api.actions import Actions, is_action
from fairlead.server.api.content import (
    JSON,
    PLAIN_JSON,
    Representation,
    accepts_media_type,
    negotiate,
    read_object,
    render,
    wants_pretty,
)
from fairlead.server.api.patch import is_apply_patch, read_apply_configuration, read_patch
from fairlead.server.api.presentation import Presentation, render_list, render_object
from fairlead.server.api.routing import parse_bool_param, read_flag
from fairlead.server.api.watch import WatchRequest, WatchService

PERMISSION_VERBS = {"canUse": "use", "canUpdate": "update"}
"""Status fields for `extended=true`, and the verb that each one reports."""


def missing_authorizer(user: User, target: RequestInfo) -> Decision:
    """The default for servers without an authorizer."""
    raise RuntimeError("extended=true requires an authorizer")


def is_extended(call: Call, kind: Kind) -> bool:
    """Whether `extended=true` is set, and the status of the kind has the permission fields."""
    if not read_flag(call, "extended"):
        return False
    return all(field in kind.fields.get("status", {}).get("properties", {}) for field in PERMISSION_VERBS)


def extend_body(body: bytes, call: Call, user: User, authorize: Authorize) -> bytes:
    """Adds the permissions of the user to an encoded object."""
    obj: Object = orjson.loads(body)
    return orjson.dumps(add_permissions(obj, call.target, user, authorize))


def add_permissions(obj: Object, target: RequestInfo, user: User, authorize: Authorize) -> Object:
    meta = metadata(obj)
    status = obj.get("status") or {}
    item = replace(target, path="", subresource="", namespace=meta.get("namespace", ""), name=meta["name"])
    permissions = {field: authorize(user, replace(item, verb=verb)).allowed for field, verb in PERMISSION_VERBS.items()}
    return {**obj, "status": {**status, **permissions}}


VerbHandler = Callable[[Call, Resource, str], Awaitable[Reply]]

DELETES_PER_YIELD = 20
"""Deletes of a collection between two yields to the event loop."""
_NEEDS_NAME = frozenset({"update", "patch"})
_SUBRESOURCE_VERBS = {"finalize": ("update",)}
"""The verbs of subresources that do not have all of get, update and patch."""


class Verbs:
    """Implements the verbs. Each method gets the call, the resource, and the namespace (empty if cluster-scoped)."""

    def __init__(
        self, registry: Registry, watches: WatchService, actions: Actions, authorize: Authorize = missing_authorizer
    ) -> None:
        self._registry = registry
        self._watches = watches
        self._actions = actions
        self._authorize = authorize
        self._routes: dict[RequestShape, tuple[VerbHandler, Resource]] = {}
        self._verbs: dict[str, VerbHandler] = {
            "get": self._get,
            "list": self._list,
            "watch": self._watch,
            "create": self._create,
            "update": self._update,
            "patch": self._patch,
            "delete": self._delete,
            "deletecollection": self._delete_collection,
        }

    def __call__(self, call: Call) -> Awaitable[Reply]:
        target = call.target
        shape = target.cached_shape or target.compute_shape()
        route = self._routes.get(shape)
        if route is None:
            return self._resolve_route(call, shape)
        verb, resource = route
        if call.headers.get("accept") not in PLAIN_JSON:
            _check_representation(call, resource.kind)
        return verb(call, resource, target.namespace if resource.kind.namespaced else "")

    def is_plain_get(self, target: RequestInfo) -> bool:
        """Whether this is a GET of one stored object, by a route that has been resolved before."""
        return self._find_plain_get(target) is not None

    def read_stored(self, target: RequestInfo) -> bytes | None:
        """The stored object that answers a plain GET of an object. None if that is not known to be all, for example
        because the view is not current. Raises NotFound."""
        resource = self._find_plain_get(target)
        if resource is None:
            return None
        entry = resource.get_if_current(target.namespace if resource.kind.namespaced else "", target.name)
        return None if entry is None else entry.body

    def _find_plain_get(self, target: RequestInfo) -> Resource | None:
        route = self._routes.get(target.cached_shape or target.compute_shape())
        if route is None or route[0] is not self._verbs["get"] or target.subresource or target.root != MANAGEMENT:
            return None
        return route[1]

    def _resolve_route(self, call: Call, shape: RequestShape) -> Awaitable[Reply]:
        target = call.target
        kind = self._registry.catalog.find(target.group, target.version, target.resource)
        if kind is not None and (target.subresource or not kind.persisted) and is_action(kind, target):
            negotiate(call.headers.get("accept", ""))
            return self._actions(call, kind)
        if kind is None or not _matches_kind(kind, target):
            raise _not_found(kind, target)
        verb = self._verbs.get(target.verb)
        if verb is None or not _is_verb_supported(kind, target):
            raise _method_not_allowed(kind)
        if target.verb in _NEEDS_NAME and not target.name:
            raise _method_not_allowed(kind) if kind.builtin else BadRequest("name must be provided")
        _check_representation(call, kind)
        # Only valid routes are cached, without names, so the cache is bounded.
        self._routes[shape] = route = verb, self._registry.resource_for(kind)
        return verb(call, route[1], target.namespace if kind.namespaced else "")

    def _get(self, call: Call, resource: Resource, namespace: str) -> Awaitable[Reply]:
        if not call.query:
            entry = resource.get_if_current(namespace, call.target.name)
            if entry is not None:
                return self._object_reply(call, resource.kind, entry.body)
        return self._get_fresh(call, resource, namespace)

    async def _get_fresh(self, call: Call, resource: Resource, namespace: str) -> Reply:
        version = call.parameter("resourceVersion") if call.query else ""
        if call.query and "export" in call.query and parse_bool_param(call.parameter("export")):
            raise BadRequest("the export parameter, deprecated since v1.14, is no longer supported")
        if version:
            await wait_for_version(resource.view, query_options.parse_resource_version(version))
        entry = await resource.get(namespace, call.target.name)
        body = entry.body
        if call.query and is_extended(call, resource.kind):
            body = extend_body(body, call, _require_user(call), self._authorize)
        return await self._object_reply(call, resource.kind, body)

    async def _list(self, call: Call, resource: Resource, namespace: str) -> Reply:
        kind = resource.kind
        page = await list_entries(
            resource.view, kind, namespace, self._with_object_filter(call, query_options.list_query(call, kind))
        )
        if is_extended(call, kind):
            user = _require_user(call)
            page = replace(
                page,
                entries=await map_entries(
                    page.entries, lambda entry: entry.with_body(extend_body(entry.body, call, user, self._authorize))
                ),
            )
        return await self._list_reply(call, kind, page)

    async def _watch(self, call: Call, resource: Resource, namespace: str) -> Reply:
        representation = negotiate(call.headers.get("accept", ""))
        query = query_options.watch_query(call, resource.kind)
        request = WatchRequest(
            resource=resource,
            namespace=namespace,
            query=query,
            as_kind=representation.as_kind,
            object_filter=call.object_filter,
            recheck=call.recheck,
            hides_owners=call.hides_owners,
        )
        stream = await self._watches.open(request, _require_user(call))
        return Reply(200, stream=stream)

    def _with_object_filter(self, call: Call, query: ListQuery) -> ListQuery:
        return query if call.object_filter is None else replace(query, is_visible=call.object_filter.allows)

    async def _create(self, call: Call, resource: Resource, namespace: str) -> Reply:
        options = query_options.write_options(call, _require_user(call))
        body, duplicates = await read_object(call, resource.kind.name)
        options.size = call.body_size
        created = await resource.create(body, namespace, options, duplicates)
        return await self._object_reply(call, resource.kind, created, 201)

    async def _update(self, call: Call, resource: Resource, namespace: str) -> Reply:
        options = query_options.write_options(call, _require_user(call))
        body, duplicates = await read_object(call, resource.kind.name)
        options.size = call.body_size
        if resource.kind.allows_create_on_update:
            options.authorize_create = lambda: call.require(replace(call.target, verb="create"))
        updated, created = await replace_object(resource, body, (namespace, call.target.name), options, duplicates)
        return await self._object_reply(call, resource.kind, updated, 201 if created else 200)

    async def _patch(self, call: Call, resource: Resource, namespace: str) -> Reply:
        is_apply = is_apply_patch(call)
        options = query_options.write_options(call, _require_user(call), is_apply=is_apply)
        if is_apply:
            options.authorize_create = lambda: call.require(replace(call.target, verb="create"))
            config, duplicates = await read_apply_configuration(call)
            options.size = call.body_size
            applied, created = await resource.apply(config, namespace, call.target.name, options, duplicates)
            return await self._object_reply(call, resource.kind, applied, 201 if created else 200)
        edit, duplicates = await read_patch(call, resource.merge_schemas.whole)
        options.size = call.body_size
        patched = await resource.modify(namespace, call.target.name, edit, options, duplicates)
        return await self._object_reply(call, resource.kind, patched)

    async def _delete(self, call: Call, resource: Resource, namespace: str) -> Reply:
        delete_options, options = query_options.delete_options(call, await _read_delete_body(call), _require_user(call))
        deleted = await resource.delete(namespace, call.target.name, delete_options, options)
        if deleted.is_removed and not resource.kind.returns_deleted_object:
            representation = negotiate(call.headers.get("accept", ""))
            return _render_reply(
                call, 200, orjson.dumps(_success_status(resource.kind, deleted)), representation.media_type
            )
        is_pending = delete_options.is_cascading and not deleted.is_removed
        return await self._object_reply(call, resource.kind, deleted.body, 202 if is_pending else 200)

    async def _delete_collection(self, call: Call, resource: Resource, namespace: str) -> Reply:
        delete_options, options = query_options.delete_options(call, await _read_delete_body(call), _require_user(call))
        kind = resource.kind
        query = self._with_object_filter(call, query_options.list_query(call, kind))
        page = await list_entries(resource.view, kind, namespace, query)
        for count, entry in enumerate(page.entries):
            if count % DELETES_PER_YIELD == DELETES_PER_YIELD - 1:
                await asyncio.sleep(0)  # a dry run does not await the store, and so never yields
            with suppress(NotFound):
                await resource.delete(entry.key[2], entry.key[3], delete_options, options)
        return await self._list_reply(call, kind, page)

    def _object_reply(self, call: Call, kind: Kind, body: bytes, status: int = 200) -> Awaitable[Reply]:
        accept = call.headers.get("accept")
        is_pretty = wants_pretty(call)
        if accept in PLAIN_JSON and not is_pretty:
            return Reply(status, body)
        representation = negotiate(accept)
        if not representation.as_kind and representation.media_type == JSON and not is_pretty:
            return Reply(status, body)
        _check_shape(representation, kind, is_list=False)
        presentation = self._presentation(call, kind)
        return self._rendered_object_reply(body, presentation, status)

    async def _rendered_object_reply(self, body: bytes, presentation: Presentation, status: int) -> Reply:
        rendered = await compute(len(body), render_object, body, presentation, inline_size=presentation.inline_size)
        return Reply(status, rendered, presentation.representation.media_type)

    async def _list_reply(self, call: Call, kind: Kind, page: ListPage) -> Reply:
        presentation = self._presentation(call, kind)
        _check_shape(presentation.representation, kind, is_list=True)
        if presentation.is_raw_json:
            return Reply(200, await encode_list(kind, page), JSON)
        bodies = [entry.body for entry in page.entries]
        size = sum(map(len, bodies))
        metadata = list_metadata(page)
        inline_size = presentation.inline_size
        body = await compute(size, render_list, bodies, metadata, presentation, inline_size=inline_size)
        return Reply(200, body, presentation.representation.media_type)

    def _presentation(self, call: Call, kind: Kind) -> Presentation:
        representation = negotiate(call.headers.get("accept", ""))
        include = query_options.include_object(call) if representation.as_kind == "Table" else ""
        now = self._registry.clock.now()
        return Presentation(
            kind=kind,
            representation=representation,
            pretty=wants_pretty(call),
            include_object=include,
            now=now,
            hides_owners=call.hides_owners,
        )


def _check_representation(call: Call, kind: Kind) -> None:
    """Rejects an unsupported representation before the request has any effect."""
    verb = call.target.verb
    try:
        representation = negotiate(call.headers.get("accept", ""))
    except NotAcceptable:
        if verb == "list" and (not kind.builtin or accepts_media_type(call.headers.get("accept", ""))):
            query_options.check_list_options(call)  # as in Kubernetes, they are checked first
        raise
    if kind.builtin and not representation.by_name:
        raise NotAcceptable(f"name {JSON} or another supported media type, or accept any")
    if not representation.as_kind and verb != "watch":
        return
    if representation.as_kind == "Table":
        query_options.include_object(call)
    if verb not in ("get", "list", "watch"):
        _check_shape(representation, kind, is_list=verb == "deletecollection")
    if verb == "watch" and representation.media_type != JSON:
        raise NotAcceptable(f"a watch is only available as {JSON}")


def _check_shape(representation: Representation, kind: Kind, *, is_list: bool) -> None:
    """Rejects the metadata of an object if the response is a list, and vice versa. For reads, other errors precede
    this, as in Kubernetes."""
    if representation.as_kind == "PartialObjectMetadata" and is_list:
        raise NotAcceptable(
            "you requested PartialObjectMetadata, but this is a list; request PartialObjectMetadataList"
        )
    if representation.as_kind == "PartialObjectMetadataList" and not is_list:
        # Kubernetes fails with an internal error for custom resources.
        error = NotAcceptable if kind.builtin else BadRequest
        raise error("you requested PartialObjectMetadataList, but this is not a list")


def _not_found(kind: Kind | None, target: RequestInfo) -> NotFound:
    """For a path that is not served. An unknown subresource of a custom resource is reported with the object's name."""
    if kind is not None and not kind.builtin and target.subresource and target.name:
        return NotFound.of(kind.plural, kind.group, target.name)
    return NotFound("the server could not find the requested resource")


def _method_not_allowed(kind: Kind) -> MethodNotAllowed:
    """As in Kubernetes, the error names the resource only if it is not built in."""
    details = Details(kind=kind.plural, group=kind.group) if not kind.builtin else None
    return MethodNotAllowed("the server does not allow this method on the requested resource", details)


def _matches_kind(kind: Kind, target: RequestInfo) -> bool:
    """Whether the path matches the scope and the subresources of the kind."""
    if target.subresource and target.subresource not in kind.subresources:
        return False
    if kind.namespaced:
        return bool(target.namespace) or not target.name
    return not target.namespace or (kind.plural == "namespaces" and target.name == target.namespace)


def _is_verb_supported(kind: Kind, target: RequestInfo) -> bool:
    if target.subresource:
        return target.verb in _SUBRESOURCE_VERBS.get(target.subresource, ("get", "update", "patch"))
    if kind.namespaced and not target.namespace and target.verb not in ("list", "watch"):
        return False
    return target.verb in kind.verbs and not (target.verb == "create" and target.name)


def _require_user(call: Call) -> User:
    if call.user is None:
        raise Unauthorized
    return call.user


async def _read_delete_body(call: Call) -> Any:
    body, _ = await read_object(call, query_options.DELETE_OPTIONS, optional=True)
    return body


def _success_status(kind: Kind, deleted: DeleteResult) -> Object:
    details = {"name": deleted.name, "group": kind.group, "kind": kind.plural, "uid": deleted.uid}
    filled = {name: value for name, value in details.items() if value}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": filled}


def _render_reply(call: Call, status: int, body: bytes, media_type: str) -> Reply:
    pretty = wants_pretty(call)
    if pretty or media_type != JSON:
        body = render(body, media_type, pretty)
    return Reply(status, body, media_type)
