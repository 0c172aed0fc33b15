"""What is asked instead of stored: kinds that are only answered (reviews), and paths below an object that do something.

`verbs.py` hands over every call that a kind declares as such (`Kind.stored` is False, or the path names one of
`Kind.actions`). Here the body is read, checked and cleaned as for a create, and the answer put into the form that was
asked for; what the answer says is the matter of a handler, which `app` names for each place.
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
"""Group, plural and the path below an object; the last is empty for a kind that is only answered."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One question. `kind` is what `body` is of, and what is to be answered with.

    The body is fit for use: of the right kind and shape, without unknown fields and without a status. It is empty for a
    `get`. `namespace` and `name` are those of the path.
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
"""Answers with an object, with finished JSON, or with a whole Reply where there is more to say than that. Raises
NotFound where the object in the path does not exist."""


@dataclass(frozen=True, slots=True)
class _Served:
    """What can be asked at one place: how, with what kind of object, and of whom."""

    verbs: tuple[str, ...]
    kind: Kind
    validator: Validator
    handler: Handler


class Actions:
    """Everything that is asked instead of stored, and who answers it. Nothing that a kind declares stays unanswered."""

    def __init__(self, catalog: Catalog, handlers: Mapping[Place, Handler]) -> None:
        declared = {place: action for kind in catalog.kinds for place, action in _declared(kind)}
        odd = sorted("/".join(filter(None, place)) for place in declared.keys() ^ handlers.keys())
        if odd:
            raise ValueError(f"declared by a kind or answered by a handler, but not both: {', '.join(odd)}")
        self._served = {
            place: _Served(verbs, kind, Validator(kind.schema()), handlers[place])
            for place, (verbs, kind) in declared.items()
        }

    async def __call__(self, call: Call, kind: Kind) -> Reply:
        target = call.target
        served = self._served.get((kind.group, kind.plural, target.subresource))
        if served is None or not _leads_there(kind, target):
            raise NotFound("the server could not find the requested resource")
        if target.verb not in served.verbs:
            raise MethodNotAllowed("the server does not allow this method on the requested resource")
        return await _reply(call, await served.handler(await _asked(call, served)))


def is_action(kind: Kind, target: Target) -> bool:
    """Whether a call is for `Actions` instead of the verbs."""
    return not kind.stored or any(action.name == target.subresource for action in kind.actions)


def _declared(kind: Kind) -> Iterator[tuple[Place, tuple[tuple[str, ...], Kind]]]:
    """The places of a kind: the verbs there, and what is taken and answered."""
    if not kind.stored:
        yield (kind.group, kind.plural, ""), (kind.verbs, kind)
    for action in kind.actions:
        yield (kind.group, kind.plural, action.name), (action.verbs, action.kind or kind)


def _leads_there(kind: Kind, target: Target) -> bool:
    """An action stands below an object's name, and what is not stored has no names."""
    return bool(target.name) == bool(target.subresource) and bool(target.namespace) == kind.namespaced


async def _asked(call: Call, served: _Served) -> Asked:
    user, target, kind = call.user, call.target, served.kind
    if user is None:
        raise Unauthorized
    if target.verb == "get":
        return Asked(user, kind, target.verb, target.namespace, target.name, {}, False, call)
    writing = query_options.writing(call, user)
    body = await _body(call, kind, served.validator, writing)
    return Asked(user, kind, target.verb, target.namespace, target.name, body, writing.dry_run, call)


async def _body(call: Call, kind: Kind, validator: Validator, writing: Writing) -> Object:
    """The body as a create would take it. What is asked of an object may go without one."""
    target = call.target
    sent, duplicates = await read_object(call, kind.name, optional=bool(target.subresource))
    if sent is None and target.subresource:
        sent = {"apiVersion": kind.api_version, "kind": kind.name}
    size, taking = call.body_size, (sent, call.target, kind, validator, writing, duplicates)
    return _taken(*taking) if size <= LARGE else await COMPUTE.run(size, _taken, *taking)


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
        # A kube-apiserver leaves its own kinds unnamed here, and clients see exactly that.
        raise Invalid.of("" if kind.builtin else kind.name, kind.group, target.name, problems)
    return obj


async def _reply(call: Call, answer: Object | bytes | Reply) -> Reply:
    """An answer has no rows and no columns, so it is the whole of it that comes, also where a Table would be liked."""
    if isinstance(answer, Reply):
        return answer
    media_type = chosen_form(call.headers.get("accept", "")).media_type
    body = answer if isinstance(answer, bytes) else orjson.dumps(answer)
    status = 201 if call.target.verb == "create" else 200
    size, rendering = len(body), (body, media_type, wants_pretty(call))
    body = rendered(*rendering) if size <= LARGE_YAML else await COMPUTE.run(size, rendered, *rendering)
    return Reply(status, body, media_type)
