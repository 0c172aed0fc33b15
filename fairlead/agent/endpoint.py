"""The direct endpoint: who asks, with which token, for what? Then it is handed on to the cluster next door.

Only direct tokens count here. An access key would have to be asked about at the server, and is refused. What somebody
may do inside is for the cluster's own permissions to say, as the user is handed on with its groups.
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

# DOC-MERGED gateway/direct/entrances
# Which way in is meant by a path of the direct endpoint, and what is asked behind it.
#
#     /kubernetes/cluster/...                              the cluster that the agent stands beside; it needs no name
#     /kubernetes/project/<project>/space/<name>/...       one namespace of it
#
# The path is taken as it was sent, once it is free of whatever two servers could read differently.


Route = Callable[[str, str, Mapping[str, list[str]], str], Target]
"""Method, path and query of a request to a Kubernetes API, and the sort of entrance to it: what is being asked."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked of the cluster: `target` has the entrance in `via`, `inner` is the path and query to send.

    Of a space, `project` and `name` say which one.
    """

    target: Target
    inner: str
    project: str = ""
    name: str = ""

    @property
    def entrance(self) -> Target:
        return self.target.via or self.target


def asked(call: Call, state: State, route: Route) -> Asked:
    """Raises BadRequest for a path that is none, and NotFound for one that leads nowhere here."""
    match plain_path(below(call.raw_target, 0)).split("/"):
        case ["", "kubernetes", "cluster", *_]:
            return _behind(call, gateway_target(CLUSTER, state.cluster), 2, route)
        case ["", "kubernetes", "project", project, "space", name, *_] if project and name:
            entrance = gateway_target(SPACE, name, state.names.namespace_prefix + project)
            return replace(_behind(call, entrance, 5, route), project=project, name=name)
        case ["", "kubernetes", "project", _, "virtualcluster", *_]:
            raise NotImplementedHere(
                "virtual clusters are not reached directly; use the same path at the Fairlead server"
            )
        case ["", "kubernetes", "management", *_]:
            raise NotFound("the management API is not here; ask the Fairlead server that this endpoint belongs to")
        case _:
            raise NotFound(
                "there is nothing here; a direct endpoint serves /kubernetes/cluster/... and "
                "/kubernetes/project/<project>/space/<name>/..."
            )


def _behind(call: Call, entrance: Target, steps: int, route: Route) -> Asked:
    inner = below(call.raw_target, steps)
    target = route(call.method, plain_path(inner), call.query, entrance.root)
    return Asked(replace(target, via=entrance), inner)


TEXT = "text/plain; charset=utf-8"
REFUSED = "service.sh/token-refused"
"""The annotation of audit events that says why a token was refused, which whoever sent it is not told."""
NO_IMPERSONATION = (
    "forbidden: a direct endpoint cannot check who may impersonate whom, which only the Fairlead server knows; send "
    "the request through the server's gateway, or come with a direct token that was made while impersonating"
)
NOT_FOR_THIS = (
    'forbidden: this token is not for cluster "{cluster}", but for those that its scope names or that its owner could '
    "use when it was made; make another one (`fairlead token create --cluster {cluster}`), which takes the verb "
    '"use" on the cluster or on a space in it'
)
LET_IN = Decision(True, "a direct token; the cluster's own permissions decide")


Proceed = Callable[[Call], Awaitable[Reply]]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the endpoint works with. `cluster` has the connection of the moment, `route` reads inner paths."""

    knowledge: Knowledge
    holders: Holders
    reports: Reports
    cluster: Callable[[], Upstream]
    route: Route
    accountable: Callable[[Call, Proceed], Awaitable[Reply]]
    """Goes on with a call, unless it could not be recorded."""


