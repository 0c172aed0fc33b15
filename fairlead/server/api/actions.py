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

from fairlead.core.call import Call, Reply, Target
from fairlead.core.concurrency import COMPUTE, LARGE, LARGE_YAML
from fairlead.core.errors import MAX_PROBLEMS, Invalid, MethodNotAllowed, NotFound, Unauthorized
from fairlead.core.objects import Object
from fairlead.core.user import User
from fairlead.registry import metadata, request_body
from fairlead.registry.catalog import Catalog
from fairlead.registry.kind import Change, Kind
from fairlead.registry.validate import Validator
from fairlead.registry.write_options import Writing
from fairlead.server.api import query_options
from fairlead.server.api.content import chosen_form, read_object, rendered, wants_pretty

Place = tuple[str, str, str]
"""Group, plural and subresource. The subresource is empty for a virtual kind."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request for an action. `kind` is the kind of `body`, and of the response.

    The body is validated, and has no unknown fields and no status. It is empty for a `get`. `namespace` and `name` are
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


Handler = Callable[[Asked], Awaitable[Object | bytes | Reply]]
"""Returns an object, encoded JSON, or a Reply if it needs more control. Raises NotFound if the object in the path does
not exist."""


@dataclass(frozen=True, slots=True)
class _Served:
    """One action: its verbs, kind and handler."""

    verbs: tuple[str, ...]
    kind: Kind
    validator: Validator
    handler: Handler


class Actions:
    """All actions. Raises ValueError unless declared actions and handlers match exactly."""

    def __init__(self, catalog: Catalog, handlers: Mapping[Place, Handler]) -> None:
        declared = {path: action for kind in catalog.kinds for path, action in _declared(kind)}
        unmatched = sorted("/".join(filter(None, path)) for path in declared.keys() ^ handlers.keys())
        if unmatched:
            raise ValueError(f"actions without a handler, or handlers without an action: {', '.join(unmatched)}")
        self._served = {
            path: _Served(verbs, kind, Validator(kind.schema()), handlers[path])
            for path, (verbs, kind) in declared.items()
        }

    async def __call__(self, call: Call, kind: Kind) -> Reply:
        target = call.target
        route = self._served.get((kind.group, kind.plural, target.subresource))
        if route is None or not _leads_there(kind, target):
            raise NotFound("the server could not find the requested resource")
        if target.verb not in route.verbs:
            raise MethodNotAllowed("the server does not allow this method on the requested resource")
        return await _reply(call, await route.handler(await _asked(call, route)))


def is_action(kind: Kind, target: Target) -> bool:
    """Whether a call is handled by `Actions` instead of the verbs."""
    return not kind.stored or any(action.name == target.subresource for action in kind.actions)


def _declared(kind: Kind) -> Iterator[tuple[Place, tuple[tuple[str, ...], Kind]]]:
    """The actions of a kind: path, verbs, and the kind of request and response bodies."""
    if not kind.stored:
        yield (kind.group, kind.plural, ""), (kind.verbs, kind)
    for action in kind.actions:
        yield (kind.group, kind.plural, action.name), (action.verbs, action.kind or kind)


def _leads_there(kind: Kind, target: Target) -> bool:
    """Whether the path fits: an action subresource needs a name, a virtual kind has none."""
    return bool(target.name) == bool(target.subresource) and bool(target.namespace) == kind.namespaced


async def _asked(call: Call, served: _Served) -> Asked:
    user, target, kind = call.user, call.target, served.kind
    if user is None:
        raise Unauthorized
    if target.verb == "get":
        return Asked(user, kind, target.verb, target.namespace, target.name, {}, False, call)
    options = query_options.writing(call, user)
    body = await _body(call, kind, served.validator, options)
    return Asked(user, kind, target.verb, target.namespace, target.name, body, options.dry_run, call)


async def _body(call: Call, kind: Kind, validator: Validator, writing: Writing) -> Object:
    """The validated body. It is optional for subresources."""
    target = call.target
    sent, duplicates = await read_object(call, kind.name, optional=bool(target.subresource))
    if sent is None and target.subresource:
        sent = {"apiVersion": kind.api_version, "kind": kind.name}
    size, arguments = call.body_size, (sent, call.target, kind, validator, writing, duplicates)
    return _taken(*arguments) if size <= LARGE else await COMPUTE.run(size, _taken, *arguments)


def _taken(
    sent: Any, target: Target, kind: Kind, validator: Validator, writing: Writing, duplicates: Sequence[str]
) -> Object:
    obj = request_body.as_object(sent, kind)
    problems = request_body.shape(obj, kind, validator, writing, request_body.Sent(duplicates))
    obj.pop("status", None)
    request_body.settle_place(obj, kind, target.namespace)
    metadata.tidy(obj["metadata"])
    change = Change("create", kind, writing.user, None, obj, target.subresource, writing.dry_run)
    if not problems:
        kind.prepare(change)
        problems = list(islice(kind.check(change), 10 * MAX_PROBLEMS))
    writing.tell(change.warnings)
    if problems:
        # kube-apiserver omits the kind for its built-in kinds, so match that.
        raise Invalid.of("" if kind.builtin else kind.name, kind.group, target.name, problems)
    return obj


async def _reply(call: Call, answer: Object | bytes | Reply) -> Reply:
    """Renders a result. There is no Table of it, so the whole object is sent even if a Table was requested."""
    if isinstance(answer, Reply):
        return answer
    media_type = chosen_form(call.headers.get("accept", "")).media_type
    body = answer if isinstance(answer, bytes) else orjson.dumps(answer)
    status = 201 if call.target.verb == "create" else 200
    size, arguments = len(body), (body, media_type, wants_pretty(call))
    body = rendered(*arguments) if size <= LARGE_YAML else await COMPUTE.run(size, rendered, *arguments)
    return Reply(status, body, media_type)
