"""Runners: the address that the server connects to needs the permission to create clusters."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead.admission.runners import protect_runner_endpoint
from fairlead.core.call import Decision, RequestInfo
from fairlead.core.errors import Forbidden
from fairlead.core.user import User
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.registry.write_options import WriteOptions
from tests.harness.registry import ADA, RegistryFixture, open_registry

OPS = User("ops")
TARGET = {"endpoint": "r.example.com:8445", "endpointFingerprint": "a" * 64}


def authorize(user: User, target: RequestInfo) -> Decision:
    assert (target.verb, target.group, target.resource, target.name) == ("create", GROUP, "clusters", "")
    return Decision(user == OPS)


@pytest.fixture
async def api() -> AsyncIterator[RegistryFixture]:
    async with open_registry(rules=(protect_runner_endpoint(authorize, GROUP),)) as fixture:
        yield fixture


async def create(api: RegistryFixture, user: User, **spec: Any) -> None:
    await api.submit("Runner", api.build_object("Runner", "a", spec=spec), WriteOptions(user))


async def change(api: RegistryFixture, user: User, **spec: Any) -> None:
    await api.patch("Runner", "a", lambda each: each["spec"].update(spec), WriteOptions(user))


async def test_only_those_who_may_create_clusters_create_a_runner_that_the_server_connects_to(
    api: RegistryFixture,
) -> None:
    with pytest.raises(Forbidden, match='User "ada" may not create clusters'):
        await create(api, ADA, **TARGET)
    await create(api, OPS, **TARGET)


@pytest.mark.parametrize("spec", [{"endpoint": "other.example.com"}, {"endpointFingerprint": "b" * 64}])
async def test_neither_address_nor_fingerprint_can_be_changed_without_it(
    api: RegistryFixture, spec: dict[str, str]
) -> None:
    await create(api, OPS, **TARGET)
    with pytest.raises(Forbidden):
        await change(api, ADA, **spec)
    await change(api, OPS, **spec)


async def test_other_fields_and_turning_it_off_do_not_need_it(api: RegistryFixture) -> None:
    await create(api, OPS, **TARGET)
    await change(api, ADA, displayName="x")
    await change(api, ADA, endpoint="", endpointFingerprint="")
    await change(api, ADA, endpoint="clients.example.com")
    with pytest.raises(Forbidden):
        await change(api, ADA, endpointFingerprint="a" * 64)
