"""What stands below a runner's path, as handlers answer it. Over HTTP: `tests/live/test_runner_keys.py`."""

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


def handler(api: RegistryFixture, action: str, *published: Object) -> ActionHandler:
    async def token_keys() -> Sequence[Object]:
        return published

    rotation = KeyRotator(api.registry, GROUP, PEPPER, lambda outer, inner: True)
    keys = ComponentKeys(api.registry, GROUP, RUNNER_COMPONENT, "demo", PEPPER, rotation)
    facts = {"serviceHost": "https://fairlead.example.com"}
    return runner_handlers(GROUP, api.registry, keys, token_keys, facts)[GROUP, "runners", action]


def asked(action: str, name: str = "r", *, dry_run: bool = False) -> ActionRequest:
    kind = next(each.kind for each in RUNNER.actions if each.name == action)
    assert kind is not None
    return ActionRequest(ADMIN, kind, "get", "", name, {}, dry_run, call())


@on_virtual_time
async def test_a_runner_learns_what_tokens_are_verified_with() -> None:
    keys = [signing.generate_signing_key(NOW, 60) for _ in range(2)]
    published = signing.build_jwks(signing.rotate(SigningKeys(keys[0]), keys[1], NOW), NOW)
    async with open_registry() as api:
        await api.create("Runner", "r")
        told = await handler(api, "config", *published)(asked("config"))
        assert isinstance(told, dict)
        assert told["tokenCaCert"] == keys[1].public + keys[0].public
        assert (told["kind"], told["serviceHost"]) == ("RunnerConfig", "https://fairlead.example.com")


@on_virtual_time
async def test_before_the_first_token_there_is_nothing_to_verify_with() -> None:
    async with open_registry() as api:
        await api.create("Runner", "r")
        told = await handler(api, "config")(asked("config"))
        assert isinstance(told, dict) and told["tokenCaCert"] == ""


@on_virtual_time
async def test_a_runner_that_does_not_exist_is_told_nothing() -> None:
    async with open_registry() as api:
        for action in ("config", "accesskey", "rotatekey"):
            with pytest.raises(NotFound, match="not found"):
                await handler(api, action)(asked(action))


@on_virtual_time
async def test_a_rotation_is_not_rehearsed() -> None:
    async with open_registry() as api:
        await api.create("Runner", "r")
        with pytest.raises(BadRequest, match=r"dryRun is not supported: .*; omit it"):
            await handler(api, "rotatekey")(asked("rotatekey", dry_run=True))
