"""The scope authorizer: denies requests outside of the scope of an access key, with a reason.

`app/auth.py` passes the result of `build_scope_checks` to the authorizer of the server. For a request through a
gateway, `inside_gateway` checks the gateway and the inner request.

Reasons are built from the scope and the request alone. Nothing is looked up, so a denial does not reveal whether an
object exists.
"""

import weakref
from collections.abc import Callable, Iterator, Sequence

from fairlead.authz.authorizer import Authorizer, ScopeChecks
from fairlead.authz.name_index import owns
from fairlead.authz.scope.compiled import (
    CUSTOM_RESOURCES,
    IMPERSONATE,
    READ_VERBS,
    CompiledScope,
    ScopeNaming,
    access_review_resources,
    is_list,
    is_review,
    resource_counts,
)
from fairlead.authz.scope.gateway_requests import CLUSTER, GATEWAY_ROOTS, SPACE, VIRTUAL_CLUSTER
from fairlead.core.bounded_cache import BoundedCache
from fairlead.core.call import NAMESPACE_RESOURCE, Decision, RequestInfo
from fairlead.core.errors import qualified_resource
from fairlead.core.scope import ANY, CLI_FIELD, Scope
from fairlead.core.user import User
from fairlead.kinds import CLUSTER_INSTANCES
from fairlead.kinds.projects.project import MIGRATE_SUBRESOURCE

ScopePart = tuple[str, Scope]
"""The path of an entry, and a scope with only this entry."""

MAX_NAMED_ENTRIES = 10
"""Maximum number of entries that a message names."""

COMPILED_CACHE_SIZE = 8192
"""Maximum number of cached compiled scopes."""

_CompiledCache = BoundedCache[tuple[int, int], tuple[weakref.ref[Scope], ScopeNaming, CompiledScope]]

_compiled_cache: _CompiledCache = BoundedCache(COMPILED_CACHE_SIZE)
"""By `id`. Weak references remove entries with their scope: each write of a key creates a new Scope object."""

_GATEWAY_NOUNS = {SPACE: "space", VIRTUAL_CLUSTER: "virtual cluster"}


def build_scope_checks(naming: ScopeNaming) -> ScopeChecks:
    """The scope checks that the authorizer of the server needs."""
    return ScopeChecks(within_scope(naming), is_within_scope(naming), overlaps(naming))


def within_scope(naming: ScopeNaming) -> Authorizer:
    """An authorizer that denies requests outside of the scope of the user's key, and otherwise has no opinion."""

    def authorizer(user: User, target: RequestInfo) -> Decision | None:
        if user.scope is None:
            return None
        if target.gateway is not None:
            return behind(user, target.gateway, target)
        if _compiled_scope(user.scope, naming).allows(user, target):
            return None
        return Decision(False, denial_reason(naming, user, target), is_about_scope=True)

    behind = inside_gateway(naming)
    return authorizer


def is_within_scope(naming: ScopeNaming) -> Callable[[User, RequestInfo], bool]:
    """Like `within_scope`, without a reason, for checks of many objects."""

    def inside(user: User, target: RequestInfo) -> bool:
        if user.scope is None:
            return True
        boundary = _compiled_scope(user.scope, naming)
        return (
            boundary.allows(user, target) if target.gateway is None else boundary.allows_gateway(target.gateway, target)
        )

    return inside


def overlaps(naming: ScopeNaming) -> Callable[[User, RequestInfo], bool]:
    """Whether the scope may allow some objects of a list or watch, so that it is filtered, not denied."""

    def touching(user: User, target: RequestInfo) -> bool:
        return user.scope is None or _compiled_scope(user.scope, naming).overlaps(target)

    return touching


def inside_gateway(naming: ScopeNaming) -> Callable[[User, RequestInfo, RequestInfo], Decision | None]:
    """Like `within_scope`, for a request through a gateway: the gateway target and the inner request."""

    def authorizer(user: User, gateway: RequestInfo, inner: RequestInfo) -> Decision | None:
        if user.scope is None:
            return None
        boundary = _compiled_scope(user.scope, naming)
        if boundary.allows_gateway(gateway, inner):
            return None
        if boundary.overlaps_gateway(gateway):
            reason = gateway_denial_reason(naming, user, gateway, inner)
            return Decision(False, reason, is_about_inner=True, is_about_scope=True)
        return Decision(False, denial_reason(naming, user, gateway), is_about_scope=True)

    return authorizer


