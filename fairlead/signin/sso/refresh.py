"""Checks sessions with their provider: whether the user is still there, and in which groups.

A session ends if the provider has revoked it or says something else about it, or if the user is no longer allowed. If
the provider cannot be reached, the session goes on for a while, and is marked as stale.

`SignOnSessionController`, which only the leader runs, checks each session once per interval, at a time that depends on
its name, so that the checks are spread. A provider that is down or slow delays only its own sessions: few of them are
checked at the same time, and none for a while after one got no response. An error response delays no other session: it
may be about this user only.
"""

import hashlib
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

import structlog

from fairlead.authn.sign_on_policy import SignOnReason, evaluate, is_future, stale_limit
from fairlead.authn.sign_on_settings import Connector, SignOnSettings
from fairlead.core.clock import parse_rfc3339, timestamp
from fairlead.core.errors import ApiError, NotFound
from fairlead.core.objects import Object, deep_copy, get_path, metadata, name_of
from fairlead.kinds.access.access_key import OWNED_ACCESS_KEY, is_sso_login
from fairlead.kinds.clusters.config import CONFIG
from fairlead.registry.codec import decode
from fairlead.registry.conditions import record_event
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import server_write_options
from fairlead.signin.login_sessions import LoginSessions
from fairlead.signin.oidc.errors import ProviderError, Reason
from fairlead.signin.sso.encryption import Undecryptable
from fairlead.signin.sso.identity import Identity, read_identity
from fairlead.signin.sso.provider_access import GrantRevoked, ProviderAccess, TokenSet
from fairlead.signin.sso.reasons import EndReason, SignOnCounters, SignOnRefused
from fairlead.signin.sso.sessions import SessionStore, SessionTokens
from fairlead.signin.sso.users import SignOnUsers
from fairlead.storage.contract import Key
from fairlead.storage.view.view import Entry

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
        count = await self._services.logins.end_login(name_of(login))
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


JITTER = 0.25
"""The part of the interval over which checks are spread. They are early, never late."""
MAX_RETRY_SECONDS = 60.0
PAUSE_SECONDS = 10.0
"""How long no session of a connector is checked after its provider could not be reached."""
MAX_CONCURRENT = 4
"""Sessions of one connector that are checked at the same time."""
BUSY_SECONDS = 2.0
_MARK = b'"identity":{'


class SignOnSessionController:
    name, workers = "sign-on-sessions", 16

    def __init__(self, registry: Registry, api_group: str, refresher: SessionRefresher) -> None:
        self.watches = ((api_group, OWNED_ACCESS_KEY.plural), (api_group, CONFIG.plural))
        self._registry = registry
        self._keys = registry.resource(api_group, OWNED_ACCESS_KEY.plural)
        self._resource = (api_group, OWNED_ACCESS_KEY.plural)
        self._refresher = refresher
        self._running: Counter[str] = Counter()
        self._paused_until: dict[str, float] = {}

    def keys_for(self, key: Key, entry: Entry | None) -> Iterable[Key]:
        """The login itself. All logins if the Config has changed."""
        if key[1] == CONFIG.plural:
            return self._all_logins()
        return (key,) if entry is not None and _MARK in entry.body else ()

    def _all_logins(self) -> Iterator[Key]:
        return (entry.key for entry in self._registry.view.entries(*self._resource) if _MARK in entry.body)

    async def reconcile(self, key: Key) -> float | None:
        entry = self._keys.get_cached("", key[3])
        login = decode(entry) if entry is not None else {}
        if not is_sso_login(login) or await self._refresher.end_if_invalid(login):
            return None
        connector = self._refresher.settings.get().connectors[login["spec"]["identity"]["connector"]]
        now = self._registry.clock.now()
        due = next_check(login, connector, now)
        if due is None:  # it cannot be refreshed, and ends with its key
            return None
        left = (due - now).total_seconds()
        return left if left > 0 else await self._check(login, connector)

    async def _check(self, login: Object, connector: Connector) -> float | None:
        now = self._registry.clock.monotonic()
        if now < self._paused_until.get(connector.id, now):
            if not get_path(login, "status.identity.stale"):
                await self._refresher.mark_stale(login, connector, "provider_unreachable")
            return self._paused_until[connector.id] - now + random.uniform(0, PAUSE_SECONDS)
        if self._running[connector.id] >= MAX_CONCURRENT:
            return random.uniform(BUSY_SECONDS / 2, BUSY_SECONDS)
        self._running[connector.id] += 1
        try:
            # A refresh token often works once, so it must be the current one, whatever the view has seen so far.
            current = decode(await self._keys.get("", name_of(login)))
            if get_path(current, "spec.identity") != get_path(login, "spec.identity"):
                return 0.0
            check = await self._refresher.refresh(current, connector)
        except NotFound:  # it was ended meanwhile
            return None
        finally:
            self._running[connector.id] -= 1
        if check is Check.PROVIDER_DOWN:
            self._paused_until[connector.id] = self._registry.clock.monotonic() + PAUSE_SECONDS
        # If it was written, its next check is computed again.
        return 0.0 if check is Check.DONE else retry_seconds(connector)


def next_check(login: Object, connector: Connector, now: datetime) -> datetime | None:
    """When a session has to be checked. None if it cannot be."""
    confirmed = parse_rfc3339(get_path(login, "spec.identity.identityRefresh"))
    if confirmed is None:
        return None
    if is_future(confirmed, now):
        return now
    digest = hashlib.blake2b(name_of(login).encode(), digest_size=4).digest()
    early = JITTER * int.from_bytes(digest, "big") / 2**32
    due = confirmed + timedelta(seconds=connector.refresh_seconds * (1 - early))
    attempt = parse_rfc3339(get_path(login, "status.identity.lastAttempt"))
    if attempt is not None and attempt > confirmed and not is_future(attempt, now):
        due = max(due, attempt + timedelta(seconds=retry_seconds(connector)))
    return due


def retry_seconds(connector: Connector) -> float:
    """The time between two attempts while the provider cannot be reached."""
    return min(MAX_RETRY_SECONDS, connector.refresh_seconds / 2)
