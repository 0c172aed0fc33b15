"""Updating access keys: permissions stay within the key in use; the value and the status stay the server's."""

import pytest

from fairlead.core.errors import Forbidden, Invalid
from fairlead.core.objects import Object
from fairlead.core.user import AUTHENTICATED_GROUPS, CONTROLLER_USER, User
from fairlead.registry.write_options import WriteOptions
from tests.harness.auth import ADA, BOB, PEPPER, ROOT, AuthFixture, problems_by_field, project_scope

CHOSEN = "a-key-of-my-own-choice"


async def test_an_update_cannot_change_the_value(auth: AuthFixture) -> None:
    await auth.create_key("k", key=CHOSEN)
    with pytest.raises(Invalid, match="rotate") as error:
        await auth.update_spec("OwnedAccessKey", "k", ADA, key="another-key-of-mine")
    assert list(problems_by_field(error)) == ["spec.key"] and "another-key-of-mine" not in error.value.message
    assert auth.accepts(CHOSEN)


@pytest.mark.parametrize("key", [None, "", CHOSEN])
async def test_an_update_that_does_not_change_the_value_keeps_it(auth: AuthFixture, key: str | None) -> None:
    """Manifests that users apply again contain the value, or leave it out."""
    await auth.create_key("k", key=CHOSEN)
    await auth.update_spec("OwnedAccessKey", "k", ADA, displayName="changed", key=key)
    assert auth.stored_key("k")["spec"]["key"] == PEPPER.digest(CHOSEN)
    assert auth.accepts(CHOSEN)


async def test_the_digest_of_a_key_is_not_accepted_as_the_key(auth: AuthFixture) -> None:
    await auth.create_key("k", key=CHOSEN)
    await auth.create_key("other", BOB, key=PEPPER.digest(CHOSEN))
    assert auth.authenticator.authenticate_token(CHOSEN).name == "ada"


async def test_a_put_without_a_type_keeps_it(auth: AuthFixture) -> None:
    created = await auth.create_key("k", CONTROLLER_USER, user="ada", type="Login")
    body = auth.api.build_object("OwnedAccessKey", "k", spec={"user": "ada"})
    body["metadata"]["resourceVersion"] = created["metadata"]["resourceVersion"]
    assert (await auth.api.replace("OwnedAccessKey", body, WriteOptions(ADA, "tests")))["spec"]["type"] == "Login"


async def test_an_update_can_set_the_type(auth: AuthFixture) -> None:
    await auth.create_key("k")
    assert (await auth.update_spec("OwnedAccessKey", "k", ADA, type="Other"))["spec"]["type"] == "Other"


@pytest.mark.parametrize("field", ["user", "team", "subject"])
async def test_the_owner_of_a_key_is_immutable(auth: AuthFixture, field: str) -> None:
    await auth.create_team("x")
    await auth.create_user("x")
    await auth.create_key("k")
    with pytest.raises(Invalid):
        await auth.update_spec("OwnedAccessKey", "k", ROOT, **{field: "x"})
    with pytest.raises(Invalid):
        await auth.update_spec("OwnedAccessKey", "k", ROOT, user=None)


@pytest.mark.parametrize(
    ("spec", "change"),
    [
        ({"scope": project_scope("a")}, {"scope": project_scope("a", "b")}),
        ({"scope": project_scope("a")}, {"scope": None}),
        ({"ttl": 50}, {"ttl": 500}),
        ({"ttl": 50}, {"ttl": None}),
        ({"ttl": 50}, {"ttlAfterLastActivity": True}),
    ],
)
async def test_t4_an_update_cannot_widen_a_key_beyond_the_key_in_use(
    auth: AuthFixture, spec: Object, change: Object
) -> None:
    await auth.create_key("k", ADA, **spec)
    ada = await auth.sign_in("ada", **{"scope": project_scope("a"), "ttl": 100, **spec})
    before = auth.stored_key("k")
    with pytest.raises(Forbidden):
        await auth.update_spec("OwnedAccessKey", "k", ada, **change)
    assert auth.stored_key("k") == before


async def test_t4_only_administrators_add_groups_in_an_update(auth: AuthFixture) -> None:
    await auth.create_key("k")
    with pytest.raises(Forbidden, match="only administrators"):
        await auth.update_spec("OwnedAccessKey", "k", ADA, groups=["system:masters"])
    assert await auth.update_spec("OwnedAccessKey", "k", ROOT, groups=["ci"])
    assert await auth.update_spec("OwnedAccessKey", "k", ADA, groups=[])


async def test_t4_a_scoped_key_cannot_enable_a_wider_key(auth: AuthFixture) -> None:
    await auth.create_key("k", disabled=True)
    ada = await auth.sign_in("ada", scope=project_scope("a"))
    with pytest.raises(Forbidden, match="exceeds the scope"):
        await auth.update_spec("OwnedAccessKey", "k", ada, disabled=False)
    assert await auth.update_spec("OwnedAccessKey", "k", ADA, disabled=False)


async def test_a_scoped_key_may_still_narrow_a_wider_one(auth: AuthFixture) -> None:
    await auth.create_key("k", ttl=500)
    ada = await auth.sign_in("ada", scope=project_scope("a"))
    assert await auth.update_spec(
        "OwnedAccessKey", "k", ada, ttl=100, disabled=True, displayName="off", scope=project_scope("z")
    )


@pytest.mark.parametrize("status", [{"expired": None}, {"lastActivity": "2099-01-01T00:00:00Z"}, {"previous": []}])
async def test_r7_only_the_server_writes_the_status(auth: AuthFixture, status: Object) -> None:
    await auth.create_key("k")
    for user in (ADA, ROOT):
        with pytest.raises(Forbidden, match="only the server may write the status"):
            options = WriteOptions(user, "tests", subresource="status")
            await auth.api.patch("OwnedAccessKey", "k", lambda obj: obj.update(status=status), options)


async def test_t19_no_key_is_created_for_an_impersonated_user_that_does_not_exist(auth: AuthFixture) -> None:
    unknown_user = User("dora", AUTHENTICATED_GROUPS, impersonator=ROOT)
    with pytest.raises(Forbidden, match='there is no active user "dora"'):
        await auth.create_key("k", unknown_user)
