"""Fixtures for tests of the gateway: a fake cluster, and a connection to it."""

from collections.abc import AsyncIterator

import pytest

from fairlead.upstream.upstream import Upstream
from tests.fake_cluster.server import FakeCluster, fake_cluster
from tests.gateway.gateway_calls import connect_upstream

__all__ = ["fake_cluster", "upstream"]


@pytest.fixture
async def upstream(fake_cluster: FakeCluster) -> AsyncIterator[Upstream]:
    async with connect_upstream(fake_cluster) as upstream:
        yield upstream
