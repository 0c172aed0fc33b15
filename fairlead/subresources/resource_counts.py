"""The handler of ResourceCount: how many objects of each kind the requester may see.

The objects of a kind that the requester may list are counted without looking at them. A filtered list is counted by
filtering it, with yields to the event loop. Such a count is cached until an object of the kind or a permission changes,
at most for some seconds.
"""

from dataclasses import dataclass

import orjson

from fairlead.authz.authorizer import AuthorizerChain, ListFilter
from fairlead.core.bounded_cache import BoundedCache
from fairlead.core.call import MANAGEMENT, Call, Reply
from fairlead.core.concurrency import compute
from fairlead.core.errors import BadRequest
from fairlead.core.objects import Object
from fairlead.core.user import User
from fairlead.kinds.core.resource_count import RESOURCE_COUNT
from fairlead.registry.kind import Kind
from fairlead.registry.list import ListQuery, list_entries, wait_for_version
from fairlead.registry.registry import Registry
from fairlead.registry.selectors import parse_fields
from fairlead.server.api import query_options
from fairlead.server.api.actions import ActionHandler, ActionPath, ActionRequest
from fairlead.server.api.content import negotiate, wants_pretty
from fairlead.server.api.presentation import Presentation, render_list

NAMESPACE_FIELD = "metadata.namespace"
CACHE_SIZE = 4096
MAX_AGE_SECONDS = 5.0
"""How long a filtered count is used, if nothing that it is known to depend on has changed."""


@dataclass(frozen=True, slots=True)
class _CachedCount:
    """A count, and the state that it was computed from."""

    generation: object
    changed_at: int
    computed_at: float
    count: int


class ResourceCounter:
    """Counts objects for users."""

    def __init__(self, registry: Registry, authorizer: AuthorizerChain) -> None:
        self._registry = registry
        self._authorizer = authorizer
        kinds = registry.catalog.kinds
        # A kind with a conversion has the objects of another one.
        self._kinds = [kind for kind in kinds if kind.persisted and kind.conversion is None and "list" in kind.verbs]
        self._cache: BoundedCache[tuple[User, str, str, str], _CachedCount] = BoundedCache(CACHE_SIZE)

    def handlers(self, api_group: str) -> dict[ActionPath, ActionHandler]:
        return {(api_group, RESOURCE_COUNT.plural, ""): self.list_counts}

    async def list_counts(self, request: ActionRequest) -> Reply:
        namespace = _selected_namespace(request.call)
        view = self._registry.view
        await wait_for_version(view, None)
        bodies = [
            orjson.dumps(_build_object(request.kind, kind, count))
            for kind in self._kinds
            if (kind.namespaced or not namespace)
            and (count := await self._count(request.user, kind, namespace)) is not None
        ]
        return await _render(request, bodies, {"resourceVersion": str(view.revision)}, self._registry)

    async def _count(self, user: User, kind: Kind, namespace: str) -> tuple[int, bool] | None:
        """The number of objects, and whether it is that of a filtered list. None if the user may not list them."""
        target = kind.request("list", namespace, root=MANAGEMENT)
        if self._authorizer.authorize(user, target).allowed:
            return self._registry.view.count(*kind.stored_resource, namespace), False
        found = self._authorizer.filter_for(user, target)
        return None if found is None else (await self._count_visible(user, kind, namespace, found), True)

    async def _count_visible(self, user: User, kind: Kind, namespace: str, visible: ListFilter) -> int:
        view, now = self._registry.view, self._registry.clock.monotonic()
        generation = visible.generation()
        changed_at = view.changed_at(*kind.stored_resource)
        key = user, kind.group, kind.plural, namespace
        known = self._cache.get(key)
        if (
            known is not None
            and (known.generation, known.changed_at) == (generation, changed_at)
            and now - known.computed_at < MAX_AGE_SECONDS
        ):
            return known.count
        query = ListQuery(version=view.revision, is_visible=visible.allows)
        count = len((await list_entries(view, kind, namespace, query)).entries)
        self._cache[key] = _CachedCount(generation, changed_at, now, count)
        return count


def _selected_namespace(call: Call) -> str:
    """The namespace of the field selector; empty without one."""
    if not call.query:
        return ""
    _, labels = query_options.check_list_options(call)
    if labels:
        raise BadRequest("resourcecounts have no labels: leave out labelSelector")
    requirements = parse_fields(call.parameter("fieldSelector"), (NAMESPACE_FIELD,))
    names = {value for each in requirements for value in each.values}
    if len(requirements) > 1 or any(each.operator != "in" for each in requirements):
        raise BadRequest(f"resourcecounts support only one field selector: {NAMESPACE_FIELD}=NAME")
    return next(iter(names), "")


def _build_object(kind: Kind, counted: Kind, found: tuple[int, bool]) -> Object:
    count, is_filtered = found
    name = f"{counted.plural}.{counted.group}" if counted.group else counted.plural
    return kind.build(
        {"name": name},
        group=counted.group,
        resource=counted.plural,
        resourceKind=counted.name,
        namespaced=counted.namespaced,
        count=count,
        filtered=is_filtered,
    )


async def _render(request: ActionRequest, bodies: list[bytes], metadata: Object, registry: Registry) -> Reply:
    call = request.call
    representation = negotiate(call.headers.get("accept", ""))
    include = query_options.include_object(call) if representation.as_kind == "Table" else ""
    presentation = Presentation(request.kind, representation, wants_pretty(call), include, registry.clock.now())
    size = sum(map(len, bodies))
    inline_size = presentation.inline_size
    body = await compute(size, render_list, bodies, metadata, presentation, inline_size=inline_size)
    return Reply(200, body, representation.media_type)
