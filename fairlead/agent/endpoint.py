"""The direct endpoint: authenticates direct tokens, authorizes the gateway, and forwards to the agent's cluster.

    /kubernetes/cluster/...                              the agent's cluster; the path has no cluster name
    /kubernetes/project/<project>/space/<name>/...       one namespace of it

Access keys are rejected: only the server can verify them. Requests impersonate the user and its groups, so the
cluster's RBAC decides what is allowed inside. Ambiguous paths are rejected, as in `gateway/routes.py`.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace

import orjson

from fairlead import __version__
from fairlead.agent.config_cache import Knowledge, State
from fairlead.agent.reports import Reports
from fairlead.agent.tokens import Holder, Holders, NotKnownYet
from fairlead.authn.credentials import INVALID, bearer_token
from fairlead.authn.direct_tokens import LONGEST, InvalidToken, OtherCluster, UnknownKey
from fairlead.authz import Decision
from fairlead.authz.authorizer import forbidden
from fairlead.authz.scope import gateway_target, inside_gateway
from fairlead.authz.scope.names import CLUSTER, SPACE
from fairlead.core.call import Call, Reply, Target
from fairlead.core.errors import ApiError, Expired, Forbidden, NotFound, NotImplementedHere, Unauthorized
from fairlead.gateway.headers import as_api_error
from fairlead.gateway.proxy import forward
from fairlead.gateway.routes import Space, below, confine, plain_path
from fairlead.upstream.errors import UpstreamError
from fairlead.upstream.upstream import Upstream

Route = Callable[[str, str, Mapping[str, list[str]], str], Target]
"""Resolves method, path, query and type of gateway to the request info of a Kubernetes API request."""
TEXT = "text/plain; charset=utf-8"
REFUSED = "service.sh/token-refused"
"""Audit annotation with the reason why a token was rejected, which the client is not told."""
NO_IMPERSONATION = (
    "forbidden: a direct endpoint cannot authorize impersonation, only the Fairlead server can; send the request "
    "through the server's gateway, or use a direct token that was created while impersonating"
)
NOT_FOR_THIS = (
    'forbidden: this token is not valid for cluster "{cluster}", but only for the clusters in its scope, or those that '
    "its owner could use when it was created; create another one (`fairlead token create --cluster {cluster}`), which "
    'requires the verb "use" on the cluster or on a space in it'
)
LET_IN = Decision(True, "a direct token; the cluster's own RBAC decides")

Proceed = Callable[[Call], Awaitable[Reply]]


@dataclass(frozen=True, slots=True)
class Asked:
    """A parsed request. `target` has the gateway; `request_target` is the path and query to forward.

    `project` and `name` identify the space; empty for the gateway of the cluster.
    """

    target: Target
    inner: str
    project: str = ""
    name: str = ""

    @property
    def entrance(self) -> Target:
        return self.target.via or self.target


def asked(call: Call, state: State, route: Route) -> Asked:
    """Raises BadRequest for an ambiguous path, and NotFound for one that is not served here."""
    match plain_path(below(call.raw_target, 0)).split("/"):
        case ["", "kubernetes", "cluster", *_]:
            return _behind(call, gateway_target(CLUSTER, state.cluster), 2, route)
        case ["", "kubernetes", "project", project, "space", name, *_] if project and name:
            gateway = gateway_target(SPACE, name, state.names.namespace_prefix + project)
            return replace(_behind(call, gateway, 5, route), project=project, name=name)
        case ["", "kubernetes", "project", _, "virtualcluster", *_]:
            raise NotImplementedHere(
                "virtual clusters are not available at a direct endpoint; use the same path at the Fairlead server"
            )
        case ["", "kubernetes", "management", *_]:
            raise NotFound("the management API is not available at a direct endpoint; use the Fairlead server")
        case _:
            raise NotFound(
                "not found; a direct endpoint serves /kubernetes/cluster/... and "
                "/kubernetes/project/<project>/space/<name>/..."
            )


def _behind(call: Call, entrance: Target, steps: int, route: Route) -> Asked:
    request_target = below(call.raw_target, steps)
    target = route(call.method, plain_path(request_target), call.query, entrance.root)
    return Asked(replace(target, via=entrance), request_target)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Dependencies of the endpoint. `cluster` returns the current Upstream, `route` resolves forwarded paths."""

    knowledge: Knowledge
    holders: Holders
    reports: Reports
    cluster: Callable[[], Upstream]
    route: Route
    accountable: Callable[[Call, Proceed], Awaitable[Reply]]
    """Calls the handler, or fails if the call cannot be audited."""


