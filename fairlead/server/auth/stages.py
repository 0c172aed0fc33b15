"""The stages that find out who is asking and whether they may.

The order of authenticators and authorizers is the order they are handed in. Everything is denied that nobody allows.
The call takes along how to ask again: streams could outlive keys and permissions, and must not.
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
"""What anybody may read, under the platform's root and under the management API's."""

PUBLIC_ENDPOINTS = frozenset(
    {
        LOGIN,
        METHODS,
        ("get", "/.well-known/openid-configuration"),
        ("get", "/openid/v1/jwks"),
    }
)
"""What is there for those who are not signed in yet, or verify tokens, under the platform's root."""

Identify = Callable[[Call], User]


def identification(
    authenticators: Sequence[Authenticator], impersonation: Impersonation, names: ClusterNames
) -> Identify:
    """Who asks, or whom they act as. `names` say what may be handed on to clusters."""

    def identify(call: Call) -> User:
        asker = authenticate(authenticators, call)
        if not asks_to_impersonate(call.headers):
            return asker
        if call.user is None:  # so that a refused impersonation is on record with who asked for it
            call.user = asker
        user = impersonation(call, asker)
        if call.target.via is not None:
            names.refuse_untransferable(user, requested_groups(call.headers))
        return user

    return identify


def authenticated(identify: Identify, note: Callable[[User], None]) -> Stage:
    """`note` hears of everybody who has signed in, so that it is known when a key was last used.

    Who could not be identified goes on, too, up to flow control: strangers wait for the answer to that like all others.
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
    """The stage that lets in who may, and that is asked again while what was let in goes on."""

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
            raise Expired("who you are, or what your access key reaches, has changed; list again and watch from there")
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
    """What the permission is asked for. A list or watch that selects one name is about that object alone."""
    target = call.target
    if target.verb in CUT_VERBS and not target.name and "fieldSelector" in call.query:
        return replace(target, name=selected_name(call.parameter("fieldSelector")))
    return target


def is_public(call: Call) -> bool:
    """Whether anybody may ask. Who acts as somebody else must say who they are, also where nobody else has to."""
    target = call.target
    if target.resource or target.via is not None or asks_to_impersonate(call.headers):
        return False
    if target.root == "" and (target.verb, target.path) in PUBLIC_ENDPOINTS:
        return True
    return target.verb == "get" and target.path in PUBLIC_PATHS
