"""The questions about scopes that are asked on a request, as functions for this server's names.

`app` hands all of `scoping` to the permissions. What is behind a gateway is a request of its own: `inside_gateway`
looks at it and at the entrance.
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

# DOC-MERGED authz/scope/reasons
# A scope's answers in words: which entry allowed a request, or what it would have taken.
#
# Both are made from the scope and the request alone. Nothing is looked up, so nobody learns from a refusal whether what
# they asked for exists. Long lists are cut object by object, so a refusal is put together quickly.


Part = tuple[str, Scope]
"""The path of an entry, and a scope that has just this one."""

MAX_NAMED = 10
"""How many entries are named where it takes several of them."""

_ENTRANCES = {SPACE: "space", VIRTUAL_CLUSTER: "virtual cluster"}


def why_outside(names: ScopeNames, user: User, target: Target) -> str:
    whose = f'access key "{user.key}"' if user.key else "this credential"
    empty = ", which is empty" if user.scope is not None and user.scope.holds_nothing else ""
    return f"outside the scope of {whose}{empty}: {_needed(names, user, target)}"


def why_not_inside(names: ScopeNames, user: User, entrance: Target, inner: Target) -> str:
    """Of a request through a gateway that the scope reaches, but not for this."""
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
        f'the scope of {whose} does not allow "{inner.verb}" on {what} of {place}: it takes {needed}, or a rule that '
        "allows this"
    )


def _title(names: ScopeNames, entrance: Target) -> str:
    if entrance.root == CLUSTER:
        return f'cluster "{entrance.name}"'
    return f'{_ENTRANCES[entrance.root]} "{entrance.name}" of project "{names.project(entrance.namespace)}"'


def _needed(names: ScopeNames, user: User, target: Target) -> str:
    if target.verb == IMPERSONATE:
        return "with a scope nobody acts as somebody else"
    if target.root in GATEWAYS:
        found = _entrance_entry(names, target)
    elif not target.resource or (target.group, target.resource) == CUSTOM_RESOURCES:
        found = "an entry of any kind" if Boundary(_SOMETHING, names).allows(user, target) else ""
    else:
        found = _kind_entry(names, user, target) or _project_entry(names, target) or _list_entry(names, target)
    return f"it takes {found}" if found else "of all that a scope can have, only a rule could allow it"


_SOMETHING = Scope(clusters=("-",))
"""A scope that is not empty, for what takes no more than that."""

_LISTING = {
    "an entry for a project": Scope(projects=(ANY,)),
    "an entry for a cluster": Scope(clusters=(ANY,)),
    CLI_FLAG: Scope(allow_cli=True),
}


def _list_entry(names: ScopeNames, target: Target) -> str:
    """For lists and watches that would be cut with another entry. They are rare enough to try it out."""
    return " or ".join(words for words, scope in _LISTING.items() if Boundary(scope, names).touches(target))


def _entrance_entry(names: ScopeNames, target: Target) -> str:
    if target.root == CLUSTER:
        return f'an entry for cluster "{target.name}"'
    project = names.project(target.namespace)
    return f'an entry for project "{project}" or its {_ENTRANCES[target.root]} "{target.name}"' if project else ""


def _kind_entry(names: ScopeNames, user: User, target: Target) -> str:
    """For the kinds that entries are about by name."""
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
    """For whatever lives in a project's namespace."""
    kind, project = (target.group, target.resource), names.project(target.namespace)
    if not project or not names.namespaced.get(kind):
        return ""
    instance = INSTANCES.get(target.resource) if target.group == names.api_group and target.name else None
    return f'an entry for project "{project}"' + (f' or its {instance} "{target.name}"' if instance else "")


def allowing_entry(names: ScopeNames) -> Callable[[User, Target], str]:
    """Which entry of a user's scope allows a request, as a path such as `projects[0]`; empty if none does.

    Where it takes several of them together, all entries are named. What any scope allows is allowed by `any scope`.
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
    """The first entry that allows something by itself; empty if it takes several of them.

    Another entry never takes anything away: entries that do not allow it together do not allow it one by one.
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
    """Each entry as a scope of its own; one that is there twice counts once."""
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


KEPT = 8192
"""Scopes that are kept laid out. More than this many in use at a time only cost time."""

_kept: dict[tuple[int, int], tuple[weakref.ref[Scope], ScopeNames, Boundary]] = {}
"""By identity. What belongs to a scope goes with it: whoever writes a key again and again makes a scope each time."""


def scoping(names: ScopeNames) -> Scoping:
    """All that permissions ask about scopes."""
    return Scoping(within_scope(names), is_inside(names), touches(names))


def within_scope(names: ScopeNames) -> Authorizer:
    """Refuses what is outside the scope of the user's key. Who has none, or stays inside, is for others to decide."""

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
    """As `within_scope`, for those who ask about many objects and need no reason."""

    def inside(user: User, target: Target) -> bool:
        if user.scope is None:
            return True
        boundary = _boundary(user.scope, names)
        return boundary.allows(user, target) if target.via is None else boundary.lets_through(target.via, target)

    return inside


def touches(names: ScopeNames) -> Callable[[User, Target], bool]:
    """Whether a list or watch may hold something for a key with a scope: it is cut then, and refused if not."""

    def touching(user: User, target: Target) -> bool:
        return user.scope is None or _boundary(user.scope, names).touches(target)

    return touching


def inside_gateway(names: ScopeNames) -> Callable[[User, Target, Target], Decision | None]:
    """As `within_scope`, for a request through a gateway: the entrance, and what is asked behind it."""

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
    """The scope laid out, made once for each value that authentication hands out.

    It is found by identity: an authenticator keeps its users, and to look through a long scope for its hash would take
    longer than the decision.
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
