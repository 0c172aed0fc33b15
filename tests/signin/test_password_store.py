"""signin/passwords.py: which users have a password, and which Secrets contain one."""

import pytest

from fairlead.core.errors import Conflict, Forbidden, Unauthorized
from fairlead.core.user import CONTROLLER_USER
from fairlead.registry.codec import decode
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.registry.write_options import DeleteOptions, server_write_options
from tests.harness.calls import raise_for_status
from tests.harness.login import PASSWORD, open_login


async def test_no_password_can_be_set_for_a_user_of_an_identity_provider() -> None:
    async with open_login() as login:
        await login.add_user("alice", None, issuer="https://login.example.com", subject="1")
        with pytest.raises(Forbidden, match="signs in with an identity provider"):
            await login.passwords.set_password("alice", PASSWORD, CONTROLLER_USER)


async def test_the_password_of_a_user_who_now_has_an_identity_provider_does_not_work() -> None:
    async with open_login() as login:
        await login.add_user("alice")
        assert (await login.sign_in()).status == 200
        link = {"issuer": "https://login.example.com", "subject": "1"}
        await login.registry.resource(GROUP, "users").modify(
            "", "alice", lambda old: {**old, "spec": {**old["spec"], **link}}, server_write_options()
        )
        with pytest.raises(Unauthorized):
            raise_for_status(await login.sign_in())


async def test_t45_a_password_secret_that_the_server_did_not_create_is_not_used() -> None:
    async with open_login() as login:
        await login.add_user("alice")
        secrets = login.registry.resource("", "secrets")
        real = decode(await secrets.get("service-system", "alice-password"))
        await secrets.delete("service-system", "alice-password", DeleteOptions(), server_write_options())
        kept = {name: value for name, value in real["metadata"].items() if name in ("name", "ownerReferences")}
        planted = {**real, "metadata": kept, "type": "Opaque"}
        await secrets.create(planted, "service-system", server_write_options())
        with pytest.raises(Unauthorized):
            raise_for_status(await login.sign_in())
        with pytest.raises(Conflict, match="it is in the place of the password of user 'alice'; delete it"):
            await login.passwords.set_password("alice", PASSWORD, CONTROLLER_USER)
