"""Refreshes the sessions of single sign-on. Only the leader runs it.

Each session is checked with its provider once per interval, at a time that depends on its name, so that the checks are
spread. A provider that is down or slow delays only its own sessions: few of them are checked at the same time, and none
for a while after one got no response. An error response delays no other session: it may be about this user only.
"""

import hashlib
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from fairlead.authn.sign_on_policy import is_future
from fairlead.authn.sign_on_settings import Connector
from fairlead.core.clock import parse_rfc3339
from fairlead.core.errors import NotFound
from fairlead.core.objects import Object, get_path, name_of
from fairlead.kinds.access.access_key import OWNED_ACCESS_KEY, is_sso_login
from fairlead.kinds.clusters.config import CONFIG
from fairlead.registry.codec import decode
from fairlead.registry.registry import Registry
from fairlead.signin.sso.refresh import Check, SessionRefresher
from fairlead.storage.contract import Key
from fairlead.storage.view.view import Entry

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
