"""Changing access keys: never beyond the one in use, never their value, and never what the server writes."""

from collections.abc import AsyncIterator

import pytest

from fairlead.core.errors import Forbidden, Invalid
from fairlead.core.objects import Object
from fairlead.core.user import AUTHENTICATED_GROUPS, CONTROLLER_USER, User
from fairlead.registry.write_options import WriteOptions
from tests.harness.auth import ADA, BOB, PEPPER, ROOT, AuthFixture, open_auth, projects

CHOSEN = "a-key-of-my-own-choice"


@pytest.fixture
async def auth() -> AsyncIterator[AuthFixture]:
    async with open_auth() as made:
        yield made


def told(caught: pytest.ExceptionInfo[Invalid]) -> dict[str, str]:
    return {problem.field: problem.message for problem in caught.value.details.problems}


async def test_a_value_is_not_changed_by_an_update(auth: AuthFixture) -> None:
    await auth.key("k", key=CHOSEN)
    with pytest.raises(Invalid, match="rotate") as caught:
        await auth.set("OwnedAccessKey", "k", ADA, key="another-key-of-mine")
    assert list(told(caught)) == ["spec.key"] and "another-key-of-mine" not in caught.value.message
    assert auth.opens(CHOSEN)


@pytest.mark.parametrize("key", [None, "", CHOSEN])
async def test_an_update_that_does_not_change_the_value_keeps_it(auth: AuthFixture, key: str | None) -> None:
    """Files that people apply again have the value in them, or have it left out."""
    await auth.key("k", key=CHOSEN)
    await auth.set("OwnedAccessKey", "k", ADA, displayName="changed", key=key)
    assert auth.stored("k")["spec"]["key"] == PEPPER.digest(CHOSEN)
    assert auth.opens(CHOSEN)


async def test_knowing_the_digest_is_not_knowing_the_key(auth: AuthFixture) -> None:
    await auth.key("k", key=CHOSEN)
    await auth.key("other", BOB, key=PEPPER.digest(CHOSEN))
    assert auth.authenticate.authenticate_token(CHOSEN).name == "ada"


async def test_a_put_without_a_type_keeps_it(auth: AuthFixture) -> None:
    made = await auth.key("k", CONTROLLER_USER, user="ada", type="Login")
    body = auth.api.body("OwnedAccessKey", "k", spec={"user": "ada"})
    body["metadata"]["resourceVersion"] = made["metadata"]["resourceVersion"]
    assert (await auth.api.put("OwnedAccessKey", body, WriteOptions(ADA, "tests")))["spec"]["type"] == "Login"


async def test_a_type_that_is_named_is_taken(auth: AuthFixture) -> None:
    await auth.key("k")
    assert (await auth.set("OwnedAccessKey", "k", ADA, type="Other"))["spec"]["type"] == "Other"


@pytest.mark.parametrize("field", ["user", "team", "subject"])
async def test_whom_a_key_stands_for_stays(auth: AuthFixture, field: str) -> None:
    await auth.team("x")
    await auth.user("x")
    await auth.key("k")
    with pytest.raises(Invalid):
        await auth.set("OwnedAccessKey", "k", ROOT, **{field: "x"})
    with pytest.raises(Invalid):
        await auth.set("OwnedAccessKey", "k", ROOT, user=None)


@pytest.mark.parametrize(
    ("made", "change"),
    [
        ({"scope": projects("a")}, {"scope": projects("a", "b")}),
        ({"scope": projects("a")}, {"scope": None}),
        ({"ttl": 50}, {"ttl": 500}),
        ({"ttl": 50}, {"ttl": None}),
        ({"ttl": 50}, {"ttlAfterLastActivity": True}),
    ],
)
async def test_t4_a_key_is_not_widened_beyond_the_one_in_use(auth: AuthFixture, made: Object, change: Object) -> None:
    await auth.key("k", ADA, **made)
    ada = await auth.signed_in("ada", **{"scope": projects("a"), "ttl": 100, **made})
    before = auth.stored("k")
    with pytest.raises(Forbidden):
        await auth.set("OwnedAccessKey", "k", ada, **change)
    assert auth.stored("k") == before


async def test_t4_groups_are_not_added_by_an_update(auth: AuthFixture) -> None:
    await auth.key("k")
    with pytest.raises(Forbidden, match="only administrators"):
        await auth.set("OwnedAccessKey", "k", ADA, groups=["system:masters"])
    assert await auth.set("OwnedAccessKey", "k", ROOT, groups=["ci"])
    assert await auth.set("OwnedAccessKey", "k", ADA, groups=[])


async def test_t4_a_key_that_reaches_further_is_not_switched_on_again(auth: AuthFixture) -> None:
    await auth.key("k", disabled=True)
    ada = await auth.signed_in("ada", scope=projects("a"))
    with pytest.raises(Forbidden, match="exceeds the scope"):
        await auth.set("OwnedAccessKey", "k", ada, disabled=False)
    assert await auth.set("OwnedAccessKey", "k", ADA, disabled=False)


async def test_a_scoped_key_may_still_narrow_a_wider_one(auth: AuthFixture) -> None:
    await auth.key("k", ttl=500)
    ada = await auth.signed_in("ada", scope=projects("a"))
    assert await auth.set("OwnedAccessKey", "k", ada, ttl=100, disabled=True, displayName="off", scope=projects("z"))


@pytest.mark.parametrize("status", [{"expired": None}, {"lastActivity": "2099-01-01T00:00:00Z"}, {"previous": []}])
async def test_r7_nobody_but_the_server_writes_the_status(auth: AuthFixture, status: Object) -> None:
    await auth.key("k")
    for user in (ADA, ROOT):
        with pytest.raises(Forbidden, match="only the server may write the status"):
            writing = WriteOptions(user, "tests", subresource="status")
            await auth.api.patch("OwnedAccessKey", "k", lambda obj: obj.update(status=status), writing)


async def test_t19_nobody_makes_a_key_for_a_user_who_is_not_in_force(auth: AuthFixture) -> None:
    asleep = User("dora", AUTHENTICATED_GROUPS, impersonator=ROOT)
    with pytest.raises(Forbidden, match='there is no active user "dora"'):
        await auth.key("k", asleep)
