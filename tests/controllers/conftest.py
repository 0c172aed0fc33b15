"""Fixtures for tests of controllers: each test runs on virtual time, with its own registry."""

from collections.abc import AsyncIterator

import pytest

from tests.fake_cluster.kube import FakeKube
from tests.harness.registry import RegistryFixture, open_registry
from tests.harness.remote import FakeAccess
from tests.harness.virtual_time import virtual_time_only as pytest_asyncio_loop_factories

__all__ = ["pytest_asyncio_loop_factories"]


@pytest.fixture
def access() -> FakeAccess:
    return FakeAccess()


@pytest.fixture
def kube(access: FakeAccess) -> FakeKube:
    return access.kube


@pytest.fixture
async def api() -> AsyncIterator[RegistryFixture]:
    async with open_registry() as registry:
        yield registry
