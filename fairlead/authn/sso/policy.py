"""Single sign-on on each authentication: which users and sessions count, and what groups the users have.

`PrincipalDirectory` and `AccessKeyAuthenticator` ask it, so a change of the Config takes effect with the next request:
the keys of a removed connector, and of users who are no longer allowed, are rejected.
"""

from datetime import datetime, timedelta

from fairlead.authn.sso.connectors import Connector, SignOnSettings
from fairlead.authn.sso.counters import SignOnCounters
from fairlead.authn.sso.rules import Facts, Verdict, evaluate
from fairlead.core.clock import parse_rfc3339
from fairlead.core.objects import Object, get_path
from fairlead.storage.view.view import View

REFRESH_MARGIN = timedelta(seconds=60)
"""How much later than due a refresh may be before authentication itself rejects the session."""

_LOCAL_USER = Verdict(None)


class SignOnPolicy:
    def __init__(self, view: View, api_group: str) -> None:
        self.settings = SignOnSettings(view, api_group)
        self.counters = SignOnCounters()

    def generation(self) -> int:
        """Changes whenever a verdict about a user may have changed, apart from changes of the user."""
        return self.settings.generation()

    def verdict(self, user: Object) -> Verdict | None:
        """What the settings say about a stored user. None if the user's provider is not configured.

        A user without an issuer is local: always allowed, and no rule applies.
        """
        issuer = get_path(user, "spec.issuer")
        if not issuer:
            return _LOCAL_USER
        config = self.settings.get()
        connector = config.by_issuer.get(issuer)
        return None if connector is None else evaluate(config, connector, stored_facts(user, connector))

    def is_allowed(self, user: Object) -> bool:
        verdict = self.verdict(user)
        return verdict is not None and verdict.refusal is None

    def is_session_current(self, key: Object, now: datetime) -> bool:
        """Whether the session of a login by single sign-on was confirmed recently enough, by a known connector."""
        connector = self.settings.get().connectors.get(get_path(key, "spec.identity.connector") or "")
        if connector is None:
            return False
        refreshed = get_path(key, "spec.identity.identityRefresh")
        if not refreshed:  # it cannot be refreshed: it ends with the ID token, which is the TTL of the key
            return True
        confirmed = parse_rfc3339(refreshed)
        return confirmed is not None and now - confirmed < stale_limit(connector) + REFRESH_MARGIN


def stale_limit(connector: Connector) -> timedelta:
    """How long after the last successful refresh a session ends."""
    return timedelta(seconds=connector.refresh_seconds + connector.stale_seconds)


def is_future(moment: datetime, now: datetime) -> bool:
    """Whether the clock was wrong when this time was recorded. It says nothing about the age of a session."""
    return moment - now > REFRESH_MARGIN


def stored_facts(user: Object, connector: Connector) -> Facts:
    """The facts that were stored at the last sign-on or refresh. Users cannot write these fields."""
    prefix = group_prefix(connector.id)
    groups = get_path(user, "spec.ssoGroups") or ()
    identity = get_path(user, "spec.ssoIdentity") or {}
    return Facts(
        frozenset(group.removeprefix(prefix) for group in groups if group.startswith(prefix)),
        {name: tuple(values or ()) for name, values in (identity.get("claims") or {}).items()},
        identity.get("email") or "",
        identity.get("emailVerified") is True,
    )


def group_prefix(connector: str) -> str:
    """The prefix of the provider's groups in `spec.ssoGroups`: two providers may have groups of the same name."""
    return f"{connector}:"
