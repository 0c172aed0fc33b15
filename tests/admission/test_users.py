"""Users and teams: no write raises the permissions of a user beyond those of the writer."""

from collections.abc import Awaitable
from dataclasses import replace

import pytest

from fairlead.core.errors import Forbidden, Invalid
from fairlead.core.objects import Object
from fairlead.core.scope import Scope
from fairlead.core.user import CONTROLLER_USER, User
from fairlead.registry.write_options import DeleteOptions, WriteOptions
from tests.harness.auth import ADA, BOB, ROOT, AuthFixture

SCOPED_ROOT = replace(ROOT, scope=Scope(projects=("*",)))
PASSWORD = {"secretName": "x-password", "secretNamespace": "service-system"}


async def is_forbidden(write: Awaitable[object], message: str = "only administrators") -> bool:
    with pytest.raises(Forbidden, match=message):
        await write
    return True


# --- users: groups, roles and credentials


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
async def test_only_administrators_set_groups_and_roles_of_users(auth: AuthFixture, spec: Object) -> None:
    for user in (ADA, BOB, SCOPED_ROOT):
        assert await is_forbidden(auth.create_user("eve", user, **spec))
        assert await is_forbidden(auth.update_spec("User", "ada", user, **spec))
    assert await auth.create_user("eve", ROOT, **spec)
    assert await auth.update_spec("User", "ada", ROOT, **spec)


async def test_only_administrators_remove_groups_of_users(auth: AuthFixture) -> None:
    await auth.update_spec("User", "bob", ROOT, groups=["blocked"])
    assert await is_forbidden(auth.update_spec("User", "bob", BOB, groups=[]))
    assert await is_forbidden(auth.update_spec("User", "bob", BOB, groups=None))


async def test_other_fields_of_a_user_need_no_further_permission(auth: AuthFixture) -> None:
    await auth.update_spec("User", "bob", ROOT, groups=["devs"])
    assert await auth.update_spec("User", "bob", ADA, displayName="Bob", email="bob@example.com", disabled=True)
    assert await auth.create_user("eve", ADA, displayName="Eve", groups=[], clusterRoles=[])
    assert (await auth.api.delete("User", "eve", user=ADA)).is_removed


@pytest.mark.parametrize("group", ["system:masters", "service:admins"])
async def test_only_administrators_write_users_in_an_admin_group(auth: AuthFixture, group: str) -> None:
    await auth.create_user("boss", groups=[group])
    for user in (ADA, SCOPED_ROOT):
        assert await is_forbidden(auth.update_spec("User", "boss", user, email="x@example.com"))
        assert await is_forbidden(auth.api.delete("User", "boss", user=user))
    assert await auth.update_spec("User", "boss", ROOT, email="x@example.com")
    assert (await auth.api.delete("User", "boss", user=ROOT)).is_removed


@pytest.mark.parametrize("spec", [{"passwordRef": PASSWORD}, {"codesRef": PASSWORD}, {"subject": "another"}])
async def test_changing_the_credentials_of_another_user_requires_impersonate(auth: AuthFixture, spec: Object) -> None:
    assert await is_forbidden(
        auth.update_spec("User", "bob", ADA, **spec), 'needs the verb "impersonate" on users "bob"'
    )
    assert await is_forbidden(auth.create_user("eve", ADA, **spec), "impersonate")
    auth.permissions.grant(ADA, "impersonate", "users", "bob")
    assert await auth.update_spec("User", "bob", ADA, **spec)
    assert await auth.create_user("eve", ROOT, **spec)
    assert {(each.verb, each.group, each.resource) for each in auth.permissions.checks} == {
        ("impersonate", "", "users")
    }


async def test_impersonate_does_not_allow_changing_credentials_of_administrators(auth: AuthFixture) -> None:
    auth.permissions.grant(ADA, "impersonate", "users", "root")
    assert await is_forbidden(auth.update_spec("User", "root", ADA, passwordRef=PASSWORD))


async def test_users_set_their_own_password(auth: AuthFixture) -> None:
    ada = await auth.sign_in("ada")
    assert await auth.update_spec("User", "ada", ada, passwordRef=PASSWORD)


async def test_a_scoped_key_cannot_set_the_password_of_its_owner(auth: AuthFixture) -> None:
    ada = await auth.sign_in("ada", scope={"projects": [{"project": "*"}]})
    assert await is_forbidden(auth.update_spec("User", "ada", ada, passwordRef=PASSWORD), "impersonate")