def _compiled_scope(scope: Scope, naming: ScopeNaming) -> CompiledScope:
    """The compiled scope, cached per Scope object.

    Looked up by `id`: the authenticator caches its users, and hashing a long scope would take longer than the decision.
    """
    cache_key = id(scope), id(naming)
    cached = _compiled_cache.get(cache_key)
    if cached is not None and cached[0]() is scope:
        return cached[2]
    boundary = CompiledScope(scope, naming)

    def forget(reference: weakref.ref[Scope]) -> None:
        if cache_key in _compiled_cache and _compiled_cache[cache_key][0] is reference:
            del _compiled_cache[cache_key]

    _compiled_cache[cache_key] = weakref.ref(scope, forget), naming, boundary
    return boundary


def denial_reason(naming: ScopeNaming, user: User, target: RequestInfo) -> str:
    """The reason for denying a request, with the entry that would allow it."""
    whose = f'access key "{user.key}"' if user.key else "this credential"
    empty = ", which is empty" if user.scope is not None and user.scope.is_empty else ""
    return f"outside the scope of {whose}{empty}: {_needed_entry(naming, user, target)}"


def gateway_denial_reason(naming: ScopeNaming, user: User, gateway: RequestInfo, inner: RequestInfo) -> str:
    """The reason for denying an inner request behind a gateway that the scope otherwise allows."""
    whose = f'access key "{user.key}"' if user.key else "this credential"
    if inner.resource:
        resource = qualified_resource(inner.resource, inner.group) + (
            f"/{inner.subresource}" if inner.subresource else ""
        )
        where = f'in namespace "{inner.namespace}"' if inner.namespace else "at the cluster scope"
        what = f'"{resource}" {where}'
    else:
        what = f'path "{inner.path}"'
    location = _describe_gateway(naming, gateway)
    needed = _gateway_entry(naming, gateway) or "another entry"
    return (
        f'the scope of {whose} does not allow "{inner.verb}" on {what} of {location}: it needs {needed}, or a rule '
        "that allows this"
    )


def _describe_gateway(naming: ScopeNaming, gateway: RequestInfo) -> str:
    if gateway.root == CLUSTER:
        return f'cluster "{gateway.name}"'
    return f'{_GATEWAY_NOUNS[gateway.root]} "{gateway.name}" of project "{naming.project_of(gateway.namespace)}"'


def _needed_entry(naming: ScopeNaming, user: User, target: RequestInfo) -> str:
    if target.verb == IMPERSONATE:
        return "a key with a scope cannot impersonate"
    if target.root in GATEWAY_ROOTS:
        found = _gateway_entry(naming, target)
    elif not target.resource or (target.group, target.resource) == CUSTOM_RESOURCES:
        found = "an entry of any kind" if CompiledScope(_NONEMPTY_SCOPE, naming).allows(user, target) else ""
    else:
        found = _kind_entry(naming, user, target) or _project_entry(naming, target) or _list_entry(naming, target)
    return f"it needs {found}" if found else "of the entries of a scope, only a rule could allow it"


_NONEMPTY_SCOPE = Scope(clusters=("-",))
"""A minimal scope that is not empty."""

_LIST_ENTRIES = {
    "an entry for a project": Scope(projects=(ANY,)),
    "an entry for a cluster": Scope(clusters=(ANY,)),
    CLI_FIELD: Scope(allow_cli=True),
}


def _list_entry(naming: ScopeNaming, target: RequestInfo) -> str:
    """The entries with which a list or watch would be filtered instead of denied. Found by trying: this is rare."""
    return " or ".join(words for words, scope in _LIST_ENTRIES.items() if CompiledScope(scope, naming).overlaps(target))


def _gateway_entry(naming: ScopeNaming, target: RequestInfo) -> str:
    if target.root == CLUSTER:
        return f'an entry for cluster "{target.name}"'
    project = naming.project_of(target.namespace)
    return f'an entry for project "{project}" or its {_GATEWAY_NOUNS[target.root]} "{target.name}"' if project else ""


