"""The event loops of the tests of `core`."""

import pytest

from tests.harness.event_loops import ASYNCIO_ONLY, BOTH_LOOPS, LoopFactories


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> LoopFactories:
    return BOTH_LOOPS if item.path.name == "test_framed_socket.py" else ASYNCIO_ONLY
