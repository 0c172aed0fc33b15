"""Users and teams: nobody becomes more, or makes others more, than they are allowed to."""

from collections.abc import AsyncIterator, Awaitable
from dataclasses import replace

import pytest

from fairlead.core.errors import Forbidden, Invalid
from fairlead.core.objects import Object
from fairlead.core.scope import Scope
from fairlead.core.user import CONTROLLER_USER, User
from fairlead.registry.write_options import DeleteOptions, WriteOptions
from tests.harness.auth import ADA, BOB, ROOT, AuthFixture, open_auth

SCOPED_ROOT = replace(ROOT, scope=Scope(projects=("*",)))
PASSWORD = {"secretName": "x-password", "secretNamespace": "service-system"}


@pytest.fixture
async def auth() -> AsyncIterator[AuthFixture]:
    async with open_auth() as made:
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
async def test_only_administrators_give_users_groups_and_roles(auth: AuthFixture, spec: Object) -> None:
    for user in (ADA, BOB, SCOPED_ROOT):
        assert await refused(auth.user("eve", user, **spec))
        assert await refused(auth.set("User", "ada", user, **spec))
    assert await auth.user("eve", ROOT, **spec)
    assert await auth.set("User", "ada", ROOT, **spec)


async def test_nobody_takes_a_users_groups_away_who_could_not_give_them(auth: AuthFixture) -> None:
    await auth.set("User", "bob", ROOT, groups=["blocked"])
    assert await refused(auth.set("User", "bob", BOB, groups=[]))
    assert await refused(auth.set("User", "bob", BOB, groups=None))


async def test_everything_else_of_a_user_is_for_those_who_may_write_it(auth: AuthFixture) -> None:
    await auth.set("User", "bob", ROOT, groups=["devs"])
    assert await auth.set("User", "bob", ADA, displayName="Bob", email="bob@example.com", disabled=True)
    assert await auth.user("eve", ADA, displayName="Eve", groups=[], clusterRoles=[])
    assert (await auth.api.delete("User", "eve", user=ADA)).is_removed


@pytest.mark.parametrize("group", ["system:masters", "service:admins"])
async def test_who_is_in_an_admin_group_is_written_by_administrators_only(auth: AuthFixture, group: str) -> None:
    await auth.user("boss", groups=[group])
    for user in (ADA, SCOPED_ROOT):
        assert await refused(auth.set("User", "boss", user, email="x@example.com"))
        assert await refused(auth.api.delete("User", "boss", user=user))
    assert await auth.set("User", "boss", ROOT, email="x@example.com")
    assert (await auth.api.delete("User", "boss", user=ROOT)).is_removed


@pytest.mark.parametrize("spec", [{"passwordRef": PASSWORD}, {"codesRef": PASSWORD}, {"subject": "somebody"}])
async def test_what_lets_one_sign_in_as_another_takes_the_right_to_act_as_that_one(
    auth: AuthFixture, spec: Object
) -> None:
    assert await refused(auth.set("User", "bob", ADA, **spec), 'needs the verb "impersonate" on users "bob"')
    assert await refused(auth.user("eve", ADA, **spec), "impersonate")
    auth.rights.grant(ADA, "impersonate", "users", "bob")
    assert await auth.set("User", "bob", ADA, **spec)
    assert await auth.user("eve", ROOT, **spec)
    assert {(each.verb, each.group, each.resource) for each in auth.rights.asked} == {("impersonate", "", "users")}


async def test_that_right_does_not_reach_administrators(auth: AuthFixture) -> None:
    auth.rights.grant(ADA, "impersonate", "users", "root")
    assert await refused(auth.set("User", "root", ADA, passwordRef=PASSWORD))


async def test_ones_own_password_is_ones_own_matter(auth: AuthFixture) -> None:
    ada = await auth.signed_in("ada")
    assert await auth.set("User", "ada", ada, passwordRef=PASSWORD)


