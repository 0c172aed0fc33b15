"""The handlers of the subresources of runners. Over HTTP: `tests/live/test_runner_keys.py`."""

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from fairlead.authn.access_keys import Pepper
from fairlead.authn.component_keys import ComponentKeys
from fairlead.authn.key_rotation import KeyRotator
from fairlead.core.crypto import signing
from fairlead.core.crypto.signing import SigningKeys
from fairlead.core.errors import BadRequest, NotFound
from fairlead.core.objects import Object
from fairlead.kinds.clusters.runner import RUNNER, RUNNER_COMPONENT
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.server.api.actions import ActionHandler, ActionRequest
from fairlead.subresources.runners import runner_handlers
from tests.harness.calls import ADMIN, call
from tests.harness.registry import RegistryFixture, open_registry
from tests.harness.virtual_time import on_virtual_time

PEPPER = Pepper(b"p" * 32)
NOW = datetime(2026, 1, 2, tzinfo=UTC)


def build_handler(api: RegistryFixture, action: str, *jwks: Object) -> ActionHandler:
    async def token_keys() -> Sequence[Object]:
        return jwks

    rotator = KeyRotator(api.registry, GROUP, PEPPER, lambda outer, inner: True)
    keys = ComponentKeys(api.registry, GROUP, RUNNER_COMPONENT, "demo", PEPPER, rotator)
    config_fields = {"serviceHost": "https://fairlead.example.com"}
    return runner_handlers(GROUP, api.registry, keys, token_keys, lambda: config_fields)[GROUP, "runners", action]


def action_request(action: str, name: str = "r", *, dry_run: bool = False) -> ActionRequest:
    kind = next(each.kind for each in RUNNER.actions if each.name == action)
    assert kind is not None
    return ActionRequest(ADMIN, kind, "get", "", name, {}, dry_run, call())


@on_virtual_time
async def test_the_config_has_the_public_keys_of_tokens() -> None:
    keys = [signing.generate_signing_key(NOW, 60) for _ in range(2)]
    jwks = signing.build_jwks(signing.rotate(SigningKeys(keys[0]), keys[1], NOW), NOW)
    async with open_registry() as api:
        await api.create("Runner", "r")
        config = await build_handler(api, "config", *jwks)(action_request("config"))
        assert isinstance(config, dict)
        assert config["tokenCaCert"] == keys[1].public + keys[0].public
        assert (config["kind"], config["serviceHost"]) == ("RunnerConfig", "https://fairlead.example.com")


@on_virtual_time
async def test_the_config_has_no_keys_before_the_first_token() -> None:
    async with open_registry() as api:
        await api.create("Runner", "r")
        config = await build_handler(api, "config")(action_request("config"))
        assert isinstance(config, dict) and config["tokenCaCert"] == ""


@on_virtual_time
async def test_the_subresources_of_a_missing_runner_are_not_found() -> None:
    async with open_registry() as api:
        for action in ("config", "accesskey", "rotatekey"):
            with pytest.raises(NotFound, match="not found"):
                await build_handler(api, action)(action_request(action))


@on_virtual_time
async def test_a_rotation_supports_no_dry_run() -> None:
    async with open_registry() as api:
        await api.create("Runner", "r")
        with pytest.raises(BadRequest, match=r"dryRun is not supported: .*; omit it"):
            await build_handler(api, "rotatekey")(action_request("rotatekey", dry_run=True))
