"""The direct endpoint: who asks, with which token, for what? Then it is handed on to the cluster next door.

Only direct tokens count here. An access key would have to be asked about at the server, and is refused. What somebody
may do inside is for the cluster's own permissions to say, as the user is handed on with its groups.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace

import orjson

from fairlead import __version__
from fairlead.authn.bearer import INVALID, bearer_token
from fairlead.authn.direct_tokens import LONGEST, InvalidToken, OtherCluster, UnknownKey
from fairlead.authz.chain import Decision
from fairlead.authz.refusal import forbidden
from fairlead.authz.scope import inside_gateway
from fairlead.core.call import Call, Reply, Target
from fairlead.core.errors import ApiError, Expired, Forbidden, NotFound, Unauthorized
from fairlead.gateway.answers import as_api_error
from fairlead.gateway.confinement import Space, confine
from fairlead.gateway.direct.entrances import Asked, Route, asked
from fairlead.gateway.direct.holders import Holder, Holders, NotKnownYet
from fairlead.gateway.direct.knowledge import Knowledge
from fairlead.gateway.direct.reports import Reports
from fairlead.gateway.direct.state import State
from fairlead.gateway.forward import forward
from fairlead.upstream.errors import UpstreamError
from fairlead.upstream.upstream import Upstream

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
