"""These tests run on virtual time, in a world of their own each."""

from collections.abc import AsyncIterator

import pytest

from tests.harness.registry import World, new_world
from tests.harness.virtual_time import virtual_time_only as pytest_asyncio_loop_factories

__all__ = ["pytest_asyncio_loop_factories"]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with new_world() as made:
        yield made
