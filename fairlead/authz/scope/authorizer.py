"""The scope authorizer: denies requests outside of the scope of an access key, with a reason.

`app/auth.py` passes the result of `build_scope_checks` to the authorizer of the server. For a request through a
gateway, `inside_gateway` checks the gateway and the inner request.

Reasons are built from the scope and the request alone. Nothing is looked up, so a denial does not reveal whether an
object exists.
"""

import weakref
from collections.abc import Callable, Iterator, Sequence

from fairlead.authz import Authorizer, Decision
from fairlead.authz.authorizer import Scoping
from fairlead.authz.name_index import owns
from fairlead.authz.scope.compiled import (
    CUSTOM_RESOURCES,
    IMPERSONATE,
    INSTANCES,
    READ,
    Boundary,
    is_question,
    what_one_may,
)
from fairlead.authz.scope.names import CLUSTER, GATEWAYS, SPACE, VIRTUAL_CLUSTER, ScopeNames
from fairlead.core.call import NAMESPACES, Target
from fairlead.core.errors import qualified
from fairlead.core.scope import ANY, CLI_FLAG, Scope
from fairlead.core.user import User
from fairlead.kinds.projects.migration import MIGRATE

Part = tuple[str, Scope]
"""The path of an entry, and a scope with only this entry."""

MAX_NAMED = 10
"""Maximum number of entries that a message names."""

KEPT = 8192
"""Maximum number of cached compiled scopes."""

_kept: dict[tuple[int, int], tuple[weakref.ref[Scope], ScopeNames, Boundary]] = {}
"""By `id`. Weak references remove entries with their scope: each write of a key creates a new Scope object."""

_ENTRANCES = {SPACE: "space", VIRTUAL_CLUSTER: "virtual cluster"}


def scoping(names: ScopeNames) -> Scoping:
    """The scope checks that the authorizer of the server needs."""
    return Scoping(within_scope(names), is_inside(names), touches(names))


def within_scope(names: ScopeNames) -> Authorizer:
    """An authorizer that denies requests outside of the scope of the user's key, and otherwise has no opinion."""

    def authorizer(user: User, target: Target) -> Decision | None:
        if user.scope is None:
            return None
        if target.via is not None:
            return behind(user, target.via, target)
        if _boundary(user.scope, names).allows(user, target):
            return None
        return Decision(False, why_outside(names, user, target))

    behind = inside_gateway(names)
    return authorizer


def is_inside(names: ScopeNames) -> Callable[[User, Target], bool]:
    """Like `within_scope`, without a reason, for checks of many objects."""

    def inside(user: User, target: Target) -> bool:
        if user.scope is None:
            return True
        boundary = _boundary(user.scope, names)
        return boundary.allows(user, target) if target.via is None else boundary.lets_through(target.via, target)

    return inside


def touches(names: ScopeNames) -> Callable[[User, Target], bool]:
    """Whether the scope may allow some objects of a list or watch, so that it is filtered, not denied."""

    def touching(user: User, target: Target) -> bool:
        return user.scope is None or _boundary(user.scope, names).touches(target)

    return touching


def inside_gateway(names: ScopeNames) -> Callable[[User, Target, Target], Decision | None]:
    """Like `within_scope`, for a request through a gateway: the gateway target and the inner request."""

    def authorizer(user: User, entrance: Target, inner: Target) -> Decision | None:
        if user.scope is None:
            return None
        boundary = _boundary(user.scope, names)
        if boundary.lets_through(entrance, inner):
            return None
        if boundary.reaches_gateway(entrance):
            return Decision(False, why_not_inside(names, user, entrance, inner), is_inside=True)
        return Decision(False, why_outside(names, user, entrance))

    return authorizer


def _boundary(scope: Scope, names: ScopeNames) -> Boundary:
    """The compiled scope, cached per Scope object.

    Looked up by `id`: the authenticator caches its users, and hashing a long scope would take longer than the decision.
    """
    place = id(scope), id(names)
    kept = _kept.get(place)
    if kept is not None and kept[0]() is scope:
        return kept[2]
    if len(_kept) >= KEPT:
        _kept.clear()
    boundary = Boundary(scope, names)

    def forget(gone: weakref.ref[Scope]) -> None:
        if place in _kept and _kept[place][0] is gone:
            del _kept[place]

    _kept[place] = weakref.ref(scope, forget), names, boundary
    return boundary


def why_outside(names: ScopeNames, user: User, target: Target) -> str:
    """The reason for denying a request, with the entry that would allow it."""
    whose = f'access key "{user.key}"' if user.key else "this credential"
    empty = ", which is empty" if user.scope is not None and user.scope.holds_nothing else ""
    return f"outside the scope of {whose}{empty}: {_needed(names, user, target)}"


def why_not_inside(names: ScopeNames, user: User, entrance: Target, inner: Target) -> str:
    """The reason for denying an inner request behind a gateway that the scope otherwise allows."""
    whose = f'access key "{user.key}"' if user.key else "this credential"
    if inner.resource:
        resource = qualified(inner.resource, inner.group) + (f"/{inner.subresource}" if inner.subresource else "")
        where = f'in namespace "{inner.namespace}"' if inner.namespace else "at the cluster scope"
        what = f'"{resource}" {where}'
    else:
        what = f'path "{inner.path}"'
    place = _title(names, entrance)
    needed = _entrance_entry(names, entrance) or "another entry"
    return (
        f'the scope of {whose} does not allow "{inner.verb}" on {what} of {place}: it needs {needed}, or a rule that '
        "allows this"
    )


