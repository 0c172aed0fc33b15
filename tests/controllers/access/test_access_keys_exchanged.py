"""Keys of workload identity are deleted when they expire: CI jobs get many of them."""

import asyncio

from fairlead.controllers.access.access_keys import AccessKeyController
from fairlead.kinds.access.access_key import RULE_LABEL
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.registry.write_options import server_write_options
from tests.harness.auth import AuthFixture, open_auth
from tests.harness.controllers import running_controllers

DAY = 86_400.0


async def _create_key(auth: AuthFixture, name: str, **spec: object) -> None:
    body = auth.api.build_object("OwnedAccessKey", name, metadata={"labels": {RULE_LABEL: "deploy"}})
    await auth.registry.resource(GROUP, "ownedaccesskeys").create(
        {**body, "spec": {"user": "ada", **spec}}, "", server_write_options()
    )


async def test_an_exchanged_key_is_deleted_when_it_expires_and_other_keys_with_its_label_are_not() -> None:
    async with (
        open_auth() as auth,
        running_controllers(auth.api, AccessKeyController(auth.registry, GROUP, DAY, auth.last_used.last_use)),
    ):
        await _create_key(auth, "exchanged", type="Other", ttl=100)
        await _create_key(auth, "own", type="User", ttl=100)
        await _create_key(auth, "lasting", type="Other")
        await asyncio.sleep(99)
        assert set(auth.api.list_names("OwnedAccessKey")) >= {"exchanged", "own", "lasting"}
        await asyncio.sleep(3)
        names = auth.api.list_names("OwnedAccessKey")
        assert "exchanged" not in names and {"own", "lasting"} <= set(names)
