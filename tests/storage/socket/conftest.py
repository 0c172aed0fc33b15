"""The tests of the socket store run on both event loops: servers use uvloop."""

import pytest

from tests.harness.event_loops import BOTH_LOOPS, LoopFactories


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> LoopFactories:
    return BOTH_LOOPS
