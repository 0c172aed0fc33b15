"""Evaluates allow-lists and group mappings: whether a user of a provider can sign in, and what rules give.

Pure functions. Sign-on, refresh, each authentication and `SignOnReview` use them, so that they always agree.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fairlead.authn.sso.connectors import Connector, MappingRule, SignOnConfig
from fairlead.authn.sso.reasons import SignOnReason


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
