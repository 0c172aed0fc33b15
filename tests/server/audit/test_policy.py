"""Which requests are recorded: the first rule that fits, as in Kubernetes."""

import pytest

from fairlead.core.call import Target
from fairlead.core.user import User
from fairlead.server.audit.policy import (
    DEFAULT,
    METADATA,
    NONE,
    RECEIVED,
    REQUEST,
    UNRECORDED,
    Policy,
    Resources,
    Rule,
)

ALICE = User("alice", ("developers", "system:authenticated"))
APPS = Target("list", "/apis/g/v1/namespaces/n/apps", "management", "g", "v1", "apps", "", "n")
APP_STATUS = Target("get", "/apis/g/v1/namespaces/n/apps/a/status", "management", "g", "v1", "apps", "status", "n", "a")
HEALTH = Target("get", "/healthz")
NOBODY = frozenset({"nobody"})


def resources(*names: str, group: str = "g", only: tuple[str, ...] = ()) -> Rule:
    return Rule(REQUEST, resources=(Resources(group, frozenset(names), frozenset(only)),))


def test_the_first_rule_that_fits_counts() -> None:
    first, second, third = Rule(NONE, users=NOBODY), Rule(METADATA, verbs=frozenset({"list"})), Rule(REQUEST)
    assert Policy((first, second, third)).rule_for(ALICE, APPS) is second
    assert Policy((first, third, second)).rule_for(ALICE, APPS) is third


def test_what_no_rule_fits_is_not_recorded() -> None:
    assert Policy((Rule(REQUEST, users=NOBODY),)).rule_for(ALICE, APPS) is UNRECORDED
    assert UNRECORDED.level == NONE


@pytest.mark.parametrize(
    ("rule", "target", "fits"),
    [
        (Rule(REQUEST), APPS, True),
        (Rule(REQUEST), HEALTH, True),
        (Rule(REQUEST, users=frozenset({"bob", "alice"})), APPS, True),
        (Rule(REQUEST, users=NOBODY), APPS, False),
        (Rule(REQUEST, groups=frozenset({"developers"})), APPS, True),
        (Rule(REQUEST, groups=frozenset({"alice"})), APPS, False),
        (Rule(REQUEST, verbs=frozenset({"list"})), APPS, True),
        (Rule(REQUEST, verbs=frozenset({"get"})), APPS, False),
        (Rule(REQUEST, namespaces=frozenset({"n"})), APPS, True),
        (Rule(REQUEST, namespaces=frozenset({""})), APPS, False),
        (Rule(REQUEST, namespaces=frozenset({""})), HEALTH, False),
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
        (Rule(REQUEST, paths=("/healthz",)), HEALTH, True),
        (Rule(REQUEST, paths=("/health*",)), HEALTH, True),
        (Rule(REQUEST, paths=("*",)), HEALTH, True),
        (Rule(REQUEST, paths=("/health",)), HEALTH, False),
        (Rule(REQUEST, paths=("*",)), APPS, False),
        (Rule(REQUEST, paths=("/healthz",), verbs=frozenset({"post"})), HEALTH, False),
    ],
)
def test_a_rule_fits_in_every_respect_or_not_at_all(rule: Rule, target: Target, fits: bool) -> None:
    assert rule.fits(ALICE, target) is fits


@pytest.mark.parametrize("rule", [Rule(REQUEST, users=NOBODY), Rule(REQUEST, groups=NOBODY)])
def test_who_has_not_signed_in_fits_no_rule_about_users(rule: Rule) -> None:
    assert not rule.fits(None, APPS)


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
def test_by_default_everything_is_recorded_but_health_checks(path: str) -> None:
    assert DEFAULT.rule_for(None, Target("get", path)).level == NONE
    for target in (APPS, APP_STATUS, Target("get", "/version"), Target("get", f"{path}/x")):
        rule = DEFAULT.rule_for(None, target)
        assert (rule.level, rule.omit) == (METADATA, frozenset({RECEIVED}))


def test_a_policy_knows_whether_bodies_and_announcements_are_ever_needed() -> None:
    assert (DEFAULT.highest, DEFAULT.announces) == (METADATA, False)
    policy = Policy((Rule(NONE), Rule(REQUEST, omit=frozenset({RECEIVED})), Rule(METADATA)))
    assert (policy.highest, policy.announces) == (REQUEST, True)
    assert not Policy((Rule(NONE),)).announces
