"""Users and teams: nobody becomes more, or makes others more, than they are allowed to."""

from collections.abc import AsyncIterator, Awaitable
from dataclasses import replace

import pytest

from fairlead.core.errors import Forbidden, Invalid
from fairlead.core.objects import Object
from fairlead.core.scope import Scope
from fairlead.core.user import CONTROLLER_USER, User
from fairlead.registry.write_options import DeleteOptions, WriteOptions
from tests.harness.auth import ADA, BOB, ROOT, Realm, new_realm

SCOPED_ROOT = replace(ROOT, scope=Scope(projects=("*",)))
PASSWORD = {"secretName": "x-password", "secretNamespace": "service-system"}


@pytest.fixture
async def realm() -> AsyncIterator[Realm]:
    async with new_realm() as made:
        yield made


async def refused(write: Awaitable[object], why: str = "only administrators") -> bool:
    with pytest.raises(Forbidden, match=why):
        await write
    return True


# --- users: groups, roles and ways to sign in


@pytest.mark.parametrize(
    "spec",
    [
        {"groups": ["devs"]},
        {"groups": ["system:masters"]},
        {"groups": ["service:admins"]},
        {"groups": ["service:team:core"]},
        {"ssoGroups": ["people"]},
        {"clusterRoles": [{"name": "admin"}]},
    ],
)
async def test_only_administrators_give_users_groups_and_roles(realm: Realm, spec: Object) -> None:
    for user in (ADA, BOB, SCOPED_ROOT):
        assert await refused(realm.user("eve", user, **spec))
        assert await refused(realm.set("User", "ada", user, **spec))
    assert await realm.user("eve", ROOT, **spec)
    assert await realm.set("User", "ada", ROOT, **spec)


async def test_nobody_takes_a_users_groups_away_who_could_not_give_them(realm: Realm) -> None:
    await realm.set("User", "bob", ROOT, groups=["blocked"])
    assert await refused(realm.set("User", "bob", BOB, groups=[]))
    assert await refused(realm.set("User", "bob", BOB, groups=None))


async def test_everything_else_of_a_user_is_for_those_who_may_write_it(realm: Realm) -> None:
    await realm.set("User", "bob", ROOT, groups=["devs"])
    assert await realm.set("User", "bob", ADA, displayName="Bob", email="bob@example.com", disabled=True)
    assert await realm.user("eve", ADA, displayName="Eve", groups=[], clusterRoles=[])
    assert (await realm.world.delete("User", "eve", user=ADA)).is_removed


@pytest.mark.parametrize("group", ["system:masters", "service:admins"])
async def test_who_is_in_an_admin_group_is_written_by_administrators_only(realm: Realm, group: str) -> None:
    await realm.user("boss", groups=[group])
    for user in (ADA, SCOPED_ROOT):
        assert await refused(realm.set("User", "boss", user, email="x@example.com"))
        assert await refused(realm.world.delete("User", "boss", user=user))
    assert await realm.set("User", "boss", ROOT, email="x@example.com")
    assert (await realm.world.delete("User", "boss", user=ROOT)).is_removed


@pytest.mark.parametrize("spec", [{"passwordRef": PASSWORD}, {"codesRef": PASSWORD}, {"subject": "somebody"}])
async def test_what_lets_one_sign_in_as_another_takes_the_right_to_act_as_that_one(realm: Realm, spec: Object) -> None:
    assert await refused(realm.set("User", "bob", ADA, **spec), 'needs the verb "impersonate" on users "bob"')
    assert await refused(realm.user("eve", ADA, **spec), "impersonate")
    realm.rights.grant(ADA, "impersonate", "users", "bob")
    assert await realm.set("User", "bob", ADA, **spec)
    assert await realm.user("eve", ROOT, **spec)
    assert {(each.verb, each.group, each.resource) for each in realm.rights.asked} == {("impersonate", "", "users")}


async def test_that_right_does_not_reach_administrators(realm: Realm) -> None:
    realm.rights.grant(ADA, "impersonate", "users", "root")
    assert await refused(realm.set("User", "root", ADA, passwordRef=PASSWORD))