class Direct:
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
            raise Unauthorized("sign in with a direct token: `fairlead token create` prints one")
        holder, state = await self._known(call, token)
        call.user = holder.user
        self._with.reports.used(holder.token, holder.user.name)
        wanted = asked(call, state, self._with.route)
        call.target = wanted.target
        if call.headers.any_begins("impersonate-"):
            call.decision = Decision(False, "impersonation cannot be checked here")
            raise Forbidden(NO_IMPERSONATION)
        what = _let_in(call, holder, wanted, state)
        call.keeper = _Keeper(self._with, token, holder, wanted)
        try:
            upstream = self._with.cluster()
        except UpstreamError as error:
            raise as_api_error(error, what) from error
        return await self._with.accountable(call, _onward(upstream, holder, wanted, state, what))

    async def _known(self, call: Call, token: str) -> tuple[Holder, State]:
        """Whose token it is. It may be newer than what is known here, which is then asked for."""
        knowledge = self._with.knowledge
        try:
            state = knowledge.state
            return self._with.holders.of(token, state), state
        except (UnknownKey, NotKnownYet) as error:
            reason = str(error)
        except OtherCluster as error:
            call.annotations[REFUSED] = str(error)
            raise Forbidden(NOT_FOR_THIS.format(cluster=state.cluster)) from None
        except InvalidToken as error:
            raise _refused(call, str(error)) from None
        await knowledge.catch_up()
        if knowledge.state is state:
            raise _refused(call, reason)
        try:
            return self._with.holders.of(token, knowledge.state), knowledge.state
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
    """What a call was let in for, while it goes on."""

    around: Surroundings
    token: str
    holder: Holder
    wanted: Asked

    def require(self, call: Call, target: Target) -> None:
        raise Forbidden("a direct token gives no rights but to what it was used for")

    def recheck(self, call: Call) -> None:
        state = self.around.knowledge.state
        try:
            now = self.around.holders.of(self.token, state)
        except InvalidToken:
            raise Unauthorized(INVALID) from None
        if now.user != self.holder.user:
            raise Expired("who you are, or what your token reaches, has changed; begin again")
        _let_in(call, now, self.wanted, state)


def _onward(upstream: Upstream, holder: Holder, wanted: Asked, state: State, what: str) -> Proceed:
    def proceed(call: Call) -> Awaitable[Reply]:
        # The extra values are for audit logs here, and nobody has asked for them at the cluster.
        user = replace(holder.user, extra=())
        return forward(upstream, user, state.cluster_names, call, wanted.inner, what)

    return proceed


def _refused(call: Call, reason: str) -> Unauthorized:
    call.annotations[REFUSED] = reason
    return Unauthorized(INVALID)


def _let_in(call: Call, holder: Holder, wanted: Asked, state: State) -> str:
    """What is being entered, in words. Raises Forbidden for what the scope or the space keeps out, and for whom."""
    decision = inside_gateway(state.names)(holder.user, wanted.entrance, wanted.target)
    call.decision = decision or LET_IN
    if decision is not None:
        if decision.is_inside:
            raise forbidden(holder.user, wanted.target, decision)
        raise Forbidden(f'forbidden: User "{holder.user.name}" cannot enter here: {decision.reason}')
    if not wanted.name:
        title = f'cluster "{state.cluster}"'
        _refuse_stranger(call, holder, state.allowed, title)
        return title
    title = f'space "{wanted.name}" of project "{wanted.project}"'
    place = state.spaces.get((wanted.project, wanted.name))
    if place is None:
        raise NotFound(f"{title} is not in this cluster, or not ready; the Fairlead server knows where it is")
    _refuse_stranger(call, holder, place.allowed, title)
    confine(call.method, wanted.inner, Space(title, state.cluster, place.namespace))
    return title


def _refuse_stranger(call: Call, holder: Holder, allowed: frozenset[str], title: str) -> None:
    """The server's gateways ask for the right to `use` what they lead to, and so does this one: whoever runs another
    cluster's agent sees the tokens that come there, and is not to get in here with them as anybody at all."""
    user = holder.user
    if user.uid in allowed if user.uid else user.is_admin:  # administrators without a User have no uid, and all rights
        return
    call.decision = Decision(False, f"no right to use {title}")
    raise Forbidden(
        f'forbidden: User "{user.name}" cannot use {title}; have somebody grant the verb "use" on it at the Fairlead '
        "server, which this endpoint learns of within half a minute"
    )


def _well() -> Reply:
    return Reply(200, b"ok", TEXT)


def _version() -> Reply:
    return Reply(200, orjson.dumps({"gitVersion": f"v{__version__}", "platform": "fairlead-agent"}))
