"""Authorizes requests through a gateway: they need the verb `use` on the cluster, space or virtual cluster.

Runs right after the scope authorizer, which has checked the inner request. The remote cluster authorizes the inner
request itself. Rules about our own objects must never apply to it, so this authorizer decides all gateway requests.
"""

from dataclasses import replace

from fairlead.authz import Authorizer, Decide, Decision
from fairlead.core.call import MANAGEMENT, Target
from fairlead.core.user import User


def entrances(decide: Decide) -> Authorizer:
    """`authorize` is the whole chain, of which this one is a part. It authorizes `use` on the gateway's resource."""

    def authorizer(user: User, target: Target) -> Decision | None:
        if target.via is None:
            return None
        owner = user if user.scope is None else replace(user, scope=None)
        return decide(owner, replace(target.via, root=MANAGEMENT, path=""))

    return authorizer