def _title(names: ScopeNames, entrance: Target) -> str:
    if entrance.root == CLUSTER:
        return f'cluster "{entrance.name}"'
    return f'{_ENTRANCES[entrance.root]} "{entrance.name}" of project "{names.project(entrance.namespace)}"'


def _needed(names: ScopeNames, user: User, target: Target) -> str:
    if target.verb == IMPERSONATE:
        return "a key with a scope cannot impersonate"
    if target.root in GATEWAYS:
        found = _entrance_entry(names, target)
    elif not target.resource or (target.group, target.resource) == CUSTOM_RESOURCES:
        found = "an entry of any kind" if Boundary(_SOMETHING, names).allows(user, target) else ""
    else:
        found = _kind_entry(names, user, target) or _project_entry(names, target) or _list_entry(names, target)
    return f"it needs {found}" if found else "of the entries of a scope, only a rule could allow it"


_SOMETHING = Scope(clusters=("-",))
"""A minimal scope that is not empty."""

_LISTING = {
    "an entry for a project": Scope(projects=(ANY,)),
    "an entry for a cluster": Scope(clusters=(ANY,)),
    CLI_FLAG: Scope(allow_cli=True),
}


def _list_entry(names: ScopeNames, target: Target) -> str:
    """The entries with which a list or watch would be filtered instead of denied. Found by trying: this is rare."""
    return " or ".join(words for words, scope in _LISTING.items() if Boundary(scope, names).touches(target))


def _entrance_entry(names: ScopeNames, target: Target) -> str:
    if target.root == CLUSTER:
        return f'an entry for cluster "{target.name}"'
    project = names.project(target.namespace)
    return f'an entry for project "{project}" or its {_ENTRANCES[target.root]} "{target.name}"' if project else ""


def _kind_entry(names: ScopeNames, user: User, target: Target) -> str:
    """The entry for kinds that a scope lists by name."""
    kind, name = (target.group, target.resource), target.name
    reads = target.verb in READ and bool(name)
    if kind == (names.api_group, "projects"):
        if name and (target.verb, target.subresource) == ("create", MIGRATE):
            return f'an entry for project "{name}", and one for the project that the virtual cluster comes from'
        return f'an entry for project "{name}"' if reads else ""
    if kind == (names.api_group, "clusters") and reads and target.subresource in ("", "status"):
        return f'an entry for cluster "{name}"'
    if kind == NAMESPACES and reads and (project := names.project(name)):
        return f'an entry for project "{project}"'
    own = (kind == (names.api_group, "users") and owns(user, name, None)) or (
        kind == (names.api_group, "teams") and owns(user, None, name)
    )
    question = kind in what_one_may(names.api_group) and is_question(target)
    return CLI_FLAG if question or (own and reads and not target.subresource) else ""


def _project_entry(names: ScopeNames, target: Target) -> str:
    """The entry for objects in a project's namespace."""
    kind, project = (target.group, target.resource), names.project(target.namespace)
    if not project or not names.namespaced.get(kind):
        return ""
    instance = INSTANCES.get(target.resource) if target.group == names.api_group and target.name else None
    return f'an entry for project "{project}"' + (f' or its {instance} "{target.name}"' if instance else "")


def allowing_entry(names: ScopeNames) -> Callable[[User, Target], str]:
    """Returns a function that finds the scope entry that allows a request, as a path such as `projects[0]`.

    The result is empty if none does, all entries if only several together do, and `any scope` if every scope does.
    """

    def entry(user: User, target: Target) -> str:
        scope = user.scope
        if scope is None or not Boundary(scope, names).allows(user, target):
            return ""
        if Boundary(Scope(), names).allows(user, target):
            return "any scope"
        parts = list(_parts(scope))
        return _first_alone(parts, lambda part: Boundary(part, names).allows(user, target)) or _listed(parts)

    return entry


def _first_alone(parts: Sequence[Part], allows: Callable[[Scope], bool]) -> str:
    """The first entry that allows the request alone; empty if there is none. A binary search.

    Entries only add permissions: if a set of entries does not allow the request, none of them does.
    """
    if not parts or not allows(_joined(parts)):
        return ""
    if len(parts) == 1:
        return parts[0][0]
    half = len(parts) // 2
    return _first_alone(parts[:half], allows) or _first_alone(parts[half:], allows)


def _listed(parts: Sequence[Part]) -> str:
    more = [f"{len(parts) - MAX_NAMED} more"] if len(parts) > MAX_NAMED else []
    return " and ".join([*(label for label, _ in parts[:MAX_NAMED]), *more])


def _joined(parts: Sequence[Part]) -> Scope:
    scopes = [scope for _, scope in parts]
    return Scope(
        allow_cli=any(scope.allow_cli for scope in scopes),
        projects=tuple(each for scope in scopes for each in scope.projects),
        spaces=tuple(each for scope in scopes for each in scope.spaces),
        virtual_clusters=tuple(each for scope in scopes for each in scope.virtual_clusters),
        clusters=tuple(each for scope in scopes for each in scope.clusters),
        rules=tuple(each for scope in scopes for each in scope.rules),
    )


def _parts(scope: Scope) -> Iterator[Part]:
    """Each distinct entry as a scope of its own."""
    seen: set[Scope] = set()
    for label, part in _every_part(scope):
        if part not in seen:
            seen.add(part)
            yield label, part


def _every_part(scope: Scope) -> Iterator[Part]:
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
        yield CLI_FLAG, Scope(allow_cli=True)
