"""A 403 in Kubernetes' words: who cannot do what where, and why. It never tells whether the object exists."""

from fairlead.authz.chain import Decision
from fairlead.core.call import Target
from fairlead.core.errors import Details, Forbidden, qualified, shown
from fairlead.core.user import User


def forbidden(user: User, target: Target, decision: Decision) -> Forbidden:
    reason = decision.reason
    if target.via is not None and not decision.is_inside:
        target = target.via
    if not target.is_resource:
        message = f'forbidden: User "{user.name}" cannot {target.verb} path "{target.path}"'
        return Forbidden(f"{message}: {reason}" if reason else message)
    resource = f"{target.resource}/{target.subresource}" if target.subresource else target.resource
    where = f'in the namespace "{target.namespace}"' if target.namespace else "at the cluster scope"
    what = f"{qualified(target.resource, target.group)}{f' {shown(target.name)}' if target.name else ''}"
    who = f'User "{user.name}" cannot {target.verb} resource "{resource}" in API group "{target.group}" {where}'
    message = f"{what} is forbidden: {who}"
    details = Details(target.name, target.group, target.resource)
    return Forbidden(f"{message}: {reason}" if reason else message, details)