async def test_ones_own_password_is_ones_own_matter(realm: Realm) -> None:
    ada = await realm.signed_in("ada")
    assert await realm.set("User", "ada", ada, passwordRef=PASSWORD)


async def test_a_key_that_is_cut_down_does_not_set_its_owners_password(realm: Realm) -> None:
    ada = await realm.signed_in("ada", scope={"projects": [{"project": "*"}]})
    assert await refused(realm.set("User", "ada", ada, passwordRef=PASSWORD), "impersonate")


async def test_who_only_has_a_users_name_is_not_that_user(realm: Realm) -> None:
    machine = await realm.key("machine", ROOT, subject="ada")
    user = realm.authenticate.authenticate_token(machine["spec"]["key"])
    assert user.name == "ada"
    assert await refused(realm.set("User", "ada", user, passwordRef=PASSWORD), "impersonate")


# --- there is always somebody


async def test_the_last_administrator_stays(realm: Realm) -> None:
    for user in (ROOT, CONTROLLER_USER):
        assert await refused(realm.world.delete("User", "root", user=user), "last administrator")
        assert await refused(realm.set("User", "root", user, disabled=True), "add another user to service:admins first")
        assert await refused(realm.set("User", "root", user, groups=["devs"]), "last administrator")
    assert await realm.set("User", "root", ROOT, groups=["service:admins"], displayName="Root")


async def test_an_administrator_who_is_not_the_last_may_go(realm: Realm) -> None:
    await realm.user("second", groups=["service:admins"])
    assert await realm.set("User", "root", ROOT, disabled=True)
    assert await refused(realm.world.delete("User", "second", user=ROOT), "last administrator")
    assert await realm.set("User", "root", ROOT, disabled=False)
    assert (await realm.world.delete("User", "second", user=ROOT)).is_removed


async def test_whoever_is_disabled_or_going_does_not_count(realm: Realm) -> None:
    await realm.user("off", groups=["service:admins"], disabled=True)
    body = realm.world.body(
        "User", "going", metadata={"finalizers": ["x.io/wait"]}, spec={"groups": ["service:admins"]}
    )
    await realm.world.submit("User", body, WriteOptions(ROOT, "tests"))
    await realm.world.delete("User", "going", user=ROOT)
    assert await refused(realm.world.delete("User", "root", user=ROOT), "last administrator")


async def test_a_user_who_only_mentions_the_group_does_not_count(realm: Realm) -> None:
    await realm.user("joker", displayName="system:masters", subject="service:admins")
    assert await refused(realm.world.delete("User", "root", user=ROOT), "last administrator")


async def test_two_administrators_cannot_delete_each_other_at_the_same_time(realm: Realm) -> None:
    await realm.user("second", groups=["service:admins"])
    users = realm.world.of("User")

    async def the_other_is_faster() -> None:
        await users.delete("", "second", DeleteOptions(), WriteOptions(ROOT))

    realm.world.store.before.append(the_other_is_faster)
    assert await refused(users.delete("", "root", DeleteOptions(), WriteOptions(ROOT)), "last administrator")
    assert "root" in realm.world.names("User")


# --- usernames


async def test_a_username_means_one_user(realm: Realm) -> None:
    await realm.user("eve", username="evelyn")
    taken: list[tuple[str, Object]] = [("evelyn", {}), ("x", {"username": "evelyn"}), ("x", {"username": "ada"})]
    for name, spec in taken:
        with pytest.raises(Invalid, match="Duplicate value"):
            await realm.user(name, **spec)
    assert (await realm.user("x", username="x-the-first"))["spec"]["username"] == "x-the-first"


async def test_a_username_stays(realm: Realm) -> None:
    with pytest.raises(Invalid, match="immutable"):
        await realm.set("User", "ada", ROOT, username="countess")
    assert (await realm.set("User", "ada", ROOT, username=None))["spec"]["username"] == "ada"