async def test_a_subject_with_the_name_of_a_user_is_not_that_user(auth: AuthFixture) -> None:
    machine_key = await auth.create_key("machine", ROOT, subject="ada")
    user = auth.authenticator.authenticate_token(machine_key["spec"]["key"])
    assert user.name == "ada"
    assert await is_forbidden(auth.update_spec("User", "ada", user, passwordRef=PASSWORD), "impersonate")


# --- the last administrator


async def test_the_last_administrator_cannot_be_removed(auth: AuthFixture) -> None:
    for user in (ROOT, CONTROLLER_USER):
        assert await is_forbidden(auth.api.delete("User", "root", user=user), "last administrator")
        assert await is_forbidden(
            auth.update_spec("User", "root", user, disabled=True), "add another user to service:admins first"
        )
        assert await is_forbidden(auth.update_spec("User", "root", user, groups=["devs"]), "last administrator")
    assert await auth.update_spec("User", "root", ROOT, groups=["service:admins"], displayName="Root")


async def test_an_administrator_who_is_not_the_last_can_be_removed(auth: AuthFixture) -> None:
    await auth.create_user("second", groups=["service:admins"])
    assert await auth.update_spec("User", "root", ROOT, disabled=True)
    assert await is_forbidden(auth.api.delete("User", "second", user=ROOT), "last administrator")
    assert await auth.update_spec("User", "root", ROOT, disabled=False)
    assert (await auth.api.delete("User", "second", user=ROOT)).is_removed


async def test_disabled_and_terminating_users_do_not_count_as_administrators(auth: AuthFixture) -> None:
    await auth.create_user("off", groups=["service:admins"], disabled=True)
    body = auth.api.build_object(
        "User", "going", metadata={"finalizers": ["x.io/wait"]}, spec={"groups": ["service:admins"]}
    )
    await auth.api.submit("User", body, WriteOptions(ROOT, "tests"))
    await auth.api.delete("User", "going", user=ROOT)
    assert await is_forbidden(auth.api.delete("User", "root", user=ROOT), "last administrator")


async def test_a_user_with_the_group_name_in_another_field_does_not_count(auth: AuthFixture) -> None:
    await auth.create_user("joker", displayName="system:masters", subject="service:admins")
    assert await is_forbidden(auth.api.delete("User", "root", user=ROOT), "last administrator")


async def test_users_of_an_identity_provider_do_not_replace_the_last_administrator_of_this_server(
    auth: AuthFixture,
) -> None:
    """A provider that is down, or a change there, must not lock everyone out."""
    issuer = "https://login.example.com"
    await auth.create_user("mapped", issuer=issuer, subject="1", ssoGroups=["okta:administrators"])
    await auth.create_user("direct", issuer=issuer, subject="2", groups=["service:admins"])
    reason = "the last administrator who can sign in without an identity provider"
    assert await is_forbidden(auth.api.delete("User", "root", user=ROOT), reason)
    assert await is_forbidden(auth.update_spec("User", "root", ROOT, issuer=issuer, subject="3"), reason)
    await auth.create_user("second", groups=["service:admins"])
    assert await auth.update_spec("User", "root", ROOT, issuer=issuer, subject="3")
    assert (await auth.api.delete("User", "direct", user=ROOT)).is_removed
    assert await is_forbidden(auth.api.delete("User", "second", user=ROOT), reason)


async def test_two_administrators_cannot_delete_each_other_at_the_same_time(auth: AuthFixture) -> None:
    await auth.create_user("second", groups=["service:admins"])
    users = auth.api.resource("User")

    async def delete_the_other_first() -> None:
        await users.delete("", "second", DeleteOptions(), WriteOptions(ROOT))

    auth.api.store.before.append(delete_the_other_first)
    assert await is_forbidden(users.delete("", "root", DeleteOptions(), WriteOptions(ROOT)), "last administrator")
    assert "root" in auth.api.list_names("User")


# --- usernames


async def test_usernames_are_unique(auth: AuthFixture) -> None:
    await auth.create_user("eve", username="evelyn")
    duplicates: list[tuple[str, Object]] = [("evelyn", {}), ("x", {"username": "evelyn"}), ("x", {"username": "ada"})]
    for name, spec in duplicates:
        with pytest.raises(Invalid, match="Duplicate value"):
            await auth.create_user(name, **spec)
    assert (await auth.create_user("x", username="x-the-first"))["spec"]["username"] == "x-the-first"


async def test_a_username_is_immutable(auth: AuthFixture) -> None:
    with pytest.raises(Invalid, match="immutable"):
        await auth.update_spec("User", "ada", ROOT, username="countess")
    assert (await auth.update_spec("User", "ada", ROOT, username=None))["spec"]["username"] == "ada"


