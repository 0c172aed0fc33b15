"""Which requests are recorded: the first rule that fits, as in Kubernetes."""

import pytest

from fairlead.core.call import RequestInfo
from fairlead.core.user import User
from fairlead.server.audit.policy import (
    DEFAULT_POLICY,
    METADATA,
    NONE,
    RECEIVED,
    REQUEST,
    UNMATCHED_RULE,
    GroupResources,
    Policy,
    PolicyRule,
)

ALICE = User("alice", ("developers", "system:authenticated"))
APPS = RequestInfo("list", "/apis/g/v1/namespaces/n/apps", "management", "g", "v1", "apps", "", "n")
APP_STATUS = RequestInfo(
    "get", "/apis/g/v1/namespaces/n/apps/a/status", "management", "g", "v1", "apps", "status", "n", "a"
)
HEALTH = RequestInfo("get", "/healthz")
NOBODY = frozenset({"nobody"})


def resources(*names: str, group: str = "g", only: tuple[str, ...] = ()) -> PolicyRule:
    return PolicyRule(REQUEST, resources=(GroupResources(group, frozenset(names), frozenset(only)),))


def test_the_first_rule_that_fits_counts() -> None:
    first, second, third = (
        PolicyRule(NONE, users=NOBODY),
        PolicyRule(METADATA, verbs=frozenset({"list"})),
        PolicyRule(REQUEST),
    )
    assert Policy((first, second, third)).rule_for(ALICE, APPS) is second
    assert Policy((first, third, second)).rule_for(ALICE, APPS) is third


def test_what_no_rule_fits_is_not_recorded() -> None:
    assert Policy((PolicyRule(REQUEST, users=NOBODY),)).rule_for(ALICE, APPS) is UNMATCHED_RULE
    assert UNMATCHED_RULE.level == NONE


@pytest.mark.parametrize(
    ("rule", "target", "fits"),
    [
        (PolicyRule(REQUEST), APPS, True),
        (PolicyRule(REQUEST), HEALTH, True),
        (PolicyRule(REQUEST, users=frozenset({"bob", "alice"})), APPS, True),
        (PolicyRule(REQUEST, users=NOBODY), APPS, False),
        (PolicyRule(REQUEST, groups=frozenset({"developers"})), APPS, True),
        (PolicyRule(REQUEST, groups=frozenset({"alice"})), APPS, False),
        (PolicyRule(REQUEST, verbs=frozenset({"list"})), APPS, True),
        (PolicyRule(REQUEST, verbs=frozenset({"get"})), APPS, False),
        (PolicyRule(REQUEST, namespaces=frozenset({"n"})), APPS, True),
        (PolicyRule(REQUEST, namespaces=frozenset({""})), APPS, False),
        (PolicyRule(REQUEST, namespaces=frozenset({""})), HEALTH, False),
        (resources(), APPS, True),
        (resources(group="other"), APPS, False),
        (resources(group="other"), HEALTH, False),
        (resources("apps"), APPS, True),
        (resources("apps"), APP_STATUS, False),
        (resources("apps/status"), APP_STATUS, True),
        (resources("apps/status"), APPS, False),
        (resources("*/status"), APP_STATUS, True),
        (resources("*/status"), APPS, False),
        (resources("apps/*"), APP_STATUS, True),
        (resources("apps/*"), APPS, True),
        (resources("clusters/*"), APP_STATUS, False),
        (resources("*"), APPS, True),
        (resources("*"), APP_STATUS, True),
        (resources("apps/status", only=("a",)), APP_STATUS, True),
        (resources("apps/status", only=("b",)), APP_STATUS, False),
        (PolicyRule(REQUEST, paths=("/healthz",)), HEALTH, True),
        (PolicyRule(REQUEST, paths=("/health*",)), HEALTH, True),
        (PolicyRule(REQUEST, paths=("*",)), HEALTH, True),
        (PolicyRule(REQUEST, paths=("/health",)), HEALTH, False),
        (PolicyRule(REQUEST, paths=("*",)), APPS, False),
        (PolicyRule(REQUEST, paths=("/healthz",), verbs=frozenset({"post"})), HEALTH, False),
    ],
)
def test_a_rule_fits_in_every_respect_or_not_at_all(rule: PolicyRule, target: RequestInfo, fits: bool) -> None:
    assert rule.matches(ALICE, target) is fits


@pytest.mark.parametrize("rule", [PolicyRule(REQUEST, users=NOBODY), PolicyRule(REQUEST, groups=NOBODY)])
def test_who_has_not_signed_in_fits_no_rule_about_users(rule: PolicyRule) -> None:
    assert not rule.matches(None, APPS)


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
def test_by_default_everything_is_recorded_but_health_checks(path: str) -> None:
    assert DEFAULT_POLICY.rule_for(None, RequestInfo("get", path)).level == NONE
    for target in (APPS, APP_STATUS, RequestInfo("get", "/version"), RequestInfo("get", f"{path}/x")):
        rule = DEFAULT_POLICY.rule_for(None, target)
        assert (rule.level, rule.omit_stages) == (METADATA, frozenset({RECEIVED}))


def test_a_policy_knows_whether_bodies_and_announcements_are_ever_needed() -> None:
    assert (DEFAULT_POLICY.max_level, DEFAULT_POLICY.records_received) == (METADATA, False)
    policy = Policy((PolicyRule(NONE), PolicyRule(REQUEST, omit_stages=frozenset({RECEIVED})), PolicyRule(METADATA)))
    assert (policy.max_level, policy.records_received) == (REQUEST, True)
    assert not Policy((PolicyRule(NONE),)).records_received
