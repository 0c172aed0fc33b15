"""These tests run on virtual time, in a world of their own each."""

from collections.abc import AsyncIterator

import pytest

from tests.admission.world import World, new_world
from tests.controllers.connected_world import FakeReach
from tests.controllers.virtual_time import virtual_time_only as pytest_asyncio_loop_factories
from tests.far_side.kube import Kube

__all__ = ["pytest_asyncio_loop_factories"]


@pytest.fixture
def reach() -> FakeReach:
    return FakeReach()


@pytest.fixture
def kube(reach: FakeReach) -> Kube:
    return reach.kube


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with new_world() as made:
        yield made
