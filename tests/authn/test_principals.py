"""PrincipalDirectory: users and teams with exactly their groups."""

from fairlead.authn.principals import TEAMS, USERS
from fairlead.core.objects import Object
from fairlead.core.user import User
from tests.harness.access_keys import KeyDirectory

AUTHENTICATED = {"system:authenticated", "service:authenticated"}


def default_groups(name: str) -> set[str]:
    return {*AUTHENTICATED, f"service:user:{name}", "service:user:*"}


async def groups_of(directory: KeyDirectory, name: str) -> set[str]:
    user = directory.principals.find_user(name)
    assert user is not None
    return set(user.groups)


async def test_a_user_has_its_own_groups_and_the_default_groups(directory: KeyDirectory) -> None:
    await directory.add_user("alice", groups=["devs", "devs"])
    user = directory.principals.find_user("alice")
    assert user is not None
    assert (user.name, user.uid, user.key, user.scope) == ("alice", "uid-of-alice", "", None)
    assert set(user.groups) == {"devs", *default_groups("alice")}
    assert len(user.groups) == len(set(user.groups))


async def test_each_team_of_a_user_is_a_group(directory: KeyDirectory) -> None:
    await directory.add_user("alice", ssoGroups=["people"])
    await directory.add_user("bob")
    await directory.add_team("core", users=["alice"])
    await directory.add_team("all", groups=["people", "machines"])
    await directory.add_team("other", users=["bob"], groups=["devs"])
    assert await groups_of(directory, "alice") == {*default_groups("alice"), "service:team:core", "service:team:all"}
    assert await groups_of(directory, "bob") == {*default_groups("bob"), "service:team:other"}


async def test_a_duplicate_membership_counts_once(directory: KeyDirectory) -> None:
    await directory.add_user("alice", ssoGroups=["people"])
    await directory.add_team("core", users=["alice", "alice"], groups=["people"])
    user = directory.principals.find_user("alice")
    assert user is not None and user.groups.count("service:team:core") == 1


async def test_t15_a_removed_membership_ends_immediately(directory: KeyDirectory) -> None:
    await directory.add_user("alice", ssoGroups=["people"])
    await directory.add_team("core", users=["alice"])
    await directory.add_team("all", groups=["people"])
    assert {"service:team:core", "service:team:all"} <= await groups_of(directory, "alice")
    await directory.add_team("core", users=[])
    await directory.add_user("alice", ssoGroups=[])
    assert await groups_of(directory, "alice") == default_groups("alice")


async def test_a_disabled_terminating_or_deleted_team_has_no_members(directory: KeyDirectory) -> None:
    await directory.add_user("alice")
    changes: list[tuple[Object, Object]] = [
        ({"disabled": True}, {}),
        ({}, {"deletionTimestamp": "2026-01-02T03:04:05Z"}),
    ]
    for spec, meta in changes:
        await directory.add_team("core", users=["alice"])
        assert "service:team:core" in await groups_of(directory, "alice")
        await directory.add_team("core", meta=meta, users=["alice"], **spec)
        assert await groups_of(directory, "alice") == default_groups("alice")
    await directory.add_team("core", users=["alice"])
    await directory.remove(TEAMS, "core")
    assert await groups_of(directory, "alice") == default_groups("alice")


async def test_a_disabled_terminating_or_deleted_user_is_not_found(directory: KeyDirectory) -> None:
    assert directory.principals.find_user("alice") is None
    await directory.add_user("alice")
    assert isinstance(directory.principals.find_user("alice"), User)
    await directory.add_user("alice", disabled=True)
    assert directory.principals.find_user("alice") is None
    await directory.add_user("alice", meta={"deletionTimestamp": "2026-01-02T03:04:05Z"})
    assert directory.principals.find_user("alice") is None
    await directory.remove(USERS, "alice")
    assert directory.principals.find_user("alice") is None


async def test_all_memberships_can_be_listed(directory: KeyDirectory) -> None:
    await directory.add_user("alice", ssoGroups=["people"])
    await directory.add_user("bob", disabled=True)
    await directory.add_team("core", users=["bob", "alice", "ghost"])
    await directory.add_team("all", groups=["people"])
    assert directory.principals.memberships() == {"alice": ["all", "core"], "bob": ["core"]}
