"""admission/sign_in_settings.py: only administrators change the settings that let users and workloads in."""

from collections.abc import AsyncIterator

import pytest

from fairlead.admission.sign_in_settings import protect_sign_in_settings
from fairlead.core.errors import Forbidden
from fairlead.core.scope import Scope
from fairlead.core.user import User
from fairlead.kinds.clusters.config import CONFIG_NAME
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.registry.write_options import WriteOptions
from tests.harness.registry import RegistryFixture, open_registry

ADMIN, EDITOR = User("root", ("service:admins",)), User("editor")
SCOPED_ADMIN = User("root", ("service:admins",), scope=Scope.parse({"roles": [{"role": "x"}]}))
OIDC = "oidc: {issuerURL: https://login.example.com, clientId: a}"
CONNECTORS = f"auth: {{connectors: [{{id: okta, {OIDC}}}]}}"
RULES = CONNECTORS[:-1] + ", groupMappings: [{connector: okta, value: a, groups: [service:admins]}]}"

TRUST = "auth: {workloadIdentity: {audience: https://fairlead.example.com}}"


@pytest.fixture
async def api() -> AsyncIterator[RegistryFixture]:
    async with open_registry(rules=(protect_sign_in_settings(GROUP),)) as fixture:
        body = fixture.build_object("Config", CONFIG_NAME, spec={"raw": ""})
        await fixture.submit("Config", body, WriteOptions(ADMIN, "tests"))
        yield fixture


async def write(api: RegistryFixture, raw: str, user: User) -> None:
    await api.patch("Config", CONFIG_NAME, lambda obj: obj["spec"].update(raw=raw), WriteOptions(user, "tests"))


@pytest.mark.parametrize("raw", [CONNECTORS, RULES, TRUST])
@pytest.mark.parametrize("user", [EDITOR, SCOPED_ADMIN], ids=["editor", "scoped"])
async def test_others_cannot_add_connectors_or_rules_or_trust(api: RegistryFixture, raw: str, user: User) -> None:
    with pytest.raises(Forbidden, match="only administrators, with a key without a scope, may change auth"):
        await write(api, raw, user)
    await write(api, raw, ADMIN)


async def test_others_cannot_remove_or_change_them_and_can_change_other_settings(api: RegistryFixture) -> None:
    await write(api, RULES, ADMIN)
    for raw in ("", CONNECTORS, RULES.replace("clientId: a", "clientId: b")):
        with pytest.raises(Forbidden):
            await write(api, raw, EDITOR)
    await write(api, f"{RULES}\naudit: {{level: Request}}", EDITOR)
