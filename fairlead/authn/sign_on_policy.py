"""Single sign-on on each authentication: which users and sessions count, and what groups the users have.

`evaluate` is a pure function of allow-lists and mappings. Sign-on, refresh, each authentication and `SignOnReview` use
it, so that they always agree. `PrincipalDirectory` and `AccessKeyAuthenticator` ask `SignOnPolicy`, so a change of the
Config takes effect with the next request: the keys of a removed connector, and of users who are no longer allowed, are
rejected.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from fairlead.authn.sign_on_settings import Connector, MappingRule, SignOnConfig, SignOnSettings
from fairlead.core.clock import parse_rfc3339
from fairlead.core.objects import Object, get_path
from fairlead.storage.view.view import View


class SignOnReason(StrEnum):
    """Why a sign-on is refused: a fixed list. The console shows each value to users with a text of its own.

    The audit log, metrics and the address of the console's error page contain these values, and never a text of the
    provider.
    """

    UNKNOWN_CONNECTOR = "unknown_connector"
    INVALID_RETURN_PATH = "invalid_return_path"
    TOO_MANY_ATTEMPTS = "too_many_attempts"
    PROVIDER_UNAVAILABLE = "provider_unavailable"
    PROVIDER_MISCONFIGURED = "provider_misconfigured"
    CLIENT_SECRET_MISSING = "client_secret_missing"
    STATE_MISSING = "state_missing"
    STATE_MISMATCH = "state_mismatch"
    STATE_EXPIRED = "state_expired"
    STATE_REUSED = "state_reused"
    ISSUER_MISMATCH = "issuer_mismatch"
    ACCESS_DENIED = "access_denied"
    PROVIDER_ERROR = "provider_error"
    CODE_REJECTED = "code_rejected"
    TOKEN_REJECTED = "token_rejected"
    USERINFO_REJECTED = "userinfo_rejected"
    CLAIMS_INVALID = "claims_invalid"
    GROUPS_INVALID = "groups_invalid"
    GROUPS_OVERAGE = "groups_overage"
    EMAIL_MISSING = "email_missing"
    EMAIL_UNVERIFIED = "email_unverified"
    DOMAIN_NOT_ALLOWED = "domain_not_allowed"
    GROUP_NOT_ALLOWED = "group_not_allowed"
    NO_RULE_MATCHED = "no_rule_matched"
    USER_NOT_FOUND = "user_not_found"
    USER_DISABLED = "user_disabled"
    USER_AMBIGUOUS = "user_ambiguous"


@dataclass(frozen=True, slots=True)
class Facts:
    """What a provider says about a user, as far as rules use it. `groups` are without the connector's prefix."""

    groups: frozenset[str] = frozenset()
    claims: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    email: str = ""
    is_email_verified: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result: why the user cannot sign in, or None; the matching rules, and what they give."""

    refusal: SignOnReason | None
    rules: tuple[MappingRule, ...] = ()
    teams: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


def evaluate(config: SignOnConfig, connector: Connector, facts: Facts) -> Verdict:
    matched = tuple(rule for rule in config.rules_for(connector.id) if matches(rule, facts))
    refusal = _refusal(connector, facts, bool(matched))
    if refusal is not None:
        return Verdict(refusal, matched)
    teams = dict.fromkeys(team for rule in matched for team in rule.teams)
    groups = dict.fromkeys(group for rule in matched for group in rule.groups)
    return Verdict(None, matched, tuple(teams), tuple(groups))


def matches(rule: MappingRule, facts: Facts) -> bool:
    """Whether a rule applies: an exact, case-sensitive match of one value."""
    if not rule.claim:
        return rule.value in facts.groups
    return rule.value in facts.claims.get(rule.claim, ())


def _refusal(connector: Connector, facts: Facts, has_match: bool) -> SignOnReason | None:
    allowed = connector.allowed
    if (allowed.domains or allowed.require_verified_email) and not facts.email:
        return SignOnReason.EMAIL_MISSING
    if allowed.require_verified_email and not facts.is_email_verified:
        return SignOnReason.EMAIL_UNVERIFIED
    if allowed.domains and email_domain(facts.email) not in allowed.domains:
        return SignOnReason.DOMAIN_NOT_ALLOWED
    if allowed.groups and allowed.groups.isdisjoint(facts.groups):
        return SignOnReason.GROUP_NOT_ALLOWED
    if not has_match and not allowed.allow_unmapped:
        return SignOnReason.NO_RULE_MATCHED
    return None


def email_domain(email: str) -> str:
    """The whole domain, after the last `@`, in lower case. Empty if there is none.

    Only ASCII letters are lowered: other characters that Unicode maps to ASCII ones must not match.
    """
    local, at, domain = email.rpartition("@")
    return "".join(each.lower() if each.isascii() else each for each in domain) if at and local else ""


REFRESH_MARGIN = timedelta(seconds=60)
"""How much later than due a refresh may be before authentication itself rejects the session."""

_LOCAL_USER = Verdict(None)


class SignOnPolicy:
    def __init__(self, view: View, api_group: str) -> None:
        self.settings = SignOnSettings(view, api_group)

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