async def test_teams_and_users_have_separate_usernames(auth: AuthFixture) -> None:
    assert (await auth.create_team("ada"))["spec"]["username"] == "ada"
    with pytest.raises(Invalid, match="Duplicate value"):
        await auth.create_team("other", username="ada")


# --- teams


@pytest.mark.parametrize("spec", [{"users": ["ada"]}, {"groups": ["people"]}])
async def test_changing_members_of_a_team_requires_bind(auth: AuthFixture, spec: Object) -> None:
    await auth.create_team("core")
    assert await is_forbidden(auth.update_spec("Team", "core", ADA, **spec), 'the verb "bind" on teams "core"')
    assert await is_forbidden(auth.create_team("other", ADA, **spec), "bind")
    assert await auth.update_spec("Team", "core", ROOT, **spec)


async def test_bind_on_a_team_allows_changing_its_members(auth: AuthFixture) -> None:
    await auth.create_team("core")
    auth.permissions.grant(ADA, "bind", "teams.management.service.sh", "core")
    assert await auth.update_spec("Team", "core", ADA, users=["ada"])
    assert await is_forbidden(auth.update_spec("Team", "core", BOB, users=["bob"]), "bind")


async def test_members_of_a_team_can_add_others(auth: AuthFixture) -> None:
    await auth.create_team("core", users=["ada"])
    ada = await auth.sign_in("ada")
    assert await auth.update_spec("Team", "core", ada, users=["ada", "bob"])
    assert await is_forbidden(auth.create_team("another", ada, users=["ada"]), "bind")


async def test_future_members_cannot_create_their_team(auth: AuthFixture) -> None:
    """Roles may still be bound to a deleted team of that name."""
    former_member = User("ada", ("service:team:core",))
    assert await is_forbidden(auth.create_team("core", former_member, users=["ada"]), "bind")


async def test_enabling_a_team_requires_bind(auth: AuthFixture) -> None:
    await auth.create_team("core", users=["ada"], disabled=True)
    ada = await auth.sign_in("ada")
    assert await is_forbidden(auth.update_spec("Team", "core", ada, disabled=False), "bind")
    assert await auth.update_spec("Team", "core", ROOT, disabled=False)


@pytest.mark.parametrize(
    "spec",
    [
        {"clusterRoles": [{"name": "admin"}]},
        {"groups": ["system:masters"]},
        {"groups": ["service:admins"]},
        {"groups": ["host:system:serviceaccounts"]},
    ],
)
async def test_only_administrators_set_roles_and_reserved_groups_of_teams(auth: AuthFixture, spec: Object) -> None:
    await auth.create_team("core", users=["ada"])
    ada = await auth.sign_in("ada")
    auth.permissions.grant(ADA, "bind", "teams.management.service.sh", "core")
    for user in (ada, SCOPED_ROOT):
        assert await is_forbidden(auth.update_spec("Team", "core", user, **spec))
    assert await auth.update_spec("Team", "core", ROOT, **spec)


async def test_existing_reserved_groups_may_stay(auth: AuthFixture) -> None:
    await auth.create_team("core", users=["ada"], groups=["system:masters"])
    ada = await auth.sign_in("ada")
    assert await auth.update_spec("Team", "core", ada, groups=["system:masters", "people"])


async def test_other_fields_of_a_team_need_no_further_permission(auth: AuthFixture) -> None:
    await auth.create_team("core", users=["bob"], groups=["people"])
    assert await auth.update_spec("Team", "core", ADA, displayName="Core")
    assert await auth.create_team("empty", ADA, users=[])
    assert (await auth.api.delete("Team", "core", user=ADA)).is_removed


# --- malformed bodies


@pytest.mark.parametrize("spec", [[], {"groups": "system:masters"}, {"groups": [{}]}, {"username": 7}])
@pytest.mark.parametrize("kind", ["User", "Team"])
async def test_a_malformed_spec_creates_nothing(auth: AuthFixture, kind: str, spec: object) -> None:
    before = auth.api.list_names(kind)
    with pytest.raises(Invalid):
        await auth.api.submit(kind, auth.api.build_object(kind, "eve", spec=spec), WriteOptions(ADA, "tests"))
    assert auth.api.list_names(kind) == before


@pytest.mark.parametrize("kind", ["User", "Team"])
async def test_roles_of_users_and_teams_cause_a_warning_because_they_have_no_effect(
    auth: AuthFixture, kind: str
) -> None:
    options = WriteOptions(ROOT)
    body = auth.api.build_object(kind, "eve", spec={"clusterRoles": [{"name": "admin"}]})
    await auth.api.submit(kind, body, options)
    assert options.warnings == ["spec.clusterRoles has no effect; bind roles with a ClusterRoleBinding or RoleBinding"]
