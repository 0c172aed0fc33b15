"""The endpoints of single sign-on, for browsers and providers: `/auth/<connector>/login`, `callback` and logouts.

All are public. A failed sign-on leads to the console with a reason out of a fixed list (`signin/sso/reasons.py`), and
the audit log has the same reason. No text of a provider is shown, and no code, state or token is logged.

The session cookie is `SameSite=Strict`, so browsers do not send it with the redirect from the callback, which another
site began. That is no problem: the console's page is public, and its own requests, which are same-origin, have it.

Networks from which many sign-ons have failed are delayed. Guessing is hopeless here: state and code are long and
random. The delay protects the provider, which each attempt asks. It is in memory, of limited size, and per process.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, urlencode

import structlog

from fairlead.authn.credentials import set_cookie_header
from fairlead.authn.sign_on_policy import SignOnReason
from fairlead.core.backoff import BackoffPolicy
from fairlead.core.call import Call, Handler, Reply
from fairlead.core.clock import Clock
from fairlead.core.errors import ApiError, BadRequest, MethodNotAllowed
from fairlead.core.objects import Object, metadata, name_of
from fairlead.core.refusals import SIGN_ON, note_refused_login
from fairlead.core.user import User
from fairlead.server.api.content import JSON
from fairlead.server.api.routing import endpoint_name
from fairlead.server.discovery.health import TEXT
from fairlead.server.flow.attempts import MAX_COUNTERS, FailureCounts, client_network
from fairlead.signin.login_sessions import LoginSessions
from fairlead.signin.oauth import OAuthError, read_form
from fairlead.signin.oidc.errors import ProviderError, TokenRejected
from fairlead.signin.sso.reasons import SignOnCounters, SignOnRefused
from fairlead.signin.sso.service import AuthorizationResponse, ProviderLogout, SignedOn, SignOnService

DEFAULT_RETURN_PATH = "/console/"
MAX_RETURN_PATH_LENGTH = 2_048
_ALLOWED = re.compile(r"/console/[A-Za-z0-9/._~!$&'()*+,;=:@%?-]*")


def check_return_path(path: str) -> str:
    """The path, if it is one of the console. Raises SignOnRefused for any other address.

    Neither an address of another server, nor one that a browser could read as such, nor one that leaves the console.
    """
    plain = unquote(path)
    segments = plain.partition("?")[0].split("/")
    if (
        len(path) > MAX_RETURN_PATH_LENGTH
        or not _ALLOWED.fullmatch(path)
        or not plain.isprintable()
        or "\\" in plain
        or not {".", ".."}.isdisjoint(segments)
        or "" in segments[1:-1]
    ):
        raise SignOnRefused(SignOnReason.INVALID_RETURN_PATH)
    return path


NETWORK_FAILURES = BackoffPolicy(first_seconds=1.0, max_seconds=60.0, free_attempts=20)
"""Many users may share an address behind a proxy, so the first failures have no delay."""


class SignOnThrottle:
    def __init__(self, clock: Clock, max_counters: int = MAX_COUNTERS) -> None:
        self._counts = FailureCounts(clock, max_counters)

    def wait_seconds(self, client: str, purpose: str = "") -> int:
        """How long a client has to wait before its next attempt. 0 if it need not. Purposes are counted separately."""
        return max(0, math.ceil(self._counts.remaining_seconds((purpose, client_network(client)), NETWORK_FAILURES)))

    def record_failure(self, client: str, purpose: str = "") -> None:
        self._counts.add((purpose, client_network(client)))


BEGIN, CALLBACK = ("get", "/auth/*/login"), ("get", "/auth/*/callback")
BACK_CHANNEL, FRONT_CHANNEL = ("post", "/auth/*/backchannel-logout"), ("get", "/auth/*/frontchannel-logout")
"""Verb and path of the endpoints, which need no authentication. The name of a connector takes the place of `*`."""

CONNECTOR_ANNOTATION, REASON_ANNOTATION = "service.sh/sign-on-connector", "service.sh/sign-on-reason"
DETAIL_ANNOTATION, RULES_ANNOTATION = "service.sh/sign-on-detail", "service.sh/sign-on-rules"
"""Annotations of the audit event: the connector, why it failed, the matching rules."""
SUCCESS = "success"
MAX_ANNOTATED_RULES = 20
MAX_PARAMETER_LENGTH = 8_192

_NO_BLAME = frozenset(
    {
        *(SignOnReason.PROVIDER_UNAVAILABLE, SignOnReason.PROVIDER_MISCONFIGURED, SignOnReason.CLIENT_SECRET_MISSING),
        *(SignOnReason.UNKNOWN_CONNECTOR, SignOnReason.INVALID_RETURN_PATH, SignOnReason.TOO_MANY_ATTEMPTS),
        *(SignOnReason.STATE_MISSING, SignOnReason.STATE_MISMATCH, SignOnReason.STATE_EXPIRED),
        *(SignOnReason.ISSUER_MISMATCH, SignOnReason.ACCESS_DENIED, SignOnReason.PROVIDER_ERROR),
    }
)
"""Reasons that do not count for the throttle: they are no fault of the client, or cost the provider nothing.

