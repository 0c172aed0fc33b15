"""What a key may hand on: never more than it is."""

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


def key(age: float = 0, **spec: Any) -> Object:
    created = timestamp(NOW - timedelta(seconds=age))
    return {"metadata": {"name": "k", "creationTimestamp": created}, "spec": spec}


def projects(*names: str) -> Object:
    return {"projects": [{"project": name} for name in names]}


def holder(groups: tuple[str, ...] = (), age: float = 0, **spec: Any) -> Delegator:
    spec = {"user": "ada", **spec}
    return Delegator(User("ada", groups, key="k", scope=Scope.parse(spec.get("scope"))), key(age, **spec))


def refused(who: Delegator, wanted: Object) -> str:
    why = delegation_problem(who, wanted, is_superset, NOW)
    assert why is not None
    return why


def fine(who: Delegator, wanted: Object) -> bool:
    return delegation_problem(who, wanted, is_superset, NOW) is None


def test_everybody_makes_keys_of_their_own() -> None:
    assert fine(holder(), key(user="ada"))
    assert fine(holder(), key(user="ada", ttl=60, scope=projects("a")))


@pytest.mark.parametrize("owner", [{"user": "bob"}, {"team": "core"}, {"subject": "ada"}, {"user": "ada", "team": "t"}])
def test_t4_only_administrators_make_keys_for_others(owner: Object) -> None:
    assert "only administrators can create keys for others" in refused(holder(), key(**owner))
    assert fine(holder(ADMIN), key(**owner))


def test_t4_a_scoped_key_of_an_administrator_is_no_administrator() -> None:
    who = holder(ADMIN, scope=projects("a"))
    assert not fine(who, key(user="bob", scope=projects("a")))
    assert not fine(who, key(user="ada", groups=["x"], scope=projects("a")))
    assert fine(who, key(user="ada", scope=projects("a")))


def test_t4_no_groups_are_added() -> None:
    assert 'remove "x"' in refused(holder(groups=("x",)), key(user="ada", groups=["x"]))
    assert not fine(holder(), key(user="ada", groups=["system:masters"]))
    assert fine(holder(ADMIN), key(user="ada", groups=["system:masters"]))


def test_the_groups_of_ones_own_key_can_be_handed_on() -> None:
    who = Delegator(User("robot", ("ci",), key="k"), key(subject="robot", groups=["ci"]))
    assert fine(who, key(subject="robot", groups=["ci"]))
    assert not fine(who, key(subject="robot", groups=["ci", "cd"]))
    assert not fine(who, key(user="robot", groups=["ci"]))


def test_a_teams_key_makes_keys_of_the_team_and_a_members_key_does_not() -> None:
    assert fine(Delegator(User("service:team:core", key="k"), key(team="core")), key(team="core"))
    assert not fine(holder(("service:team:core",)), key(team="core"))


def test_t4_a_scope_is_handed_on_in_part_only() -> None:
    who = holder(scope=projects("a", "b"))
    assert fine(who, key(user="ada", scope=projects("a")))
    assert "exceeds the scope" in refused(who, key(user="ada", scope=projects("a", "c")))
    assert "exceeds the scope" in refused(who, key(user="ada"))


def test_t4_no_key_outlives_the_one_it_was_made_with() -> None:
    who = holder(age=60, ttl=100)
    assert fine(who, key(user="ada", ttl=40))
    assert "spec.ttl to at most 40" in refused(who, key(user="ada", ttl=41))
    assert "spec.ttl to at most 40" in refused(who, key(user="ada"))


def test_t4_that_holds_for_administrators_too() -> None:
    assert not fine(holder(ADMIN, ttl=100), key(user="bob"))
    assert fine(holder(ADMIN, ttl=100), key(user="bob", ttl=100))


def test_t4_a_key_that_lives_by_its_use_is_made_by_its_like_only() -> None:
    sliding: Object = {"ttl": 100, "ttlAfterLastActivity": True}
    assert "omit spec.ttlAfterLastActivity" in refused(holder(ttl=100), key(user="ada", **sliding))
    assert fine(holder(age=500, **sliding), key(user="ada", **sliding))
    assert fine(holder(age=500, **sliding), key(user="ada", ttl=100))
    assert not fine(holder(age=500, **sliding), key(user="ada", ttl=101))


def test_a_key_that_was_made_before_is_judged_by_what_is_left_of_it() -> None:
    assert fine(holder(age=60, ttl=100), key(user="ada", age=90, ttl=130))
    assert not fine(holder(age=60, ttl=100), key(user="ada", age=90, ttl=131))


def test_who_acts_as_somebody_makes_that_ones_keys_within_the_life_of_its_own() -> None:
    root = User("root", ADMIN, key="k")
    ada = User("ada", ("service:user:ada",), impersonator=root)
    acting = Delegator(ada, key(user="root", ttl=100))
    assert acting.owner == ("user", "ada")
    assert fine(acting, key(user="ada", ttl=100))
    assert not fine(acting, key(user="ada"))
    assert not fine(acting, key(user="root", ttl=100))


def test_who_came_without_a_key_has_only_its_name() -> None:
    assert Delegator(User("ada"), None).owner == ("user", "ada")
    assert fine(Delegator(User("ada"), None), key(user="ada"))
    assert not fine(Delegator(User("ada"), None), key(user="ada", groups=["x"]))


def test_the_server_itself_makes_what_it_needs() -> None:
    assert fine(Delegator(CONTROLLER_USER, None), key(subject="x", groups=["system:masters"]))


@pytest.mark.parametrize(
    ("old", "new", "wider"),
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
        ({"scope": projects("a")}, {"scope": projects("b")}, True),
        ({"scope": projects("a")}, {}, True),
        ({"scope": projects("a", "b")}, {"scope": projects("b")}, False),
        ({}, {"scope": projects("b")}, False),
        ({"disabled": True}, {}, True),
        ({}, {"disabled": True}, False),
        ({"displayName": "a"}, {"displayName": "b"}, False),
    ],
)
def test_which_changes_let_a_key_do_more(old: Object, new: Object, wider: bool) -> None:
    assert is_widening(key(**old), key(**new), is_superset) == wider


def test_t4_scopes_that_are_too_much_alike_to_be_compared_are_not_handed_on() -> None:
    verbs = [f"v{chr(97 + one)}{chr(97 + two)}" for one in range(20) for two in range(20)]
    wide = [{"verbs": [*verbs[:index], *verbs[index + 1 :]], "cluster": "berlin"} for index in range(200)]
    held = {"rules": [*wide, {"verbs": verbs, "cluster": "berlin"}]}
    wanted = {"rules": [{"verbs": verbs[:200], "cluster": "berlin", "namespaces": [each]} for each in verbs]}
    why = refused(holder(scope=held), key(user="ada", scope=wanted))
    assert why == (
        'spec.scope has too many rules to be compared with those of "k", the key in use; use fewer rules, '
        "or exactly the rules of that key"
    )
    assert fine(holder(scope=held), key(user="ada", scope=held))
    assert is_widening(key(scope=held), key(scope=wanted), is_superset), (
        "what cannot be compared is held to the holder's scope"
    )
    assert not is_widening(key(scope=held), key(scope=held), is_superset)
