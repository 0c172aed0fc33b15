"""Fixtures of the authorization tests: virtual time, and a new registry for each test."""

from collections.abc import AsyncIterator

import pytest

from tests.harness.registry import RegistryFixture, open_registry
from tests.harness.virtual_time import virtual_time_only as pytest_asyncio_loop_factories

__all__ = ["pytest_asyncio_loop_factories"]


@pytest.fixture
async def api() -> AsyncIterator[RegistryFixture]:
    async with open_registry() as fixture:
        yield fixture
