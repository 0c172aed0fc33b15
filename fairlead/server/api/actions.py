"""Actions: virtual kinds that are not persisted (such as reviews), and subresources with custom behaviour.

`verbs.py` passes on every call that a kind declares as an action: the kind is not persisted, or the subresource is one
of `Kind.actions`. This module reads, validates and prunes the body as for a create, and renders the result. The result
comes from a handler, which `app` registers for each path.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import orjson

from fairlead.core.call import Call, Reply, RequestInfo
from fairlead.core.concurrency import LARGE_YAML_BYTES, compute
from fairlead.core.errors import MAX_PROBLEMS, Invalid, MethodNotAllowed, NotFound, Unauthorized
from fairlead.core.objects import Object
from fairlead.core.user import User
from fairlead.registry import no_effect, object_metadata, request_body
from fairlead.registry.kind import Catalog, Change, Kind
from fairlead.registry.validate import Validator, build_validator
from fairlead.registry.write_options import WriteOptions
from fairlead.server.api import query_options
from fairlead.server.api.content import negotiate, read_object, render, wants_pretty

_COLLECTION_VERBS = ("create", "deletecollection", "list", "watch")
_READ_VERBS = ("get", "list", "watch")

ActionPath = tuple[str, str, str]
"""Group, plural and subresource. The subresource is empty for a virtual kind."""


@dataclass(frozen=True, slots=True)
class ActionRequest:
    """A request for an action. `kind` is the kind of `body`, and of the response.

    The body is validated, and has no unknown fields and no status. It is empty for a read. `namespace` and `name` are
    those of the path.
    """

    user: User
    kind: Kind
    verb: str
    namespace: str
    name: str
    body: Object
    dry_run: bool
    call: Call

    def build_response(self, **fields: Any) -> Object:
        """An object of the kind of the response. It has no name, because it is not stored."""
        return self.kind.build({"creationTimestamp": None}, **fields)


ActionHandler = Callable[[ActionRequest], Awaitable[Object | bytes | Reply]]
"""Returns an object, encoded JSON, or a Reply if it needs more control. Raises NotFound if the object in the path does
not exist."""


@dataclass(frozen=True, slots=True)
class _ActionRoute:
    """One action: its verbs, kind and handler."""

    verbs: tuple[str, ...]
    kind: Kind
    handler: ActionHandler


class Actions:
    """All actions. Raises ValueError unless declared actions and handlers match exactly."""

    def __init__(self, catalog: Catalog, handlers: Mapping[ActionPath, ActionHandler]) -> None:
        declared = {path: action for kind in catalog.kinds for path, action in _declared_actions(kind)}
        unmatched = sorted("/".join(filter(None, path)) for path in declared.keys() ^ handlers.keys())
        if unmatched:
            raise ValueError(f"actions without a handler, or handlers without an action: {', '.join(unmatched)}")
        self._routes = {path: _ActionRoute(verbs, kind, handlers[path]) for path, (verbs, kind) in declared.items()}

    async def __call__(self, call: Call, kind: Kind) -> Reply:
        target = call.target
        route = self._routes.get((kind.group, kind.plural, target.subresource))
        if route is None or not _is_valid_path(kind, target):
            raise NotFound("the server could not find the requested resource")
        if target.verb not in route.verbs:
            raise MethodNotAllowed("the server does not allow this method on the requested resource")
        return await _build_reply(call, await route.handler(await _build_request(call, route)))


def is_action(kind: Kind, target: RequestInfo) -> bool:
    """Whether a call is handled by `Actions` instead of the verbs."""
    return not kind.persisted or any(action.name == target.subresource for action in kind.actions)


def object_verbs(catalog: Catalog) -> dict[ActionPath, str]:
    """The actions that require a verb on their object instead of one on the subresource, with that verb."""
    return {
        (kind.group, kind.plural, action.name): action.object_verb
        for kind in catalog.kinds
        for action in kind.actions
        if action.object_verb
    }


def _declared_actions(kind: Kind) -> Iterator[tuple[ActionPath, tuple[tuple[str, ...], Kind]]]:
    """The actions of a kind: path, verbs, and the kind of request and response bodies."""
    if not kind.persisted:
        yield (kind.group, kind.plural, ""), (kind.verbs, kind)
    for action in kind.actions:
        yield (kind.group, kind.plural, action.name), (action.verbs, action.kind or kind)


def _is_valid_path(kind: Kind, target: RequestInfo) -> bool:
    """Whether the path fits: an action subresource needs a name. A virtual kind has none, unless it can be read."""
    has_name = bool(target.subresource) or ("get" in kind.verbs and target.verb not in _COLLECTION_VERBS)
    return bool(target.name) == has_name and bool(target.namespace) == kind.namespaced


async def _build_request(call: Call, route: _ActionRoute) -> ActionRequest:
    user, target, kind = call.user, call.target, route.kind
    if user is None:
        raise Unauthorized
    if target.verb in _READ_VERBS:
        return ActionRequest(
            user=user,
            kind=kind,
            verb=target.verb,
            namespace=target.namespace,
            name=target.name,
            body={},
            dry_run=False,
            call=call,
        )
    options = query_options.write_options(call, user)
    body = await _read_body(call, kind, kind.derive(build_validator), options)
    return ActionRequest(
        user=user,
        kind=kind,
        verb=target.verb,
        namespace=target.namespace,
        name=target.name,
        body=body,
        dry_run=options.dry_run,
        call=call,
    )


async def _read_body(call: Call, kind: Kind, validator: Validator, options: WriteOptions) -> Object:
    """The validated body. It is optional for subresources."""
    target = call.target
    sent, duplicates = await read_object(call, kind.name, optional=bool(target.subresource))
    if sent is None and target.subresource:
        sent = {"apiVersion": kind.api_version, "kind": kind.name}
    return await compute(call.body_size, _validate_body, sent, call.target, kind, validator, options, duplicates)


def _validate_body(
    body: Any, target: RequestInfo, kind: Kind, validator: Validator, options: WriteOptions, duplicates: Sequence[str]
) -> Object:
    obj = request_body.check_type_meta(body, kind)
    problems = request_body.prune_and_validate(obj, kind, validator, options, request_body.BodyContext(duplicates))
    obj.pop("status", None)
    request_body.check_name_and_namespace(obj, kind, target.namespace)
    object_metadata.drop_empty(obj["metadata"])
    change = Change("create", kind, options.user, None, obj, target.subresource, options.dry_run)
    if not problems:
        kind.default(change)
        problems = list(islice(kind.check(change), 10 * MAX_PROBLEMS))
        no_effect.add_warnings(change, kind.derive(no_effect.find_ineffective_fields))
    options.add_warnings(change.warnings)
    if problems:
        # kube-apiserver omits the kind for its built-in kinds, so match that.
        raise Invalid.of("" if kind.builtin else kind.name, kind.group, target.name, problems)
    return obj


async def _build_reply(call: Call, answer: Object | bytes | Reply) -> Reply:
    """Renders a result. There is no Table of it, so the whole object is sent even if a Table was requested."""
    if isinstance(answer, Reply):
        return answer
    media_type = negotiate(call.headers.get("accept", "")).media_type
    body = answer if isinstance(answer, bytes) else orjson.dumps(answer)
    status = 201 if call.target.verb == "create" else 200
    is_pretty = wants_pretty(call)
    body = await compute(len(body), render, body, media_type, is_pretty, inline_size=LARGE_YAML_BYTES)
    return Reply(status, body, media_type)
