"""Tests of SSH run real processes and sockets, and so on real time."""

import pytest

from tests.harness.event_loops import ASYNCIO_ONLY, LoopFactories


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> LoopFactories:
    return ASYNCIO_ONLY
