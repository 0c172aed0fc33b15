"""The permission to create instances that a project does not leave to all of its members.

It is the verb `create` on `<plural>/restricted` in the namespace, which administrators have: for instances without a
template or, where the project requires one, a preset, and for a namespace of one's own choice in a cluster.
"""

from fairlead.core.call import Authorize
from fairlead.core.objects import metadata
from fairlead.registry.kind import Change

RESTRICTED_SUBRESOURCE = "restricted"


def may_create_restricted(change: Change, authorize: Authorize) -> bool:
    # Without a name: owners have every permission on their own object, and must not get this one from that.
    namespace = str(metadata(change.obj).get("namespace") or "")
    right = change.kind.request("create", namespace, subresource=RESTRICTED_SUBRESOURCE)
    return authorize(change.user, right).allowed
