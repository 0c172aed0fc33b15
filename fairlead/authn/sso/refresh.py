"""Checks a session with its provider: whether the user is still there, and in which groups.

`controllers/access/sso_sessions.py` decides when. A session ends if the provider has revoked it or says something else
about it, or if the user is no longer allowed. If the provider cannot be reached, the session goes on for a while, and
is marked as stale.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import Enum

import structlog

from fairlead.authn.login_sessions import LoginSessions
from fairlead.authn.oidc.reasons import ProviderError, Reason
from fairlead.authn.sso.connectors import Connector, SignOnSettings
from fairlead.authn.sso.counters import SignOnCounters
from fairlead.authn.sso.encryption import Undecryptable
from fairlead.authn.sso.identity import Identity, read_identity
from fairlead.authn.sso.policy import is_future, stale_limit
from fairlead.authn.sso.provider_access import GrantRevoked, ProviderAccess, TokenSet
from fairlead.authn.sso.reasons import EndReason, SignOnReason, SignOnRefused
from fairlead.authn.sso.rules import evaluate
from fairlead.authn.sso.sessions import SessionStore, SessionTokens
from fairlead.authn.sso.users import SignOnUsers
from fairlead.core.clock import parse_rfc3339, timestamp
from fairlead.core.errors import ApiError, NotFound
from fairlead.core.objects import Object, deep_copy, get_path, metadata, name_of
from fairlead.registry.conditions import record_event
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import server_write_options

REFRESHED = "success"
_MESSAGES = {
    EndReason.GRANT_REVOKED: "the identity provider ended the session, or the user is gone there",
    EndReason.CONNECTOR_REMOVED: "its connector is not in the Config any more",
    EndReason.NOT_ALLOWED: "the Config does not allow the user to sign in any more",
    EndReason.STALE_TOO_LONG: "the identity provider could not be reached for too long",
    EndReason.IDENTITY_CHANGED: "the identity provider does not confirm the identity any more",
    EndReason.TOKEN_UNREADABLE: "its refresh token cannot be decrypted",
    EndReason.USER_REMOVED: "the user was removed or disabled",
}

_PROVIDER_DOWN = frozenset({Reason.PROVIDER_UNREACHABLE, Reason.PROVIDER_TIMEOUT, Reason.PROVIDER_TLS})

log = structlog.get_logger(__name__)


class Check(Enum):
    """The result of a check with the provider."""

    DONE = "done"
    FAILED = "failed"
    """The response was an error, or not readable. That may be so for this user only."""
    PROVIDER_DOWN = "provider-down"
    """There was no response. Others would get none either."""


@dataclass(frozen=True, slots=True)
class RefreshServices:
    settings: SignOnSettings
    provider: ProviderAccess
    sessions: SessionStore
    users: SignOnUsers
    logins: LoginSessions
    counters: SignOnCounters


class SessionRefresher:
    def __init__(self, registry: Registry, api_group: str, services: RefreshServices) -> None:
        self._registry = registry
        self._keys = registry.resource(api_group, "ownedaccesskeys")
        self._services = services

    @property
    def settings(self) -> SignOnSettings:
        return self._services.settings

    async def end_if_invalid(self, login: Object) -> bool:
        """Ends a session that needs no provider to be ended; returns whether it has."""
        reason = self._invalid_reason(login)
        if reason is not None:
            await self.end(login, reason)
        return reason is not None

    async def refresh(self, login: Object, connector: Connector) -> Check:
        """Checks a session with its provider."""
        config = self.settings.get()
        subject = get_path(login, "spec.identity.userId") or ""
        compared = config.compared_claims(connector.id)
        try:
            tokens = await self._services.sessions.read_tokens(login)
            answer = await self._services.provider.refresh(connector, tokens.refresh_token, subject, compared)
            await self._confirm(login, connector, tokens, answer)
        except Undecryptable:
            await self.end(login, EndReason.TOKEN_UNREADABLE)
        except GrantRevoked:
            await self.end(login, EndReason.GRANT_REVOKED)
        except ProviderError as error:
            await self.mark_stale(login, connector, error.reason.value)
            return Check.PROVIDER_DOWN if error.reason in _PROVIDER_DOWN else Check.FAILED
        except SignOnRefused as refused:
            if refused.reason is SignOnReason.CLIENT_SECRET_MISSING:
                await self.mark_stale(login, connector, refused.reason.value)
                return Check.FAILED
            await self.end(login, EndReason.IDENTITY_CHANGED, refused.detail or refused.reason.value)
        return Check.DONE

    async def mark_stale(self, login: Object, connector: Connector, reason: str) -> None:
        """Records a failed check. Ends the session if the last successful one is too long ago."""
        self._services.counters.refreshes[connector.id, reason] += 1
        now = self._registry.clock.now()
        confirmed = parse_rfc3339(get_path(login, "spec.identity.identityRefresh"))
        if confirmed is None or is_future(confirmed, now) or now - confirmed >= stale_limit(connector):
            await self.end(login, EndReason.STALE_TOO_LONG)
            return
        await self._write_state(login, {"stale": True, "reason": reason, "lastAttempt": timestamp(now)})

    async def end(self, login: Object, reason: EndReason, detail: str = "") -> None:
        connector = get_path(login, "spec.identity.connector") or ""
        user = get_path(login, "spec.user") or ""
        count = await self._services.logins.end_sso_login(name_of(login))
        if not count:
            return
        self._services.counters.ended_sessions[connector, reason.value] += 1
        log.info(
            "a session by single sign-on ended",
            user=user,
            connector=connector,
            why=reason.value,
            detail=detail,
            keys=count,
        )
        message = f"the session {name_of(login)} ended: {_MESSAGES.get(reason, reason.value)}"
        try:
            await record_event(self._registry, self._services.users.get(user) or login, "SignOnEnded", message)
        except ApiError as error:  # best effort: the session has ended
            log.info("an event about a session was not recorded", session=name_of(login), why=error.reason)

    def _invalid_reason(self, login: Object) -> EndReason | None:
        connector = self.settings.get().connectors.get(get_path(login, "spec.identity.connector") or "")
        if connector is None:
            return EndReason.CONNECTOR_REMOVED
        user = self._services.users.get(get_path(login, "spec.user") or "")
        if user is None or get_path(user, "spec.disabled") or "deletionTimestamp" in metadata(user):
            return EndReason.USER_REMOVED
        linked = get_path(user, "spec.issuer"), get_path(user, "spec.subject")
        if linked != (connector.issuer, get_path(login, "spec.identity.userId")):
            return EndReason.IDENTITY_CHANGED
        return None if self._services.users.is_allowed(user, self.settings.get(), connector) else EndReason.NOT_ALLOWED

    async def _confirm(self, login: Object, connector: Connector, tokens: SessionTokens, answer: TokenSet) -> None:
        """Writes what the provider said.

        A new refresh token first: the old one may not work any more. That the session was checked last: until then, the
        check is due, so that a group that was removed is gone with the next attempt if a write fails.
        """
        now = self._registry.clock.now()
        retained = SessionTokens(answer.refresh_token or tokens.refresh_token, answer.id_token or tokens.id_token)
        try:
            if retained.refresh_token != tokens.refresh_token:
                await self._write_rotated_token(login, retained)
            self._services.counters.refreshes[connector.id, REFRESHED] += 1
            if answer.claims is not None or answer.userinfo is not None:
                await self._apply(login, connector, self._read_identity(login, connector, answer))
            await self._write_session(login, retained, now)
        except NotFound:  # it was ended meanwhile
            return

    async def _write_rotated_token(self, login: Object, tokens: SessionTokens) -> None:
        """A failure does not delay what follows, which ends with a write of the same token."""
        try:
            await self._write_session(login, tokens, None)
        except NotFound:
            raise
        except ApiError as error:
            log.warning("a refresh token was not written yet", session=name_of(login), why=error.reason)

    def _read_identity(self, login: Object, connector: Connector, answer: TokenSet) -> Identity:
        compared = self.settings.get().compared_claims(connector.id)
        claims = answer.claims if answer.claims is not None else {"sub": get_path(login, "spec.identity.userId")}
        return read_identity(connector, claims, answer.userinfo, compared)

    async def _apply(self, login: Object, connector: Connector, identity: Identity) -> None:
        user = await self._services.users.find_current(identity.issuer, identity.subject)
        if user is None or name_of(user) != get_path(login, "spec.user"):
            await self.end(login, EndReason.USER_REMOVED)
            return
        await self._services.users.update(user, connector, identity)
        if evaluate(self.settings.get(), connector, identity.facts()).refusal is not None:
            await self.end(login, EndReason.NOT_ALLOWED)

    async def _write_session(self, login: Object, tokens: SessionTokens, checked_at: datetime | None) -> None:
        """Writes the tokens, and when the session was checked. Tokens that are too large are not written.

        The old ones stay then. If the provider does not accept them again, the next check ends the session.
        """
        data = await self._services.sessions.encrypt_tokens(name_of(login), tokens)

        def edit(old: Object) -> Object:
            new = deep_copy(old)
            session = new["spec"]["identity"]
            if checked_at is not None:
                session["identityRefresh"] = timestamp(checked_at)
            if data:
                session["connectorData"] = data
            return new

        await self._keys.modify("", name_of(login), edit, server_write_options())
        if checked_at is not None and get_path(login, "status.identity"):
            await self._write_state(login, {})

    async def _write_state(self, login: Object, state: Object) -> None:
        def edit(old: Object) -> Object:
            status = {name: value for name, value in (old.get("status") or {}).items() if name != "identity"}
            return {**old, "status": {**status, **({"identity": state} if state else {})}}

        try:
            await self._keys.modify("", name_of(login), edit, server_write_options("status"))
        except NotFound:  # it was ended meanwhile
            return
