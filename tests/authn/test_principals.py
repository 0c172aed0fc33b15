"""Users and teams as identities, with all of their groups and not one more."""

from fairlead.authn.principals import TEAMS, USERS
from fairlead.core.objects import Object
from fairlead.core.user import User
from tests.harness.access_keys import KeyDirectory

EVERYBODY = {"system:authenticated", "service:authenticated"}


def of_user(name: str) -> set[str]:
    return {*EVERYBODY, f"service:user:{name}", "service:user:*"}


async def groups(directory: KeyDirectory, name: str) -> set[str]:
    user = directory.people.find_user(name)
    assert user is not None
    return set(user.groups)


async def test_a_user_is_in_its_own_groups_and_in_those_of_everybody(directory: KeyDirectory) -> None:
    await directory.user("alice", groups=["devs", "devs"])
    user = directory.people.find_user("alice")
    assert user is not None
    assert (user.name, user.uid, user.key, user.scope) == ("alice", "uid-of-alice", "", None)
    assert set(user.groups) == {"devs", *of_user("alice")}
    assert len(user.groups) == len(set(user.groups))


async def test_each_team_of_a_user_is_a_group(directory: KeyDirectory) -> None:
    await directory.user("alice", ssoGroups=["people"])
    await directory.user("bob")
    await directory.team("core", users=["alice"])
    await directory.team("all", groups=["people", "machines"])
    await directory.team("other", users=["bob"], groups=["devs"])
    assert await groups(directory, "alice") == {*of_user("alice"), "service:team:core", "service:team:all"}
    assert await groups(directory, "bob") == {*of_user("bob"), "service:team:other"}


async def test_who_is_in_a_team_twice_is_in_it_once(directory: KeyDirectory) -> None:
    await directory.user("alice", ssoGroups=["people"])
    await directory.team("core", users=["alice", "alice"], groups=["people"])
    user = directory.people.find_user("alice")
    assert user is not None and user.groups.count("service:team:core") == 1


async def test_t15_membership_that_is_taken_away_is_gone_at_once(directory: KeyDirectory) -> None:
    await directory.user("alice", ssoGroups=["people"])
    await directory.team("core", users=["alice"])
    await directory.team("all", groups=["people"])
    assert {"service:team:core", "service:team:all"} <= await groups(directory, "alice")
    await directory.team("core", users=[])
    await directory.user("alice", ssoGroups=[])
    assert await groups(directory, "alice") == of_user("alice")


async def test_a_team_that_is_disabled_or_going_or_gone_has_no_members(directory: KeyDirectory) -> None:
    await directory.user("alice")
    ends: list[tuple[Object, Object]] = [({"disabled": True}, {}), ({}, {"deletionTimestamp": "2026-01-02T03:04:05Z"})]
    for spec, meta in ends:
        await directory.team("core", users=["alice"])
        assert "service:team:core" in await groups(directory, "alice")
        await directory.team("core", meta=meta, users=["alice"], **spec)
        assert await groups(directory, "alice") == of_user("alice")
    await directory.team("core", users=["alice"])
    await directory.remove(TEAMS, "core")
    assert await groups(directory, "alice") == of_user("alice")


async def test_who_is_disabled_or_going_or_gone_is_nobody(directory: KeyDirectory) -> None:
    assert directory.people.find_user("alice") is None
    await directory.user("alice")
    assert isinstance(directory.people.find_user("alice"), User)
    await directory.user("alice", disabled=True)
    assert directory.people.find_user("alice") is None
    await directory.user("alice", meta={"deletionTimestamp": "2026-01-02T03:04:05Z"})
    assert directory.people.find_user("alice") is None
    await directory.remove(USERS, "alice")
    assert directory.people.find_user("alice") is None


async def test_the_memberships_of_all_can_be_listed(directory: KeyDirectory) -> None:
    await directory.user("alice", ssoGroups=["people"])
    await directory.user("bob", disabled=True)
    await directory.team("core", users=["bob", "alice", "ghost"])
    await directory.team("all", groups=["people"])
    assert directory.people.memberships() == {"alice": ["all", "core"], "bob": ["core"]}
