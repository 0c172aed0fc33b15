"""Who may pass a gateway: whoever may `use` the cluster, space or virtual cluster that it leads to.

It stands right after the scope, which has looked at what is asked behind the gateway. Whatever is allowed in there is
for the cluster to say; no rule about our own objects is ever held against it, so this authorizer always decides.
"""

from dataclasses import replace

from fairlead.authz import Authorizer, Decide, Decision
from fairlead.core.call import MANAGEMENT, Target
from fairlead.core.user import User


def entrances(decide: Decide) -> Authorizer:
    """`decide` is the whole chain that this one is a part of: it is asked about the entrance as a resource of ours."""

    def authorizer(user: User, target: Target) -> Decision | None:
        if target.via is None:
            return None
        owner = user if user.scope is None else replace(user, scope=None)
        return decide(owner, replace(target.via, root=MANAGEMENT, path=""))

    return authorizer
