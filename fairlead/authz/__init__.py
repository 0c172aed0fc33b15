"""Authorization: an ordered chain of authorizers. The first one with an opinion decides; the default is deny.

authorizer        the authorizer of the server: runs the chain, filters lists, explains decisions
scope/            restricts access keys to their scope; runs first
rbac              Kubernetes RBAC; binding_index finds the bindings of a user
default_roles     creates and updates the default ClusterRoles
project_members   roles of project members
ownership         owners and access entries of objects; name_index makes their lookups fast
self_access       users on their own User, teams and access keys
component_access  runners and cluster agents
"""

from collections.abc import Callable, Sequence

from fairlead.core.call import Decision, RequestInfo
from fairlead.core.user import User

Authorizer = Callable[[User, RequestInfo], Decision | None]
"""A decision, or None for no opinion."""


def first_decision(authorizers: Sequence[Authorizer], user: User, target: RequestInfo) -> Decision:
    """The decision of the first authorizer with an opinion; deny if there is none."""
    for authorizer in authorizers:
        decision = authorizer(user, target)
        if decision is not None:
            return decision
    return Decision(False)


def administrators(user: User, target: RequestInfo) -> Decision | None:
    """Allows everything to members of the built-in admin groups."""
    return _ALLOW_ADMIN if user.is_admin else None


_ALLOW_ADMIN = Decision(True, "member of a built-in admin group")
