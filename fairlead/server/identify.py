"""The stages that find out who is asking and whether they may.

The order of authenticators and authorizers is the order they are handed in. Everything is denied that nobody allows.
"""

from collections.abc import Sequence

from fairlead.authn.chain import Authenticator, authenticate
from fairlead.authz.chain import Authorizer, authorize
from fairlead.core.call import Call, Reply, Target
from fairlead.core.errors import Details, Forbidden, Unauthorized, qualified, shown
from fairlead.core.user import User
from fairlead.server.pipeline import Proceed, Stage

PUBLIC_PATHS = frozenset({"/version", "/healthz", "/livez", "/readyz"})
"""What anybody may read, under the platform's root and under the management API's."""


def authenticated(authenticators: Sequence[Authenticator]) -> Stage:
    async def stage(call: Call, proceed: Proceed) -> Reply:
        if not is_public(call.target):
            call.user = authenticate(authenticators, call)
        return await proceed(call)

    return stage


def authorized(authorizers: Sequence[Authorizer]) -> Stage:
    async def stage(call: Call, proceed: Proceed) -> Reply:
        if not is_public(call.target):
            if call.user is None:
                raise Unauthorized
            decision = authorize(authorizers, call.user, call.target)
            if not decision.allowed:
                raise _forbidden(call.user, call.target, decision.reason)
        return await proceed(call)

    return stage


def is_public(target: Target) -> bool:
    return not target.is_resource and target.verb == "get" and target.path in PUBLIC_PATHS


def _forbidden(user: User, target: Target, reason: str) -> Forbidden:
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
