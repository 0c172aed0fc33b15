"""Tests of `fairlead.domain.key_delegation`: a key created with another key has no more rights than that key."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fairlead.authz.scope import is_superset
from fairlead.core.clock import timestamp
from fairlead.core.objects import Object
from fairlead.core.scope import Scope
from fairlead.core.user import CONTROLLER_USER, User
from fairlead.domain.key_delegation import Delegator, delegation_problem, is_widening

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
ADMIN = ("system:masters",)


def build_key(age: float = 0, **spec: Any) -> Object:
    created = timestamp(NOW - timedelta(seconds=age))
    return {"metadata": {"name": "k", "creationTimestamp": created}, "spec": spec}


def project_scope(*names: str) -> Object:
    return {"projects": [{"project": name} for name in names]}


def build_delegator(groups: tuple[str, ...] = (), age: float = 0, **spec: Any) -> Delegator:
    spec = {"user": "ada", **spec}
    return Delegator(User("ada", groups, key="k", scope=Scope.parse(spec.get("scope"))), build_key(age, **spec))


def expect_problem(delegator: Delegator, key: Object) -> str:
    problem = delegation_problem(delegator, key, is_superset, NOW)
    assert problem is not None
    return problem


def is_allowed(delegator: Delegator, key: Object) -> bool:
    return delegation_problem(delegator, key, is_superset, NOW) is None


def test_users_can_create_keys_of_their_own() -> None:
    assert is_allowed(build_delegator(), build_key(user="ada"))
    assert is_allowed(build_delegator(), build_key(user="ada", ttl=60, scope=project_scope("a")))


@pytest.mark.parametrize("owner", [{"user": "bob"}, {"team": "core"}, {"subject": "ada"}, {"user": "ada", "team": "t"}])
def test_t4_only_administrators_can_create_keys_for_others(owner: Object) -> None:
    assert "only administrators can create keys for others" in expect_problem(build_delegator(), build_key(**owner))
    assert is_allowed(build_delegator(ADMIN), build_key(**owner))


def test_t4_a_scoped_key_of_an_administrator_has_no_administrator_rights() -> None:
    delegator = build_delegator(ADMIN, scope=project_scope("a"))
    assert not is_allowed(delegator, build_key(user="bob", scope=project_scope("a")))
    assert not is_allowed(delegator, build_key(user="ada", groups=["x"], scope=project_scope("a")))
    assert is_allowed(delegator, build_key(user="ada", scope=project_scope("a")))


def test_t4_a_new_key_cannot_have_additional_groups() -> None:
    assert 'remove "x"' in expect_problem(build_delegator(groups=("x",)), build_key(user="ada", groups=["x"]))
    assert not is_allowed(build_delegator(), build_key(user="ada", groups=["system:masters"]))
    assert is_allowed(build_delegator(ADMIN), build_key(user="ada", groups=["system:masters"]))


def test_a_new_key_can_have_the_groups_of_the_key_in_use() -> None:
    delegator = Delegator(User("robot", ("ci",), key="k"), build_key(subject="robot", groups=["ci"]))
    assert is_allowed(delegator, build_key(subject="robot", groups=["ci"]))
    assert not is_allowed(delegator, build_key(subject="robot", groups=["ci", "cd"]))
    assert not is_allowed(delegator, build_key(user="robot", groups=["ci"]))


def test_a_key_of_a_team_can_create_keys_of_the_team_and_a_key_of_a_member_cannot() -> None:
    assert is_allowed(Delegator(User("service:team:core", key="k"), build_key(team="core")), build_key(team="core"))
    assert not is_allowed(build_delegator(("service:team:core",)), build_key(team="core"))


def test_t4_the_scope_of_a_new_key_is_a_subset_of_the_scope_of_the_key_in_use() -> None:
    delegator = build_delegator(scope=project_scope("a", "b"))
    assert is_allowed(delegator, build_key(user="ada", scope=project_scope("a")))
    assert "exceeds the scope" in expect_problem(delegator, build_key(user="ada", scope=project_scope("a", "c")))
    assert "exceeds the scope" in expect_problem(delegator, build_key(user="ada"))


def test_t4_a_new_key_does_not_outlive_the_key_in_use() -> None:
    delegator = build_delegator(age=60, ttl=100)
    assert is_allowed(delegator, build_key(user="ada", ttl=40))
    assert "spec.ttl to at most 40" in expect_problem(delegator, build_key(user="ada", ttl=41))
    assert "spec.ttl to at most 40" in expect_problem(delegator, build_key(user="ada"))


def test_t4_a_new_key_of_an_administrator_does_not_outlive_the_key_in_use() -> None:
    assert not is_allowed(build_delegator(ADMIN, ttl=100), build_key(user="bob"))
    assert is_allowed(build_delegator(ADMIN, ttl=100), build_key(user="bob", ttl=100))


def test_t4_only_a_sliding_key_can_create_a_sliding_key() -> None:
    sliding: Object = {"ttl": 100, "ttlAfterLastActivity": True}
    assert "omit spec.ttlAfterLastActivity" in expect_problem(
        build_delegator(ttl=100), build_key(user="ada", **sliding)
    )
    assert is_allowed(build_delegator(age=500, **sliding), build_key(user="ada", **sliding))
    assert is_allowed(build_delegator(age=500, **sliding), build_key(user="ada", ttl=100))
    assert not is_allowed(build_delegator(age=500, **sliding), build_key(user="ada", ttl=101))


def test_an_existing_key_is_compared_by_its_remaining_lifetime() -> None:
    assert is_allowed(build_delegator(age=60, ttl=100), build_key(user="ada", age=90, ttl=130))
    assert not is_allowed(build_delegator(age=60, ttl=100), build_key(user="ada", age=90, ttl=131))


def test_an_impersonator_creates_keys_of_the_impersonated_user_within_its_own_lifetime() -> None:
    root = User("root", ADMIN, key="k")
    ada = User("ada", ("service:user:ada",), impersonator=root)
    delegator = Delegator(ada, build_key(user="root", ttl=100))
    assert delegator.owner == ("user", "ada")
    assert is_allowed(delegator, build_key(user="ada", ttl=100))
    assert not is_allowed(delegator, build_key(user="ada"))
    assert not is_allowed(delegator, build_key(user="root", ttl=100))


def test_a_delegator_without_a_key_is_known_by_its_user_name_only() -> None:
    assert Delegator(User("ada"), None).owner == ("user", "ada")
    assert is_allowed(Delegator(User("ada"), None), build_key(user="ada"))
    assert not is_allowed(Delegator(User("ada"), None), build_key(user="ada", groups=["x"]))


def test_the_controller_user_can_create_any_key() -> None:
    assert is_allowed(Delegator(CONTROLLER_USER, None), build_key(subject="x", groups=["system:masters"]))


@pytest.mark.parametrize(
    ("old", "new", "is_wider"),
    [
        ({}, {}, False),
        ({"ttl": 60}, {"ttl": 59}, False),
        ({"ttl": 60}, {"ttl": 61}, True),
        ({"ttl": 60}, {}, True),
        ({"ttl": 60}, {"ttl": 0}, True),
        ({}, {"ttl": 61}, False),
        ({"ttl": 60}, {"ttl": 60, "ttlAfterLastActivity": True}, True),
        ({"ttl": 60, "ttlAfterLastActivity": True}, {"ttl": 60}, False),
        ({"ttlAfterLastActivity": False}, {"ttlAfterLastActivity": True}, False),
        ({"groups": ["a"]}, {"groups": ["a", "b"]}, True),
        ({"groups": ["a", "b"]}, {"groups": ["b"]}, False),
        ({"scope": project_scope("a")}, {"scope": project_scope("b")}, True),
        ({"scope": project_scope("a")}, {}, True),
        ({"scope": project_scope("a", "b")}, {"scope": project_scope("b")}, False),
        ({}, {"scope": project_scope("b")}, False),
        ({"disabled": True}, {}, True),
        ({}, {"disabled": True}, False),
        ({"displayName": "a"}, {"displayName": "b"}, False),
    ],
)
def test_a_change_that_adds_rights_or_lifetime_is_widening(old: Object, new: Object, is_wider: bool) -> None:
    assert is_widening(build_key(**old), build_key(**new), is_superset) == is_wider


def test_t4_a_scope_that_is_too_large_to_compare_is_rejected() -> None:
    verbs = [f"v{chr(97 + first)}{chr(97 + second)}" for first in range(20) for second in range(20)]
    rules = [{"verbs": [*verbs[:index], *verbs[index + 1 :]], "cluster": "berlin"} for index in range(200)]
    held_scope = {"rules": [*rules, {"verbs": verbs, "cluster": "berlin"}]}
    wanted_scope = {
        "rules": [{"verbs": verbs[:200], "cluster": "berlin", "namespaces": [namespace]} for namespace in verbs]
    }
    problem = expect_problem(build_delegator(scope=held_scope), build_key(user="ada", scope=wanted_scope))
    assert problem == (
        'spec.scope has too many rules to be compared with those of "k", the key in use; use fewer rules, '
        "or exactly the rules of that key"
    )
    assert is_allowed(build_delegator(scope=held_scope), build_key(user="ada", scope=held_scope))
    assert is_widening(build_key(scope=held_scope), build_key(scope=wanted_scope), is_superset), (
        "a scope that cannot be compared counts as wider"
    )
    assert not is_widening(build_key(scope=held_scope), build_key(scope=held_scope), is_superset)