async def test_a_key_that_is_cut_down_does_not_set_its_owners_password(auth: AuthFixture) -> None:
    ada = await auth.signed_in("ada", scope={"projects": [{"project": "*"}]})
    assert await refused(auth.set("User", "ada", ada, passwordRef=PASSWORD), "impersonate")


async def test_who_only_has_a_users_name_is_not_that_user(auth: AuthFixture) -> None:
    machine = await auth.key("machine", ROOT, subject="ada")
    user = auth.authenticate.authenticate_token(machine["spec"]["key"])
    assert user.name == "ada"
    assert await refused(auth.set("User", "ada", user, passwordRef=PASSWORD), "impersonate")


# --- there is always somebody


async def test_the_last_administrator_stays(auth: AuthFixture) -> None:
    for user in (ROOT, CONTROLLER_USER):
        assert await refused(auth.api.delete("User", "root", user=user), "last administrator")
        assert await refused(auth.set("User", "root", user, disabled=True), "add another user to service:admins first")
        assert await refused(auth.set("User", "root", user, groups=["devs"]), "last administrator")
    assert await auth.set("User", "root", ROOT, groups=["service:admins"], displayName="Root")


async def test_an_administrator_who_is_not_the_last_may_go(auth: AuthFixture) -> None:
    await auth.user("second", groups=["service:admins"])
    assert await auth.set("User", "root", ROOT, disabled=True)
    assert await refused(auth.api.delete("User", "second", user=ROOT), "last administrator")
    assert await auth.set("User", "root", ROOT, disabled=False)
    assert (await auth.api.delete("User", "second", user=ROOT)).is_removed


async def test_whoever_is_disabled_or_going_does_not_count(auth: AuthFixture) -> None:
    await auth.user("off", groups=["service:admins"], disabled=True)
    body = auth.api.body("User", "going", metadata={"finalizers": ["x.io/wait"]}, spec={"groups": ["service:admins"]})
    await auth.api.submit("User", body, WriteOptions(ROOT, "tests"))
    await auth.api.delete("User", "going", user=ROOT)
    assert await refused(auth.api.delete("User", "root", user=ROOT), "last administrator")


async def test_a_user_who_only_mentions_the_group_does_not_count(auth: AuthFixture) -> None:
    await auth.user("joker", displayName="system:masters", subject="service:admins")
    assert await refused(auth.api.delete("User", "root", user=ROOT), "last administrator")


async def test_two_administrators_cannot_delete_each_other_at_the_same_time(auth: AuthFixture) -> None:
    await auth.user("second", groups=["service:admins"])
    users = auth.api.of("User")

    async def the_other_is_faster() -> None:
        await users.delete("", "second", DeleteOptions(), WriteOptions(ROOT))

    auth.api.store.before.append(the_other_is_faster)
    assert await refused(users.delete("", "root", DeleteOptions(), WriteOptions(ROOT)), "last administrator")
    assert "root" in auth.api.names("User")


# --- usernames


async def test_a_username_means_one_user(auth: AuthFixture) -> None:
    await auth.user("eve", username="evelyn")
    taken: list[tuple[str, Object]] = [("evelyn", {}), ("x", {"username": "evelyn"}), ("x", {"username": "ada"})]
    for name, spec in taken:
        with pytest.raises(Invalid, match="Duplicate value"):
            await auth.user(name, **spec)
    assert (await auth.user("x", username="x-the-first"))["spec"]["username"] == "x-the-first"


async def test_a_username_stays(auth: AuthFixture) -> None:
    with pytest.raises(Invalid, match="immutable"):
        await auth.set("User", "ada", ROOT, username="countess")
    assert (await auth.set("User", "ada", ROOT, username=None))["spec"]["username"] == "ada"


async def test_teams_and_users_do_not_share_usernames_among_each_other(auth: AuthFixture) -> None:
    assert (await auth.team("ada"))["spec"]["username"] == "ada"
    with pytest.raises(Invalid, match="Duplicate value"):
        await auth.team("other", username="ada")