async def test_teams_and_users_do_not_share_usernames_among_each_other(realm: Realm) -> None:
    assert (await realm.team("ada"))["spec"]["username"] == "ada"
    with pytest.raises(Invalid, match="Duplicate value"):
        await realm.team("other", username="ada")


# --- teams


@pytest.mark.parametrize("spec", [{"users": ["ada"]}, {"groups": ["people"]}])
async def test_who_is_in_a_team_is_not_for_everybody_to_say(realm: Realm, spec: Object) -> None:
    await realm.team("core")
    assert await refused(realm.set("Team", "core", ADA, **spec), 'the verb "bind" on teams "core"')
    assert await refused(realm.team("other", ADA, **spec), "bind")
    assert await realm.set("Team", "core", ROOT, **spec)


async def test_who_may_bind_a_team_may_say_who_is_in_it(realm: Realm) -> None:
    await realm.team("core")
    realm.rights.grant(ADA, "bind", "teams.management.service.sh", "core")
    assert await realm.set("Team", "core", ADA, users=["ada"])
    assert await refused(realm.set("Team", "core", BOB, users=["bob"]), "bind")


async def test_members_who_may_update_a_team_take_others_in(realm: Realm) -> None:
    await realm.team("core", users=["ada"])
    ada = await realm.signed_in("ada")
    assert await realm.set("Team", "core", ada, users=["ada", "bob"])
    assert await refused(realm.team("another", ada, users=["ada"]), "bind")


async def test_a_team_cannot_be_made_by_its_members_to_be(realm: Realm) -> None:
    """Roles may still be bound to a team of that name that is gone."""
    leftover = User("ada", ("service:team:core",))
    assert await refused(realm.team("core", leftover, users=["ada"]), "bind")


async def test_a_disabled_team_is_enabled_by_those_who_say_who_is_in_it(realm: Realm) -> None:
    await realm.team("core", users=["ada"], disabled=True)
    ada = await realm.signed_in("ada")
    assert await refused(realm.set("Team", "core", ada, disabled=False), "bind")
    assert await realm.set("Team", "core", ROOT, disabled=False)


@pytest.mark.parametrize(
    "spec", [{"clusterRoles": [{"name": "admin"}]}, {"groups": ["system:masters"]}, {"groups": ["service:admins"]}]
)
async def test_only_administrators_give_teams_roles_and_reserved_groups(realm: Realm, spec: Object) -> None:
    await realm.team("core", users=["ada"])
    ada = await realm.signed_in("ada")
    realm.rights.grant(ADA, "bind", "teams.management.service.sh", "core")
    for user in (ada, SCOPED_ROOT):
        assert await refused(realm.set("Team", "core", user, **spec))
    assert await realm.set("Team", "core", ROOT, **spec)


async def test_reserved_groups_that_are_there_already_may_stay(realm: Realm) -> None:
    await realm.team("core", users=["ada"], groups=["system:masters"])
    ada = await realm.signed_in("ada")
    assert await realm.set("Team", "core", ada, groups=["system:masters", "people"])


async def test_everything_else_of_a_team_is_for_those_who_may_write_it(realm: Realm) -> None:
    await realm.team("core", users=["bob"], groups=["people"])
    assert await realm.set("Team", "core", ADA, displayName="Core")
    assert await realm.team("empty", ADA, users=[])
    assert (await realm.world.delete("Team", "core", user=ADA)).is_removed


# --- bodies that are nothing like a user


@pytest.mark.parametrize("spec", [[], {"groups": "system:masters"}, {"groups": [{}]}, {"username": 7}])
@pytest.mark.parametrize("kind", ["User", "Team"])
async def test_a_body_of_the_wrong_shape_makes_nothing(realm: Realm, kind: str, spec: object) -> None:
    before = realm.world.names(kind)
    with pytest.raises(Invalid):
        await realm.world.submit(kind, realm.world.body(kind, "eve", spec=spec), WriteOptions(ADA, "tests"))
    assert realm.world.names(kind) == before
