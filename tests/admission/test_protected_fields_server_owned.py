"""Secrets of the server: their data is in no reply, and only the server writes them."""

from base64 import b64encode

import pytest

from fairlead.admission.protected_fields import protect_server_owned
from fairlead.core.errors import Forbidden
from fairlead.core.objects import Object
from fairlead.core.scope import Scope
from fairlead.core.user import CONTROLLER_USER, User
from fairlead.registry.write_options import WriteOptions
from tests.harness.registry import ADA, RegistryFixture

ADMIN = User("root", ("system:masters",))
SCOPED = User("root", ("system:masters",), scope=Scope(projects=("*",)))
CANARY = b64encode(b"canary").decode()
OTHER = b64encode(b"other").decode()


@pytest.fixture
async def api_with_rule(api: RegistryFixture) -> RegistryFixture:
    """The registry with this admission rule and one Secret of the server."""
    fixture = api.with_rules(protect_server_owned)
    body = fixture.build_object("Secret", "own", type="service.sh/signing-keys", data={"k": CANARY})
    assert CANARY not in str(await fixture.submit("Secret", body, WriteOptions(CONTROLLER_USER)))
    return fixture


async def test_t26_no_reply_has_the_data_of_a_server_secret(api_with_rule: RegistryFixture) -> None:
    entry = api_with_rule.resource("Secret").get_cached("demo", "own")
    assert entry is not None and CANARY.encode() not in entry.body
    assert (api_with_rule.get("Secret", "own") or {})["data"] == {"k": CANARY}, "the server itself reads it"


def set_labels(secret: Object) -> None:
    secret["metadata"]["labels"] = {"a": "b"}


async def test_t26_a_patch_cannot_copy_the_data(api_with_rule: RegistryFixture) -> None:
    def copy_data(secret: Object) -> None:
        secret["metadata"]["annotations"] = {"x": str(secret.get("data"))}

    assert CANARY not in str(await api_with_rule.patch("Secret", "own", copy_data, WriteOptions(ADMIN)))


@pytest.mark.parametrize("user", [ADA, ADMIN, SCOPED])
async def test_t45_users_cannot_create_or_change_server_secrets(api_with_rule: RegistryFixture, user: User) -> None:
    body = api_with_rule.build_object("Secret", "new", type="service.sh/password", data={"k": OTHER})
    with pytest.raises(Forbidden, match="for the server's own use"):
        await api_with_rule.submit("Secret", body, WriteOptions(user))
    with pytest.raises(Forbidden):
        await api_with_rule.patch("Secret", "own", lambda secret: secret.update(data={"k": OTHER}), WriteOptions(user))


async def test_only_administrators_label_server_secrets(api_with_rule: RegistryFixture) -> None:
    for user in (ADA, SCOPED):
        with pytest.raises(Forbidden):
            await api_with_rule.patch("Secret", "own", set_labels, WriteOptions(user))
    await api_with_rule.patch("Secret", "own", set_labels, WriteOptions(ADMIN))
    assert (api_with_rule.get("Secret", "own") or {})["data"] == {"k": CANARY}, "data that was not sent is kept"


async def test_other_secrets_are_not_restricted(api_with_rule: RegistryFixture) -> None:
    body = api_with_rule.build_object("Secret", "mine", type="Opaque", data={"k": CANARY})
    assert (await api_with_rule.submit("Secret", body, WriteOptions(ADA)))["data"] == {"k": CANARY}