# --- teams


@pytest.mark.parametrize("spec", [{"users": ["ada"]}, {"groups": ["people"]}])
async def test_who_is_in_a_team_is_not_for_everybody_to_say(auth: AuthFixture, spec: Object) -> None:
    await auth.team("core")
    assert await refused(auth.set("Team", "core", ADA, **spec), 'the verb "bind" on teams "core"')
    assert await refused(auth.team("other", ADA, **spec), "bind")
    assert await auth.set("Team", "core", ROOT, **spec)


async def test_who_may_bind_a_team_may_say_who_is_in_it(auth: AuthFixture) -> None:
    await auth.team("core")
    auth.rights.grant(ADA, "bind", "teams.management.service.sh", "core")
    assert await auth.set("Team", "core", ADA, users=["ada"])
    assert await refused(auth.set("Team", "core", BOB, users=["bob"]), "bind")


async def test_members_who_may_update_a_team_take_others_in(auth: AuthFixture) -> None:
    await auth.team("core", users=["ada"])
    ada = await auth.signed_in("ada")
    assert await auth.set("Team", "core", ada, users=["ada", "bob"])
    assert await refused(auth.team("another", ada, users=["ada"]), "bind")


async def test_a_team_cannot_be_made_by_its_members_to_be(auth: AuthFixture) -> None:
    """Roles may still be bound to a team of that name that is gone."""
    leftover = User("ada", ("service:team:core",))
    assert await refused(auth.team("core", leftover, users=["ada"]), "bind")


async def test_a_disabled_team_is_enabled_by_those_who_say_who_is_in_it(auth: AuthFixture) -> None:
    await auth.team("core", users=["ada"], disabled=True)
    ada = await auth.signed_in("ada")
    assert await refused(auth.set("Team", "core", ada, disabled=False), "bind")
    assert await auth.set("Team", "core", ROOT, disabled=False)


@pytest.mark.parametrize(
    "spec", [{"clusterRoles": [{"name": "admin"}]}, {"groups": ["system:masters"]}, {"groups": ["service:admins"]}]
)
async def test_only_administrators_give_teams_roles_and_reserved_groups(auth: AuthFixture, spec: Object) -> None:
    await auth.team("core", users=["ada"])
    ada = await auth.signed_in("ada")
    auth.rights.grant(ADA, "bind", "teams.management.service.sh", "core")
    for user in (ada, SCOPED_ROOT):
        assert await refused(auth.set("Team", "core", user, **spec))
    assert await auth.set("Team", "core", ROOT, **spec)


async def test_reserved_groups_that_are_there_already_may_stay(auth: AuthFixture) -> None:
    await auth.team("core", users=["ada"], groups=["system:masters"])
    ada = await auth.signed_in("ada")
    assert await auth.set("Team", "core", ada, groups=["system:masters", "people"])


async def test_everything_else_of_a_team_is_for_those_who_may_write_it(auth: AuthFixture) -> None:
    await auth.team("core", users=["bob"], groups=["people"])
    assert await auth.set("Team", "core", ADA, displayName="Core")
    assert await auth.team("empty", ADA, users=[])
    assert (await auth.api.delete("Team", "core", user=ADA)).is_removed


# --- bodies that are nothing like a user


@pytest.mark.parametrize("spec", [[], {"groups": "system:masters"}, {"groups": [{}]}, {"username": 7}])
@pytest.mark.parametrize("kind", ["User", "Team"])
async def test_a_body_of_the_wrong_shape_makes_nothing(auth: AuthFixture, kind: str, spec: object) -> None:
    before = auth.api.names(kind)
    with pytest.raises(Invalid):
        await auth.api.submit(kind, auth.api.body(kind, "eve", spec=spec), WriteOptions(ADA, "tests"))
    assert auth.api.names(kind) == before
