"""The pipeline stages for authentication and authorization.

Authenticators and authorizers run in the order in which they are given. What no authorizer allows is denied. The call
keeps a reference to the authorization stage, so that a stream can check again: it must not outlive keys or permissions.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from fairlead.authn import Authenticator
from fairlead.authz.authorizer import FILTERED_VERBS, AuthorizerChain, forbidden_error
from fairlead.core.call import CONSOLE, Call, RequestInfo
from fairlead.core.errors import AUTHENTICATION, AUTHORIZATION, ApiError, Expired, Forbidden, Unauthorized
from fairlead.core.user import User
from fairlead.domain.cluster_identity import ClusterIdentityMapper
from fairlead.registry.selectors import selected_name
from fairlead.server.api.routing import endpoint_pattern
from fairlead.server.auth.impersonation import HEADER_PREFIX, Impersonation, requested_groups
from fairlead.server.discovery.health import HEALTH_PATHS

PUBLIC_PATHS = frozenset({"/version", *HEALTH_PATHS})
"""Paths that need no authentication, below the platform root and below the management API."""

Endpoints = AbstractSet[tuple[str, str]]
"""Verb and path of endpoints below the platform root."""
NO_ENDPOINTS: Endpoints = frozenset()

Identify = Callable[[Call], User]
ActionPath = tuple[str, str, str]
"""Group, plural and subresource."""


def authenticate(authenticators: Sequence[Authenticator], call: Call) -> User:
    """The user of the first authenticator that recognizes a credential. Raises Unauthorized if none does."""
    for authenticator in authenticators:
        user = authenticator(call)
        if user is not None:
            return user
    raise Unauthorized


def build_identify(
    authenticators: Sequence[Authenticator], impersonation: Impersonation, names: ClusterIdentityMapper
) -> Identify:
    """A function that returns the authenticated or impersonated user. `names` checks identities sent to clusters."""

    def identify(call: Call) -> User:
        requester = authenticate(authenticators, call)
        if not call.headers.has_prefix(HEADER_PREFIX):
            return requester
        if call.user is None:  # so that the audit event of a rejected impersonation has the requester
            call.user = requester
        try:
            user = impersonation(call, requester)
            if call.target.gateway is not None:
                names.check_impersonation(user, requested_groups(call.headers))
        except Forbidden as error:
            error.refused_by = error.refused_by or AUTHORIZATION
            raise
        return user

    return identify


def build_authentication_stage(
    identify: Identify, on_authenticated: Callable[[User], None], public: Endpoints = NO_ENDPOINTS
) -> Callable[[Call], None]:
    """The authentication stage. `on_authenticated` is called with the requester, to track when a key was last used.
    `public` are the endpoints that need no authentication.

    A request that fails authentication continues to flow control, so that unauthenticated clients are queued as well.
    The authorization stage then raises the deferred error.
    """

    def authenticate_call(call: Call) -> None:
        if not is_public(call, public):
            try:
                call.user = user = identify(call)
            except ApiError as error:
                error.refused_by = error.refused_by or AUTHENTICATION
                call.defer_error(error)
            else:
                on_authenticated(user.impersonator or user)

    return authenticate_call


def authenticate_when_current(
    authenticate_call: Callable[[Call], None],
    is_current: Callable[[], bool],
    wait_current: Callable[[], Awaitable[None]],
    public: Endpoints = NO_ENDPOINTS,
) -> Callable[[Call], Awaitable[None] | None]:
    """The authentication stage of one of several workers.

    It waits until this worker has seen every commit that another one has acknowledged. So as soon as the revocation of
    a key or permission was acknowledged, all workers reject it.
    """

    async def wait_and_authenticate(call: Call) -> None:
        await wait_current()
        authenticate_call(call)

    def stage(call: Call) -> Awaitable[None] | None:
        if not is_current() and not is_public(call, public):
            return wait_and_authenticate(call)
        authenticate_call(call)
        return None

    return stage


class AuthorizeStage:
    """The authorization stage, and the `AccessGuard` of the call while its stream is open."""

    def __init__(
        self,
        authorizer: AuthorizerChain,
        identify: Identify,
        object_verbs: Mapping[ActionPath, str] | None = None,
        public: Endpoints = NO_ENDPOINTS,
    ) -> None:
        """`object_verbs` has the actions that require a verb on the object instead of one on the subresource. `public`
        are the endpoints that need no authentication."""
        self.authorizer = authorizer
        self._identify = identify
        self._object_verbs = object_verbs or {}
        self._public = public

    def __call__(self, call: Call) -> None:
        user = call.user
        if call.deferred_error is not None:
            raise call.pop_deferred_error()
        if user is not None:
            self._authorize(call, user)
            call.guard = self
        elif not is_public(call, self._public):
            raise Unauthorized

    def _authorize(self, call: Call, user: User) -> None:
        target, permissions = self.find_target(call), self.authorizer
        decision = call.decision = permissions.authorize(user, target)
        if decision.allowed:
            return
        call.object_filter = permissions.filter_for(user, target)
        if call.object_filter is None:
            raise forbidden_error(user, target, decision)

    def require(self, call: Call, target: RequestInfo) -> None:
        user = _require_user(call)
        decision = self.authorizer.authorize(user, target)
        if not decision.allowed:
            raise forbidden_error(user, target, decision)

    def recheck(self, call: Call) -> None:
        user = self.recheck_identity(call)
        target = self.find_target(call)
        decision = self.authorizer.authorize(user, target)
        if decision.allowed:
            return
        if call.object_filter is None or self.authorizer.filter_for(user, target) is None:
            raise forbidden_error(user, target, decision)

    def recheck_identity(self, call: Call) -> User:
        """The user of a call, who must still be the same."""
        user = _require_user(call)
        if self._identify(call) != user:
            raise Expired("your identity or the scope of your access key has changed; list again and watch from there")
        return user

    def find_target(self, call: Call) -> RequestInfo:
        """What the user has to be allowed to do for this call."""
        target = call.target
        if target.subresource and target.gateway is None:
            verb = self._object_verbs.get((target.group, target.resource, target.subresource))
            return replace(target, verb=verb, subresource="") if verb is not None else target
        return authorization_target(call) if call.query else target


def _require_user(call: Call) -> User:
    if call.user is None:
        raise Unauthorized
    return call.user


def authorization_target(call: Call) -> RequestInfo:
    """The target to authorize. A list or watch with a field selector on one name is authorized for that object."""
    target = call.target
    if target.verb in FILTERED_VERBS and not target.name and "fieldSelector" in call.query:
        return replace(target, name=selected_name(call.parameter("fieldSelector")))
    return target


def is_public(call: Call, endpoints: Endpoints = NO_ENDPOINTS) -> bool:
    """Whether the request needs no authentication. Impersonation always needs it, even on public paths, except for the
    console: its files are the same for all users, and the audit log does not record who reads them."""
    target = call.target
    if target.root == CONSOLE:
        return target.verb == "get"
    if target.resource or target.gateway is not None or call.headers.has_prefix(HEADER_PREFIX):
        return False
    if target.root == "":
        paths = target.path, endpoint_pattern(target.path)
        if any((target.verb, path) in endpoints for path in paths):
            return True
    return target.verb == "get" and target.path in PUBLIC_PATHS