def _kind_entry(naming: ScopeNaming, user: User, target: RequestInfo) -> str:
    """The entry for kinds that a scope lists by name."""
    kind, name = (target.group, target.resource), target.name
    reads = target.verb in READ_VERBS and bool(name)
    if kind == (naming.api_group, "projects"):
        if name and (target.verb, target.subresource) == ("create", MIGRATE_SUBRESOURCE):
            return f'an entry for project "{name}", and one for the project that the virtual cluster comes from'
        return f'an entry for project "{name}"' if reads else ""
    if kind == (naming.api_group, "clusters") and reads and target.subresource in ("", "status"):
        return f'an entry for cluster "{name}"'
    if kind == NAMESPACE_RESOURCE and reads and (project := naming.project_of(name)):
        return f'an entry for project "{project}"'
    own = (kind == (naming.api_group, "users") and owns(user, name, None)) or (
        kind == (naming.api_group, "teams") and owns(user, None, name)
    )
    question = (kind in access_review_resources(naming.api_group) and is_review(target)) or (
        kind == resource_counts(naming.api_group) and is_list(target)
    )
    return CLI_FIELD if question or (own and reads and not target.subresource) else ""


def _project_entry(naming: ScopeNaming, target: RequestInfo) -> str:
    """The entry for objects in a project's namespace."""
    kind, project = (target.group, target.resource), naming.project_of(target.namespace)
    if not project or not naming.namespaced.get(kind):
        return ""
    instance = CLUSTER_INSTANCES.get(target.resource) if target.group == naming.api_group and target.name else None
    return f'an entry for project "{project}"' + (f' or its {instance.noun} "{target.name}"' if instance else "")


def matching_entry(naming: ScopeNaming) -> Callable[[User, RequestInfo], str]:
    """Returns a function that finds the scope entry that allows a request, as a path such as `projects[0]`.

    The result is empty if none does, all entries if only several together do, and `any scope` if every scope does.
    """

    def entry(user: User, target: RequestInfo) -> str:
        scope = user.scope
        if scope is None or not CompiledScope(scope, naming).allows(user, target):
            return ""
        if CompiledScope(Scope(), naming).allows(user, target):
            return "any scope"
        parts = list(_distinct_parts(scope))
        return _first_sufficient(parts, lambda part: CompiledScope(part, naming).allows(user, target)) or _join_labels(
            parts
        )

    return entry


def _first_sufficient(parts: Sequence[ScopePart], allows: Callable[[Scope], bool]) -> str:
    """The first entry that allows the request alone; empty if there is none. A binary search.

    Entries only add permissions: if a set of entries does not allow the request, none of them does.
    """
    if not parts or not allows(_merge_parts(parts)):
        return ""
    if len(parts) == 1:
        return parts[0][0]
    half = len(parts) // 2
    return _first_sufficient(parts[:half], allows) or _first_sufficient(parts[half:], allows)


def _join_labels(parts: Sequence[ScopePart]) -> str:
    more = [f"{len(parts) - MAX_NAMED_ENTRIES} more"] if len(parts) > MAX_NAMED_ENTRIES else []
    return " and ".join([*(label for label, _ in parts[:MAX_NAMED_ENTRIES]), *more])


def _merge_parts(parts: Sequence[ScopePart]) -> Scope:
    scopes = [scope for _, scope in parts]
    return Scope(
        allow_cli=any(scope.allow_cli for scope in scopes),
        projects=tuple(each for scope in scopes for each in scope.projects),
        spaces=tuple(each for scope in scopes for each in scope.spaces),
        virtual_clusters=tuple(each for scope in scopes for each in scope.virtual_clusters),
        clusters=tuple(each for scope in scopes for each in scope.clusters),
        rules=tuple(each for scope in scopes for each in scope.rules),
    )


def _distinct_parts(scope: Scope) -> Iterator[ScopePart]:
    """Each distinct entry as a scope of its own."""
    seen: set[Scope] = set()
    for label, part in _all_parts(scope):
        if part not in seen:
            seen.add(part)
            yield label, part


def _all_parts(scope: Scope) -> Iterator[ScopePart]:
    for index, project in enumerate(scope.projects):
        yield f"projects[{index}]", Scope(projects=(project,))
    for index, space in enumerate(scope.spaces):
        yield f"spaces[{index}]", Scope(spaces=(space,))
    for index, virtual_cluster in enumerate(scope.virtual_clusters):
        yield f"virtualClusters[{index}]", Scope(virtual_clusters=(virtual_cluster,))
    for index, cluster in enumerate(scope.clusters):
        yield f"clusters[{index}]", Scope(clusters=(cluster,))
    for index, rule in enumerate(scope.rules):
        yield f"rules[{index}]", Scope(rules=(rule,))
    if scope.allow_cli:
        yield CLI_FIELD, Scope(allow_cli=True)
