"""The pipeline stages for authentication and authorization.

Authenticators and authorizers run in the order in which they are given. What no authorizer allows is denied. The call
keeps a reference to the authorization stage, so that a stream can check again: it must not outlive keys or permissions.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from fairlead.authn import Authenticator, authenticate
from fairlead.authz.authorizer import CUT_VERBS, Permissions, forbidden
from fairlead.core.call import Call, Reply, Target
from fairlead.core.cluster_identity import ClusterNames
from fairlead.core.errors import ApiError, Expired, Unauthorized
from fairlead.core.user import User
from fairlead.registry.selectors import selected_name
from fairlead.server.auth.impersonation import Impersonation, asks_to_impersonate, requested_groups
from fairlead.server.auth.login import LOGIN, METHODS
from fairlead.server.discovery.health import HEALTH_PATHS
from fairlead.server.http.pipeline import Proceed, Stage

PUBLIC_PATHS = frozenset({"/version", *HEALTH_PATHS})
"""Paths that need no authentication, below the platform root and below the management API."""

PUBLIC_ENDPOINTS = frozenset(
    {
        LOGIN,
        METHODS,
        ("get", "/.well-known/openid-configuration"),
        ("get", "/openid/v1/jwks"),
    }
)
"""Verb and path of endpoints below the platform root that need no authentication: login, and verification of tokens."""

Identify = Callable[[Call], User]


def identification(
    authenticators: Sequence[Authenticator], impersonation: Impersonation, names: ClusterNames
) -> Identify:
    """A function that returns the authenticated or impersonated user. `names` checks identities sent to clusters."""

    def identify(call: Call) -> User:
        requester = authenticate(authenticators, call)
        if not asks_to_impersonate(call.headers):
            return requester
        if call.user is None:  # so that the audit event of a rejected impersonation has the requester
            call.user = requester
        user = impersonation(call, requester)
        if call.target.via is not None:
            names.refuse_untransferable(user, requested_groups(call.headers))
        return user

    return identify


def authenticated(identify: Identify, note: Callable[[User], None]) -> Stage:
    """The authentication stage. `on_authenticated` is called with the requester, to track when a key was last used.

    A request that fails authentication continues to flow control, so that unauthenticated clients are queued as well.
    The authorization stage then raises the deferred error.
    """

    def stage(call: Call, proceed: Proceed) -> Awaitable[Reply]:
        if not is_public(call):
            try:
                call.user = user = identify(call)
            except ApiError as error:
                call.defer(error)
            else:
                note(user.impersonator or user)
        return proceed(call)

    return stage


class Authorized:
    """The authorization stage, and the `AccessGuard` of the call while its stream is open."""

    def __init__(self, permissions: Permissions, identify: Identify) -> None:
        self._permissions = permissions
        self._identify = identify

    def __call__(self, call: Call, proceed: Proceed) -> Awaitable[Reply]:
        user = call.user
        if call.failure is not None:
            raise call.take_failure()
        if user is not None:
            self._let_in(call, user)
            call.keeper = self
        elif not is_public(call):
            raise Unauthorized
        return proceed(call)

    def _let_in(self, call: Call, user: User) -> None:
        target, permissions = about(call), self._permissions
        decision = call.decision = permissions.decide(user, target)
        if decision.allowed:
            return
        call.sieve = permissions.cut(user, target)
        if call.sieve is None:
            raise forbidden(user, target, decision)

    def require(self, call: Call, target: Target) -> None:
        user = _known(call)
        decision = self._permissions.decide(user, target)
        if not decision.allowed:
            raise forbidden(user, target, decision)

    def recheck(self, call: Call) -> None:
        user = _known(call)
        if self._identify(call) != user:
            raise Expired("your identity or the scope of your access key has changed; list again and watch from there")
        target = about(call)
        decision = self._permissions.decide(user, target)
        if decision.allowed:
            return
        if call.sieve is None or self._permissions.cut(user, target) is None:
            raise forbidden(user, target, decision)


def _known(call: Call) -> User:
    if call.user is None:
        raise Unauthorized
    return call.user


def about(call: Call) -> Target:
    """The target to authorize. A list or watch with a field selector on one name is authorized for that object."""
    target = call.target
    if target.verb in CUT_VERBS and not target.name and "fieldSelector" in call.query:
        return replace(target, name=selected_name(call.parameter("fieldSelector")))
    return target


def is_public(call: Call) -> bool:
    """Whether the request needs no authentication. Impersonation always needs it, even on public paths."""
    target = call.target
    if target.resource or target.via is not None or asks_to_impersonate(call.headers):
        return False
    if target.root == "" and (target.verb, target.path) in PUBLIC_ENDPOINTS:
        return True
    return target.verb == "get" and target.path in PUBLIC_PATHS
