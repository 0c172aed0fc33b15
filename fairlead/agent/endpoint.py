"""The direct endpoint: authenticates direct tokens, authorizes the gateway, and forwards to the agent's cluster.

    /kubernetes/cluster/...                              the agent's cluster; the path has no cluster name
    /kubernetes/project/<project>/space/<name>/...       one namespace of it

Access keys are rejected: only the server can verify them. Requests impersonate the user and its groups, so the
cluster's RBAC decides what is allowed inside. Ambiguous paths are rejected, as in `gateway/routes.py`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import orjson

from fairlead import __version__
from fairlead.agent.config_cache import AgentConfig, ConfigCache
from fairlead.agent.reports import ReportQueue
from fairlead.agent.tokens import DirectTokenAuthenticator, TokenIdentity, UnknownSubject
from fairlead.authn.credentials import INVALID_TOKEN, bearer_token
from fairlead.authn.direct_tokens import MAX_TOKEN_LENGTH, InvalidToken, UnknownKey, WrongAudience
from fairlead.authz.authorizer import forbidden_error
from fairlead.authz.scope import gateway_target, inside_gateway
from fairlead.authz.scope.gateway_requests import CLUSTER, SPACE
from fairlead.core.call import Call, Decision, Reply, RequestInfo
from fairlead.core.errors import ApiError, Expired, Forbidden, NotFound, NotImplementedStatus, Unauthorized
from fairlead.gateway.headers import as_api_error
from fairlead.gateway.proxy import forward
from fairlead.gateway.routes import NamespaceScope, check_in_namespace, decoded_path, strip_prefix
from fairlead.upstream.errors import UpstreamError
from fairlead.upstream.upstream import Upstream

RequestInfoResolver = Callable[[str, str, Mapping[str, list[str]], str], RequestInfo]
"""Resolves method, path, query and type of gateway to the request info of a Kubernetes API request."""
TEXT_PLAIN = "text/plain; charset=utf-8"
TOKEN_REJECTED_ANNOTATION = "service.sh/token-rejected"
"""Audit annotation with the reason why a token was rejected, which the client is not told."""
IMPERSONATION_UNSUPPORTED = (
    "forbidden: a direct endpoint cannot authorize impersonation, only the Fairlead server can; send the request "
    "through the server's gateway, or use a direct token that was created while impersonating"
)
WRONG_CLUSTER = (
    'forbidden: this token is not valid for cluster "{cluster}", but only for the clusters in its scope, or those that '
    "its owner could use when it was created; create another one (`fairlead token create --cluster {cluster}`), which "
    'requires the verb "use" on the cluster or on a space in it'
)
ALLOWED = Decision(True, "a direct token; the cluster's own RBAC decides")


@dataclass(frozen=True, slots=True)
class DirectRequest:
    """A parsed request. `target` has the gateway; `request_target` is the path and query to forward.

    `project` and `name` identify the space; empty for the gateway of the cluster.
    """

    target: RequestInfo
    request_target: str
    project: str = ""
    name: str = ""

    @property
    def gateway(self) -> RequestInfo:
        return self.target.gateway or self.target


def parse_request(call: Call, config: AgentConfig, route: RequestInfoResolver) -> DirectRequest:
    """Raises BadRequest for an ambiguous path, and NotFound for one that is not served here."""
    match decoded_path(strip_prefix(call.raw_target, 0)).split("/"):
        case ["", "kubernetes", "cluster", *_]:
            return _resolve_request(call, gateway_target(CLUSTER, config.cluster), 2, route)
        case ["", "kubernetes", "project", project, "space", name, *_] if project and name:
            gateway = gateway_target(SPACE, name, config.scope_names.namespace_prefix + project)
            return replace(_resolve_request(call, gateway, 5, route), project=project, name=name)
        case ["", "kubernetes", "project", _, "virtualcluster", *_]:
            raise NotImplementedStatus(
                "virtual clusters are not available at a direct endpoint; use the same path at the Fairlead server"
            )
        case ["", "kubernetes", "management", *_]:
            raise NotFound("the management API is not available at a direct endpoint; use the Fairlead server")
        case _:
            raise NotFound(
                "not found; a direct endpoint serves /kubernetes/cluster/... and "
                "/kubernetes/project/<project>/space/<name>/..."
            )


def _resolve_request(call: Call, gateway: RequestInfo, segments: int, route: RequestInfoResolver) -> DirectRequest:
    request_target = strip_prefix(call.raw_target, segments)
    target = route(call.method, decoded_path(request_target), call.query, gateway.root)
    return DirectRequest(replace(target, gateway=gateway), request_target)


@dataclass(frozen=True, slots=True)
class EndpointDependencies:
    """Dependencies of the endpoint. `cluster` returns the current Upstream, `route` resolves forwarded paths."""

    config_cache: ConfigCache
    authenticator: DirectTokenAuthenticator
    reports: ReportQueue
    cluster: Callable[[], Upstream]
    route: RequestInfoResolver
    require_auditable: Callable[[Call], None]
    """Raises if the call cannot be audited."""


class DirectEndpoint:
    """Handles all requests to the direct endpoint."""

    def __init__(self, deps: EndpointDependencies) -> None:
        self._deps = deps
        self._public_paths: Mapping[str, Callable[[], Reply]] = {
            "/healthz": _healthz,
            "/livez": _healthz,
            "/readyz": self._readyz,
            "/version": _version,
        }

    async def __call__(self, call: Call) -> Reply:
        public = self._public_paths.get(call.path) if call.method in ("GET", "HEAD") else None
        if public is not None:
            call.target = RequestInfo("get", call.path)
            return public()
        token = bearer_token(call, MAX_TOKEN_LENGTH)
        if token is None:
            raise Unauthorized("authenticate with a direct token: `fairlead token create` prints one")
        identity, config = await self._authenticate(call, token)
        call.user = identity.user
        self._deps.reports.record_use(identity.token_id, identity.user.name)
        request = parse_request(call, config, self._deps.route)
        call.target = request.target
        if call.headers.has_prefix("impersonate-"):
            call.decision = Decision(False, "impersonation cannot be authorized here")
            raise Forbidden(IMPERSONATION_UNSUPPORTED)
        title = _authorize(call, identity, request, config)
        call.guard = _DirectAccessGuard(self._deps, token, identity, request)
        try:
            upstream = self._deps.cluster()
        except UpstreamError as error:
            raise as_api_error(error, title) from error
        self._deps.require_auditable(call)
        # The extra values are for our own audit log, and are not sent to the cluster.
        user = replace(identity.user, extra=())
        return await forward(upstream, user, config.cluster_names, call, request.request_target, title)

    async def _authenticate(self, call: Call, token: str) -> tuple[TokenIdentity, AgentConfig]:
        """Authenticates the token. If it is newer than the cached configuration, refreshes that first."""
        config_cache = self._deps.config_cache
        try:
            config = config_cache.config
            return self._deps.authenticator.authenticate(token, config), config
        except (UnknownKey, UnknownSubject) as error:
            reason = str(error)
        except WrongAudience as error:
            call.annotations[TOKEN_REJECTED_ANNOTATION] = str(error)
            raise Forbidden(WRONG_CLUSTER.format(cluster=config.cluster)) from None
        except InvalidToken as error:
            raise _reject_token(call, str(error)) from None
        await config_cache.refresh_now()
        if config_cache.config is config:
            raise _reject_token(call, reason)
        try:
            return self._deps.authenticator.authenticate(token, config_cache.config), config_cache.config
        except InvalidToken as error:
            raise _reject_token(call, str(error)) from None

    def _readyz(self) -> Reply:
        try:
            _ = self._deps.config_cache.config
        except ApiError as error:
            return Reply(503, f"[-]config failed: {error.message}\n".encode(), TEXT_PLAIN)
        return _healthz()


@dataclass(frozen=True, slots=True)
class _DirectAccessGuard:
    """Rechecks the access of a long-running call."""

    deps: EndpointDependencies
    token: str
    identity: TokenIdentity
    request: DirectRequest

    def require(self, call: Call, target: RequestInfo) -> None:
        raise Forbidden("a direct token gives no access beyond the request it was used for")

    def recheck(self, call: Call) -> None:
        config = self.deps.config_cache.config
        try:
            identity = self.deps.authenticator.authenticate(self.token, config)
        except InvalidToken:
            raise Unauthorized(INVALID_TOKEN) from None
        if identity.user != self.identity.user:
            raise Expired("your user, or the scope of your token, has changed; repeat the request")
        _authorize(call, identity, self.request, config)


def _reject_token(call: Call, reason: str) -> Unauthorized:
    call.annotations[TOKEN_REJECTED_ANNOTATION] = reason
    return Unauthorized(INVALID_TOKEN)


def _authorize(call: Call, identity: TokenIdentity, request: DirectRequest, config: AgentConfig) -> str:
    """Authorizes the request and returns the gateway's title for messages.

    Raises Forbidden if the token's scope, the space's namespace or the missing verb `use` denies the request.
    """
    decision = inside_gateway(config.scope_names)(identity.user, request.gateway, request.target)
    call.decision = decision or ALLOWED
    if decision is not None:
        if decision.is_about_inner:
            raise forbidden_error(identity.user, request.target, decision)
        raise Forbidden(f'forbidden: User "{identity.user.name}" cannot use this gateway: {decision.reason}')
    if not request.name:
        title = f'cluster "{config.cluster}"'
        _check_use_permission(call, identity, config.allowed_uids, title)
        return title
    title = f'space "{request.name}" of project "{request.project}"'
    space = config.spaces.get((request.project, request.name))
    if space is None:
        raise NotFound(f"{title} is not in this cluster, or not ready; see its status at the Fairlead server")
    _check_use_permission(call, identity, space.allowed_uids, title)
    check_in_namespace(call.method, request.request_target, NamespaceScope(title, config.cluster, space.namespace))
    return title


def _check_use_permission(call: Call, identity: TokenIdentity, allowed_uids: frozenset[str], title: str) -> None:
    """Requires the verb `use`, as the server's gateways do. Without this check, the operator of another cluster's agent
    could replay tokens sent to that agent here."""
    user = identity.user
    if (
        user.uid in allowed_uids if user.uid else user.is_admin
    ):  # admins without a User object have no uid and all permissions
        return
    call.decision = Decision(False, f"no permission to use {title}")
    raise Forbidden(
        f'forbidden: User "{user.name}" cannot use {title}; ask an administrator of the Fairlead server to grant the '
        'verb "use" on it, which takes effect here within half a minute'
    )


def _healthz() -> Reply:
    return Reply(200, b"ok", TEXT_PLAIN)


def _version() -> Reply:
    return Reply(200, orjson.dumps({"gitVersion": f"v{__version__}", "platform": "fairlead-agent"}))
