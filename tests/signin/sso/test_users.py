"""signin/sso/users.py: users of identity providers, found by issuer and subject alone."""

import asyncio
import re

import pytest

from fairlead.authn.sign_on_policy import SignOnReason
from fairlead.core.errors import Forbidden, Invalid
from fairlead.core.objects import get_path, metadata, name_of
from fairlead.core.user import User
from fairlead.signin.sso.reasons import SignOnRefused
from fairlead.signin.sso.users import RESEMBLES_ANNOTATION
from tests.harness.sign_on import ISSUER, SignOnFixture, connector_settings, identity

OTHER_ISSUER = "https://other.example.com"


async def test_a_user_is_created_at_the_first_sign_on(sso: SignOnFixture) -> None:
    who = identity(display_name="Alice A", email="alice@example.com", is_email_verified=True, groups=("b", "a"))
    user = await sso.sign_on(who)
    spec = user["spec"]
    assert name_of(user) == "alice"
    assert (spec["issuer"], spec["subject"], spec["displayName"]) == (ISSUER, "1", "Alice A")
    assert spec["ssoGroups"] == ["okta:a", "okta:b"]
    assert spec["ssoIdentity"] == {"email": "alice@example.com", "emailVerified": True}


async def test_the_same_identity_is_the_same_user_with_new_claims(sso: SignOnFixture) -> None:
    await sso.sign_on(identity(groups=("a",), email="old@example.com"))
    user = await sso.sign_on(identity(username="renamed", groups=("b",), email="new@example.com"))
    assert name_of(user) == "alice"
    assert (user["spec"]["ssoGroups"], user["spec"]["email"]) == (["okta:b"], "new@example.com")
    assert sso.api.list_names("User") == ["alice"]


async def test_lost_claims_are_removed(sso: SignOnFixture) -> None:
    await sso.sign_on(identity(groups=("a",), email="a@example.com", is_email_verified=True))
    user = await sso.sign_on(identity())
    assert "ssoGroups" not in user["spec"]
    assert user["spec"]["ssoIdentity"] == {"emailVerified": False}


async def test_a_change_of_groups_is_recorded_as_an_event(sso: SignOnFixture) -> None:
    await sso.sign_on(identity(groups=("a", "b")))
    await sso.sign_on(identity(groups=("b", "c")))
    events = [sso.registry.resource("", "events").get_cached("default", name) for name in sso.api.list_names("Event")]
    assert [b"left okta:a; joined okta:c" in each.body for each in events if each is not None] == [True]


async def test_the_same_email_at_two_providers_is_two_users(sso: SignOnFixture) -> None:
    await sso.configure(connector_settings(), connector_settings("other", OTHER_ISSUER))
    one = await sso.sign_on(identity(email="a@corp.com", is_email_verified=True))
    two = await sso.sign_on(identity(issuer=OTHER_ISSUER, email="a@corp.com", is_email_verified=True), "other")
    assert name_of(one) != name_of(two)


async def test_a_local_user_of_the_same_name_stays_local(sso: SignOnFixture) -> None:
    await sso.create("User", "alice", groups=["system:masters"], email="alice@example.com", subject="1")
    user = await sso.sign_on(identity(email="alice@example.com", is_email_verified=True))
    assert name_of(user).startswith("alice-")
    assert "spec.issuer" not in str(sso.get("User", "alice"))
    assert "system:masters" not in sso.groups_of(name_of(user))


async def test_a_connector_can_give_every_new_user_a_name_that_cannot_be_chosen(sso: SignOnFixture) -> None:
    await sso.configure(connector_settings(userNameSuffix="always"))
    user = await sso.sign_on(identity())
    assert re.fullmatch(r"alice-[0-9a-f]{8}", name_of(user))
    assert name_of(await sso.sign_on(identity())) == name_of(user)
    await sso.configure(connector_settings(userNameSuffix="ifTaken"))
    assert name_of(await sso.sign_on(identity("2", username="bob"))) == "bob"


async def test_the_username_of_another_user_is_not_taken_over(sso: SignOnFixture) -> None:
    await sso.create("User", "root", username="alice")
    assert name_of(await sso.sign_on(identity())).startswith("alice-")


async def test_a_name_that_looks_like_another_is_flagged(sso: SignOnFixture) -> None:
    await sso.create("User", "admin")
    user = await sso.sign_on(identity(username="\u0430dmin"))
    assert name_of(user) != "admin"
    assert metadata(user)["annotations"] == {RESEMBLES_ANNOTATION: "admin"}


async def test_an_unsuspicious_name_is_not_flagged(sso: SignOnFixture) -> None:
    await sso.create("User", "admin")
    assert "annotations" not in metadata(await sso.sign_on(identity()))


async def test_users_are_not_created_if_the_connector_says_so(sso: SignOnFixture) -> None:
    await sso.configure(connector_settings(createUsers=False))
    with pytest.raises(SignOnRefused) as refused:
        await sso.sign_on(identity())
    assert refused.value.reason is SignOnReason.USER_NOT_FOUND
    await sso.create("User", "prepared", issuer=ISSUER, subject="1")
    assert name_of(await sso.sign_on(identity())) == "prepared"


async def test_a_disabled_user_cannot_sign_on(sso: SignOnFixture) -> None:
    await sso.sign_on(identity())
    await sso.update_spec("User", "alice", disabled=True)
    with pytest.raises(SignOnRefused) as refused:
        await sso.sign_on(identity(groups=("new",)))
    assert refused.value.reason is SignOnReason.USER_DISABLED
    assert "ssoGroups" not in sso.get("User", "alice")["spec"]


async def test_concurrent_first_sign_ons_create_one_user(sso: SignOnFixture) -> None:
    users = await asyncio.gather(*(sso.sign_on(identity()) for _ in range(5)))
    assert {name_of(user) for user in users} == {"alice"}
    assert sso.api.list_names("User") == ["alice"]


async def test_a_second_user_of_the_same_identity_is_rejected(sso: SignOnFixture) -> None:
    await sso.sign_on(identity())
    with pytest.raises(Invalid, match="Duplicate value"):
        await sso.create("User", "second", issuer=ISSUER, subject="1")
    await sso.create("User", "third", issuer=ISSUER, subject="3")


@pytest.mark.parametrize(
    "change",
    [
        {"subject": "2"},
        {"issuer": None},
        {"ssoGroups": ["okta:admins"]},
        {"ssoIdentity": {"email": "a@corp.com", "emailVerified": True}},
    ],
)
async def test_users_cannot_change_what_their_provider_says(sso: SignOnFixture, change: dict[str, object]) -> None:
    user = await sso.sign_on(identity())
    self = User("alice", ("service:user:alice",), metadata(user)["uid"])
    with pytest.raises(Forbidden):
        await sso.update_spec("User", "alice", self, **change)
    await sso.update_spec("User", "alice", self, email="mine@example.com")
    assert get_path(sso.get("User", "alice"), "spec.ssoIdentity") == {"emailVerified": False}
