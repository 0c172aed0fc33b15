"""The questions about scopes that are asked on a request, as functions for this server's names.

`app` hands all of `scoping` to the permissions. What is behind a gateway is a request of its own: `inside_gateway`
looks at it and at the entrance.
"""

import weakref
from collections.abc import Callable

from fairlead.authz.chain import Authorizer, Decision
from fairlead.authz.permissions import Scoping
from fairlead.authz.scope.boundary import Boundary
from fairlead.authz.scope.names import ScopeNames
from fairlead.authz.scope.reasons import why_not_inside, why_outside
from fairlead.core.call import Target
from fairlead.core.scope import Scope
from fairlead.core.user import User

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
