"""Authorizes requests through a gateway: they need the verb `use` on the cluster, space or virtual cluster.

Runs right after the scope authorizer, which has checked the inner request. The remote cluster authorizes the inner
request itself. Rules about our own objects must never apply to it, so this authorizer decides all gateway requests.
"""

from dataclasses import replace

from fairlead.authz import Authorize, Authorizer, Decision
from fairlead.core.call import MANAGEMENT, RequestInfo
from fairlead.core.user import User


def gateway_authorizer(authorize: Authorize) -> Authorizer:
    """`authorize` is the whole chain, of which this one is a part. It authorizes `use` on the gateway's resource."""

    def authorizer(user: User, target: RequestInfo) -> Decision | None:
        if target.gateway is None:
            return None
        owner = user if user.scope is None else replace(user, scope=None)
        return authorize(owner, replace(target.gateway, root=MANAGEMENT, path=""))

    return authorizer
