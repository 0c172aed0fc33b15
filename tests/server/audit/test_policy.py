"""server.audit.policy: the first matching rule determines the audit level, as in Kubernetes."""

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
OTHER_USERS = frozenset({"mallory"})


def build_rule(*names: str, group: str = "g", object_names: tuple[str, ...] = ()) -> PolicyRule:
    return PolicyRule(REQUEST, resources=(GroupResources(group, frozenset(names), frozenset(object_names)),))


def test_the_first_matching_rule_applies() -> None:
    first, second, third = (
        PolicyRule(NONE, users=OTHER_USERS),
        PolicyRule(METADATA, verbs=frozenset({"list"})),
        PolicyRule(REQUEST),
    )
    assert Policy((first, second, third)).rule_for(ALICE, APPS) is second
    assert Policy((first, third, second)).rule_for(ALICE, APPS) is third


def test_a_request_without_a_matching_rule_is_not_recorded() -> None:
    assert Policy((PolicyRule(REQUEST, users=OTHER_USERS),)).rule_for(ALICE, APPS) is UNMATCHED_RULE
    assert UNMATCHED_RULE.level == NONE


@pytest.mark.parametrize(
    ("rule", "target", "matches"),
    [
        (PolicyRule(REQUEST), APPS, True),
        (PolicyRule(REQUEST), HEALTH, True),
        (PolicyRule(REQUEST, users=frozenset({"bob", "alice"})), APPS, True),
        (PolicyRule(REQUEST, users=OTHER_USERS), APPS, False),
        (PolicyRule(REQUEST, groups=frozenset({"developers"})), APPS, True),
        (PolicyRule(REQUEST, groups=frozenset({"alice"})), APPS, False),
        (PolicyRule(REQUEST, verbs=frozenset({"list"})), APPS, True),
        (PolicyRule(REQUEST, verbs=frozenset({"get"})), APPS, False),
        (PolicyRule(REQUEST, namespaces=frozenset({"n"})), APPS, True),
        (PolicyRule(REQUEST, namespaces=frozenset({""})), APPS, False),
        (PolicyRule(REQUEST, namespaces=frozenset({""})), HEALTH, False),
        (build_rule(), APPS, True),
        (build_rule(group="other"), APPS, False),
        (build_rule(group="other"), HEALTH, False),
        (build_rule("apps"), APPS, True),
        (build_rule("apps"), APP_STATUS, False),
        (build_rule("apps/status"), APP_STATUS, True),
        (build_rule("apps/status"), APPS, False),
        (build_rule("*/status"), APP_STATUS, True),
        (build_rule("*/status"), APPS, False),
        (build_rule("apps/*"), APP_STATUS, True),
        (build_rule("apps/*"), APPS, True),
        (build_rule("clusters/*"), APP_STATUS, False),
        (build_rule("*"), APPS, True),
        (build_rule("*"), APP_STATUS, True),
        (build_rule("apps/status", object_names=("a",)), APP_STATUS, True),
        (build_rule("apps/status", object_names=("b",)), APP_STATUS, False),
        (PolicyRule(REQUEST, paths=("/healthz",)), HEALTH, True),
        (PolicyRule(REQUEST, paths=("/health*",)), HEALTH, True),
        (PolicyRule(REQUEST, paths=("*",)), HEALTH, True),
        (PolicyRule(REQUEST, paths=("/health",)), HEALTH, False),
        (PolicyRule(REQUEST, paths=("*",)), APPS, False),
        (PolicyRule(REQUEST, paths=("/healthz",), verbs=frozenset({"post"})), HEALTH, False),
    ],
)
def test_a_rule_matches_only_if_all_its_conditions_match(rule: PolicyRule, target: RequestInfo, matches: bool) -> None:
    assert rule.matches(ALICE, target) is matches


@pytest.mark.parametrize("rule", [PolicyRule(REQUEST, users=OTHER_USERS), PolicyRule(REQUEST, groups=OTHER_USERS)])
def test_an_anonymous_request_matches_no_rule_about_users(rule: PolicyRule) -> None:
    assert not rule.matches(None, APPS)


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
def test_by_default_everything_except_health_checks_is_recorded(path: str) -> None:
    assert DEFAULT_POLICY.rule_for(None, RequestInfo("get", path)).level == NONE
    for target in (APPS, APP_STATUS, RequestInfo("get", "/version"), RequestInfo("get", f"{path}/x")):
        rule = DEFAULT_POLICY.rule_for(None, target)
        assert (rule.level, rule.omit_stages) == (METADATA, frozenset({RECEIVED}))


def test_a_policy_knows_its_maximum_level_and_whether_it_records_received_requests() -> None:
    assert (DEFAULT_POLICY.max_level, DEFAULT_POLICY.records_received) == (METADATA, False)
    policy = Policy((PolicyRule(NONE), PolicyRule(REQUEST, omit_stages=frozenset({RECEIVED})), PolicyRule(METADATA)))
    assert (policy.max_level, policy.records_received) == (REQUEST, True)
    assert not Policy((PolicyRule(NONE),)).records_received