class Direct:
    """Handles all requests to the direct endpoint."""

    def __init__(self, surroundings: Surroundings) -> None:
        self._with = surroundings
        self._public: Mapping[str, Callable[[], Reply]] = {
            "/healthz": _well,
            "/livez": _well,
            "/readyz": self._ready,
            "/version": _version,
        }

    async def __call__(self, call: Call) -> Reply:
        public = self._public.get(call.path) if call.method in ("GET", "HEAD") else None
        if public is not None:
            call.target = Target("get", call.path)
            return public()
        token = bearer_token(call, LONGEST)
        if token is None:
            raise Unauthorized("authenticate with a direct token: `fairlead token create` prints one")
        identity, config = await self._known(call, token)
        call.user = identity.user
        self._with.reports.used(identity.token, identity.user.name)
        request = asked(call, config, self._with.route)
        call.target = request.target
        if call.headers.any_begins("impersonate-"):
            call.decision = Decision(False, "impersonation cannot be authorized here")
            raise Forbidden(NO_IMPERSONATION)
        title = _let_in(call, identity, request, config)
        call.keeper = _Keeper(self._with, token, identity, request)
        try:
            upstream = self._with.cluster()
        except UpstreamError as error:
            raise as_api_error(error, title) from error
        return await self._with.accountable(call, _onward(upstream, identity, request, config, title))

    async def _known(self, call: Call, token: str) -> tuple[Holder, State]:
        """Authenticates the token. If it is newer than the cached configuration, refreshes that first."""
        config_cache = self._with.knowledge
        try:
            config = config_cache.state
            return self._with.holders.of(token, config), config
        except (UnknownKey, NotKnownYet) as error:
            reason = str(error)
        except OtherCluster as error:
            call.annotations[REFUSED] = str(error)
            raise Forbidden(NOT_FOR_THIS.format(cluster=config.cluster)) from None
        except InvalidToken as error:
            raise _refused(call, str(error)) from None
        await config_cache.catch_up()
        if config_cache.state is config:
            raise _refused(call, reason)
        try:
            return self._with.holders.of(token, config_cache.state), config_cache.state
        except InvalidToken as error:
            raise _refused(call, str(error)) from None

    def _ready(self) -> Reply:
        try:
            _ = self._with.knowledge.state
        except ApiError as error:
            return Reply(503, f"[-]knowledge failed: {error.message}\n".encode(), TEXT)
        return _well()


@dataclass(frozen=True, slots=True)
class _Keeper:
    """Rechecks the access of a long-running call."""

    around: Surroundings
    token: str
    holder: Holder
    wanted: Asked

    def require(self, call: Call, target: Target) -> None:
        raise Forbidden("a direct token gives no access beyond the request it was used for")

    def recheck(self, call: Call) -> None:
        config = self.around.knowledge.state
        try:
            identity = self.around.holders.of(self.token, config)
        except InvalidToken:
            raise Unauthorized(INVALID) from None
        if identity.user != self.holder.user:
            raise Expired("your user, or the scope of your token, has changed; repeat the request")
        _let_in(call, identity, self.wanted, config)


def _onward(upstream: Upstream, holder: Holder, wanted: Asked, state: State, what: str) -> Proceed:
    def proceed(call: Call) -> Awaitable[Reply]:
        # The extra values are for our own audit log, and are not sent to the cluster.
        user = replace(holder.user, extra=())
        return forward(upstream, user, state.cluster_names, call, wanted.inner, what)

    return proceed


def _refused(call: Call, reason: str) -> Unauthorized:
    call.annotations[REFUSED] = reason
    return Unauthorized(INVALID)


def _let_in(call: Call, holder: Holder, wanted: Asked, state: State) -> str:
    """Authorizes the request and returns the gateway's title for messages.

    Raises Forbidden if the token's scope, the space's namespace or the missing verb `use` denies the request.
    """
    decision = inside_gateway(state.names)(holder.user, wanted.entrance, wanted.target)
    call.decision = decision or LET_IN
    if decision is not None:
        if decision.is_inside:
            raise forbidden(holder.user, wanted.target, decision)
        raise Forbidden(f'forbidden: User "{holder.user.name}" cannot use this gateway: {decision.reason}')
    if not wanted.name:
        title = f'cluster "{state.cluster}"'
        _refuse_stranger(call, holder, state.allowed, title)
        return title
    title = f'space "{wanted.name}" of project "{wanted.project}"'
    space = state.spaces.get((wanted.project, wanted.name))
    if space is None:
        raise NotFound(f"{title} is not in this cluster, or not ready; see its status at the Fairlead server")
    _refuse_stranger(call, holder, space.allowed, title)
    confine(call.method, wanted.inner, Space(title, state.cluster, space.namespace))
    return title


def _refuse_stranger(call: Call, holder: Holder, allowed: frozenset[str], title: str) -> None:
    """Requires the verb `use`, as the server's gateways do. Without this check, the operator of another cluster's agent
    could replay tokens sent to that agent here."""
    user = holder.user
    if (
        user.uid in allowed if user.uid else user.is_admin
    ):  # admins without a User object have no uid and all permissions
        return
    call.decision = Decision(False, f"no permission to use {title}")
    raise Forbidden(
        f'forbidden: User "{user.name}" cannot use {title}; ask an administrator of the Fairlead server to grant the '
        'verb "use" on it, which takes effect here within half a minute'
    )


def _well() -> Reply:
    return Reply(200, b"ok", TEXT)


def _version() -> Reply:
    return Reply(200, orjson.dumps({"gitVersion": f"v{__version__}", "platform": "fairlead-agent"}))