A page of another site can make a browser fail without a cookie as often as it likes, which must not delay its user.
Once the code of a sign-on is sent to the provider, every failure counts: a client could repeat that with one cookie.
"""
_LOGOUTS = "logout:"
"""Guesses of session ids are counted apart from sign-ons."""
_STATUS = {SignOnReason.PROVIDER_UNAVAILABLE: 503, SignOnReason.TOO_MANY_ATTEMPTS: 429}
_PRIVATE_HEADERS = [("cache-control", "no-store"), ("referrer-policy", "no-referrer"), ("pragma", "no-cache")]

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SignOnHandlers:
    """The handlers. Without the console, results are plain text."""

    service: SignOnService
    logins: LoginSessions
    throttle: SignOnThrottle
    has_console: bool = True
    counters: SignOnCounters = field(default_factory=SignOnCounters)

    def public_endpoints(self) -> Mapping[tuple[str, str], Handler]:
        return {
            BEGIN: self.begin,
            CALLBACK: self.finish,
            BACK_CHANNEL: self.back_channel_logout,
            FRONT_CHANNEL: self.front_channel_logout,
        }

    def list_methods(self) -> list[Object]:
        return [
            {
                "id": each.id,
                "displayName": each.display_name,
                "loginEndpoint": f"/auth/{each.id}/login",
                "logoutEndpoint": "/auth/logout",
            }
            for each in self.service.config.connectors.values()
        ]

    def prepare_logout(self, key: str, return_url: str) -> ProviderLogout | None:
        login = self.logins.find_sso_login(key)
        try:
            return self.service.prepare_logout(login, return_url) if login is not None else None
        except SignOnRefused:
            raise BadRequest("postLogoutURL is not in postLogoutURLs of the connector; leave it out") from None

    async def logout_url(self, logout: ProviderLogout) -> str:
        try:
            return await self.service.logout_url(logout)
        except ApiError as error:  # the user is signed out of this server; that is the part that must not fail
            log.warning("there is no logout at the provider", connector=logout.connector.id, why=error.reason)
            return ""

    async def begin(self, call: Call) -> Reply:
        """Sends the browser to the provider."""
        connector = endpoint_name(call.target.path)
        cookies = call.headers.get_all("cookie")
        try:
            self._check_throttle(call)
            path = check_return_path(_single(call, "return") or DEFAULT_RETURN_PATH)
            url, cookie = await self.service.begin(connector, path, cookies)
        except SignOnRefused as refused:
            return self._refuse(call, connector, refused)
        call.annotations[CONNECTOR_ANNOTATION] = connector
        return _redirect(url, ("set-cookie", cookie))

    async def finish(self, call: Call) -> Reply:
        """Takes the response of the provider, and signs the browser in."""
        if call.method != "GET":  # HEAD is routed like GET, and must not use up the code
            raise MethodNotAllowed(f"{call.method} is not supported here; use GET")
        connector = endpoint_name(call.target.path)
        cookies = call.headers.get_all("cookie")
        state = ""
        try:
            self._check_throttle(call)
            response = _read_response(call)
            state = response.state
            result = await self.service.finish(connector, response, cookies, call.headers.get("user-agent", ""))
        except SignOnRefused as refused:
            return self._refuse(call, connector, refused, await self.service.remaining_cookie(cookies, state))
        self._record_success(call, connector, result)
        headers = (
            ("set-cookie", set_cookie_header(result.key.value, result.ttl)),
            ("set-cookie", await self.service.remaining_cookie(cookies, state)),
        )
        if not self.has_console:
            return _text(200, "You are signed in. You can close this window.\n", *headers)
        return _redirect(result.return_path, *headers)

    async def back_channel_logout(self, call: Call) -> Reply:
        """OpenID Connect Back-Channel Logout 1.0: the provider ends sessions."""
        connector = endpoint_name(call.target.path)
        try:  # not throttled: failures of others from the same address must not keep sessions alive
            form = await read_form(call)
            await self.service.provider_logout(connector, form.get("logout_token", ""))
        except OAuthError:
            return _invalid_request()
        except (SignOnRefused, TokenRejected, ProviderError) as error:
            self._count_failure(call, connector, error)
            return _invalid_request() if not isinstance(error, ProviderError) else _provider_unavailable()
        call.annotations[CONNECTOR_ANNOTATION] = connector
        return Reply(200, b"", "", list(_PRIVATE_HEADERS), cacheable=True)

    async def front_channel_logout(self, call: Call) -> Reply:
        """OpenID Connect Front-Channel Logout 1.0: a page of the provider loads this in a frame.

        The frame has no cookie of this server, so the session is found by its id, which only the provider knows.
        """
        connector = endpoint_name(call.target.path)
        try:
            if self.throttle.wait_seconds(call.source, _LOGOUTS):
                raise SignOnRefused(SignOnReason.TOO_MANY_ATTEMPTS)
            if not await self.service.end_session(connector, _single(call, "iss"), _single(call, "sid")):
                raise SignOnRefused(SignOnReason.STATE_MISMATCH)
        except SignOnRefused as refused:
            self._count_failure(call, connector, refused)
            if refused.reason is not SignOnReason.TOO_MANY_ATTEMPTS:
                self.throttle.record_failure(call.source, _LOGOUTS)
            return _text(400, "There is no such session.\n")
        call.annotations[CONNECTOR_ANNOTATION] = connector
        return _text(200, "Signed out.\n")

    def _check_throttle(self, call: Call) -> None:
        if self.throttle.wait_seconds(call.source):
            raise SignOnRefused(SignOnReason.TOO_MANY_ATTEMPTS)

    def _record_success(self, call: Call, connector: str, result: SignedOn) -> None:
        name = name_of(result.user)
        call.user = User(name, uid=metadata(result.user)["uid"], key=result.key.name)
        rules = [rule.id for rule in result.verdict.rules]
        call.annotations[CONNECTOR_ANNOTATION] = connector
        if rules:
            call.annotations[RULES_ANNOTATION] = ",".join(rules[:MAX_ANNOTATED_RULES])
        self.counters.sign_ons[connector, SUCCESS] += 1

    def _refuse(self, call: Call, connector: str, refused: SignOnRefused, cookie: str = "") -> Reply:
        self._count_failure(call, connector, refused)
        reason = refused.reason
        headers = (("set-cookie", cookie),) if cookie else ()
        if self.has_console:
            known = connector if connector in self.service.config.connectors else ""
            query = urlencode({"signInError": reason.value, **({"connector": known} if known else {})})
            return _redirect(f"{DEFAULT_RETURN_PATH}?{query}", *headers)
        status = _STATUS.get(reason, 403)
        return _text(status, f"The sign-on failed: {reason.value.replace('_', ' ')}.\n", *headers)

    def _count_failure(self, call: Call, connector: str, error: SignOnRefused | TokenRejected | ProviderError) -> None:
        """Records a failure in the audit event, the log, the metrics and the throttle."""
        known = connector if connector in self.service.config.connectors else "unknown"
        detail = error.detail if isinstance(error, SignOnRefused) else ""
        call.annotations[CONNECTOR_ANNOTATION] = known
        call.annotations[REASON_ANNOTATION] = error.reason.value
        if detail:
            call.annotations[DETAIL_ANNOTATION] = detail
        if not isinstance(error, ProviderError) and error.reason is not SignOnReason.PROVIDER_UNAVAILABLE:
            note_refused_login(call, SIGN_ON, error.reason.value)
        self.counters.sign_ons[known, error.reason.value] += 1
        if isinstance(error, SignOnRefused) and (error.sent_code or error.reason not in _NO_BLAME):
            self.throttle.record_failure(call.source)
        log.info("a sign-on failed", connector=known, why=error.reason.value, detail=detail, audit_id=call.audit_id)


def _read_response(call: Call) -> AuthorizationResponse:
    """The parameters of the callback. Each may occur once."""
    state, code, error = (_single(call, name) for name in ("state", "code", "error"))
    if not state:
        raise SignOnRefused(SignOnReason.STATE_MISSING)
    if not code and not error:
        raise SignOnRefused(SignOnReason.PROVIDER_ERROR, "there is no code")
    return AuthorizationResponse(state, code, error, _single(call, "iss") if "iss" in call.query else None)


def _single(call: Call, name: str) -> str:
    """A parameter that may occur once; empty if it is absent."""
    values = call.query.get(name) or [""]
    if len(values) > 1 or len(values[0]) > MAX_PARAMETER_LENGTH:
        raise SignOnRefused(SignOnReason.PROVIDER_ERROR, f"{name} is repeated or too long")
    return values[0]


def _invalid_request() -> Reply:
    return Reply(400, b'{"error":"invalid_request"}', JSON, list(_PRIVATE_HEADERS), cacheable=True)


def _provider_unavailable() -> Reply:
    """The token could not be verified: the provider may send it again."""
    return Reply(503, b'{"error":"temporarily_unavailable"}', JSON, list(_PRIVATE_HEADERS), cacheable=True)


def _redirect(location: str, *headers: tuple[str, str]) -> Reply:
    return Reply(303, b"", "", [("location", location), *_PRIVATE_HEADERS, *headers], cacheable=True)


def _text(status: int, text: str, *headers: tuple[str, str]) -> Reply:
    return Reply(status, text.encode(), TEXT, [*_PRIVATE_HEADERS, *headers], cacheable=True)
