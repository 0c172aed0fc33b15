"""Single sign-on without HTTP: begins and finishes sign-ons, ends sessions on behalf of the provider.

`signin/sso/endpoints.py` calls it for requests of browsers and providers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import structlog

from fairlead.authn.sign_on_policy import SignOnReason, Verdict, evaluate
from fairlead.authn.sign_on_settings import Connector, SignOnConfig, SignOnSettings
from fairlead.core.clock import Clock
from fairlead.core.objects import Object, get_path, name_of
from fairlead.kinds.access.access_key import MAX_LOGINS
from fairlead.signin.login_sessions import IssuedKey, LoginSessions
from fairlead.signin.oidc.tokens import Claims
from fairlead.signin.sso.consumed import ConsumedValues
from fairlead.signin.sso.encryption import Undecryptable
from fairlead.signin.sso.identity import read_identity
from fairlead.signin.sso.pending import LIFETIME_SECONDS, PendingSignOn, PendingSignOns, is_fresh, take
from fairlead.signin.sso.provider_access import ProviderAccess, TokenSet
from fairlead.signin.sso.reasons import EndReason, SignOnRefused
from fairlead.signin.sso.sessions import SessionStore
from fairlead.signin.sso.users import SignOnUsers

CONSUMED_MARGIN_SECONDS = 120

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class AuthorizationResponse:
    """What the provider sent to the callback, by the browser. `issuer` is None if there was no `iss`."""

    state: str
    code: str = ""
    error: str = ""
    issuer: str | None = None


@dataclass(frozen=True, slots=True)
class SignedOn:
    """A finished sign-on."""

    user: Object
    key: IssuedKey
    ttl: int
    return_path: str
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class ProviderLogout:
    """A logout at the provider, after that of this server. The provider redirects to `return_url`."""

    connector: Connector
    login: Object = field(repr=False)
    return_url: str


@dataclass(frozen=True, slots=True)
class SignOnServices:
    """What a sign-on needs. All of it works on the store, so that any replica can finish what another began."""

    settings: SignOnSettings
    provider: ProviderAccess
    pending: PendingSignOns
    sessions: SessionStore
    users: SignOnUsers
    logins: LoginSessions
    consumed: ConsumedValues
    clock: Clock
    base_url: str
    """The address of this server for browsers. Never taken from a request."""


class SignOnService:
    def __init__(self, services: SignOnServices) -> None:
        self._services = services

    @property
    def config(self) -> SignOnConfig:
        return self._services.settings.get()

    def connector(self, id: str) -> Connector:
        connector = self.config.connectors.get(id)
        if connector is None:
            raise SignOnRefused(SignOnReason.UNKNOWN_CONNECTOR)
        return connector

    async def begin(self, id: str, return_path: str, cookies: Sequence[str]) -> tuple[str, str]:
        """Begins a sign-on. Returns the address at the provider, and the Set-Cookie value."""
        services, connector = self._services, self.connector(id)
        now = services.clock.now()
        pending = PendingSignOn.begin(id, return_path, now)
        url = await services.provider.authorization_url(connector, self._redirect_uri(id), pending)
        others = [each for each in await services.pending.read(cookies) if is_fresh(each, now)]
        return url, await services.pending.write([*others, pending])

    async def remaining_cookie(self, cookies: Sequence[str], state: str) -> str:
        """The Set-Cookie value without the sign-on of this state, which has ended."""
        pending = await self._services.pending.read(cookies)
        now = self._services.clock.now()
        return await self._services.pending.write(
            [each for each in pending if each.state != state and is_fresh(each, now)]
        )

    async def finish(
        self, id: str, response: AuthorizationResponse, cookies: Sequence[str], user_agent: str
    ) -> SignedOn:
        """Finishes a sign-on. Raises SignOnRefused; then nothing was written."""
        services, config, connector = self._services, self.config, self.connector(id)
        pending, _ = take(await services.pending.read(cookies), id, response.state, services.clock.now())
        await services.provider.check_response_issuer(connector, response.issuer)
        if response.error:
            is_denied = response.error == "access_denied"
            raise SignOnRefused(SignOnReason.ACCESS_DENIED if is_denied else SignOnReason.PROVIDER_ERROR)
        try:
            return await self._complete(config, connector, pending, response.code, user_agent)
        except SignOnRefused as refused:
            refused.sent_code = True
            raise

    async def _complete(
        self, config: SignOnConfig, connector: Connector, pending: PendingSignOn, code: str, user_agent: str
    ) -> SignedOn:
        """Redeems the code, and signs its user in."""
        services, compared = self._services, config.compared_claims(connector.id)
        tokens = await services.provider.redeem_code(
            connector, self._redirect_uri(connector.id), pending, code, compared
        )
        assert tokens.claims is not None
        identity = read_identity(connector, tokens.claims, tokens.userinfo, compared)
        verdict = evaluate(config, connector, identity.facts())
        if verdict.refusal is not None:
            raise SignOnRefused(verdict.refusal)
        if not await services.consumed.consume("state", pending.state, LIFETIME_SECONDS + CONSUMED_MARGIN_SECONDS):
            raise SignOnRefused(SignOnReason.STATE_REUSED)
        user = await services.users.sign_on(connector, identity)
        now = services.clock.now()
        ttl = services.logins.ttl()
        login = await services.sessions.build_login(user, connector, identity, tokens, now, ttl)
        key = await services.logins.create_sso(replace(login, user_agent=user_agent))
        await services.logins.revoke_all(name_of(user), keep=key.name, newest=MAX_LOGINS - 1)
        return SignedOn(user, key, login.ttl, pending.return_path, verdict)

    async def provider_logout(self, id: str, token: str) -> int:
        """Back-channel logout: ends the sessions that a logout token names, and returns how many keys ended.

        Raises SignOnRefused, TokenRejected or ProviderError.
        """
        services, connector = self._services, self.connector(id)
        claims = await services.provider.verify_logout(connector, token)
        value = f"{id}\0{claims.token_id}"
        if await services.consumed.is_consumed("logout", value):
            raise SignOnRefused(SignOnReason.STATE_REUSED)
        ended = await self._end_named_sessions(connector, claims)
        seconds = claims.expires_at - services.clock.now().timestamp() + CONSUMED_MARGIN_SECONDS
        await services.consumed.consume("logout", value, seconds)
        log.info("a provider ended sessions", connector=id, keys=ended, why=EndReason.PROVIDER_LOGOUT.value)
        return ended

    async def end_session(self, id: str, issuer: str, session: str) -> int:
        """Front-channel logout: ends the sessions with this id at the provider, also those that began just now."""
        connector = self.connector(id)
        if issuer != connector.issuer or not session:
            raise SignOnRefused(SignOnReason.ISSUER_MISMATCH)
        return await self._end_all(await self._services.logins.find_by_session(id, session))

    def prepare_logout(self, login: Object, return_url: str) -> ProviderLogout | None:
        """What `logout_url` needs, read before the login is deleted. None if its connector was removed.

        Raises SignOnRefused if the provider must not redirect to `return_url`.
        """
        connector = self.config.connectors.get(get_path(login, "spec.identity.connector") or "")
        if connector is None:
            return None
        default = f"{self._services.base_url}/console/"
        if return_url and return_url not in (default, *connector.client.post_logout_urls):
            raise SignOnRefused(SignOnReason.INVALID_RETURN_PATH)
        return ProviderLogout(connector, login, return_url or default)

    async def logout_url(self, logout: ProviderLogout) -> str:
        """The address at the provider that ends its session, too. Empty if there is none."""
        try:
            tokens = await self._services.sessions.read_tokens(logout.login)
        except Undecryptable:
            return ""
        return await self._services.provider.logout_url(logout.connector, tokens.id_token, logout.return_url)

    async def _end_named_sessions(self, connector: Connector, claims: Claims) -> int:
        services, session = self._services, claims.get("sid")
        if isinstance(session, str) and session:
            found = await services.logins.find_by_session(connector.id, session)
            same = [each for each in found if claims.subject in ("", get_path(each, "spec.identity.userId"))]
            return await self._end_all(same)
        user = await services.users.find_current(connector.issuer, claims.subject)
        return 0 if user is None else await services.logins.end_sso_logins(name_of(user), connector.id)

    async def _end_all(self, logins: Sequence[Object]) -> int:
        return sum([await self._services.logins.end_login(name_of(each)) for each in logins])

    def _redirect_uri(self, id: str) -> str:
        return f"{self._services.base_url}/auth/{id}/callback"


__all__ = ["AuthorizationResponse", "ProviderLogout", "SignOnService", "SignOnServices", "SignedOn", "TokenSet"]
