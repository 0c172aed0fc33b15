"""Fixtures for tests of the upstream package: one fake cluster per test, and the event loops to run on."""

from pathlib import Path

import pytest

from tests.fake_cluster.server import fake_cluster
from tests.harness.event_loops import ASYNCIO_ONLY, BOTH_LOOPS, LoopFactories

__all__ = ["fake_cluster"]

FILES_ON_BOTH_LOOPS = frozenset(
    {
        "test_transport.py",
        "test_websocket.py",
        "test_responses.py",
        "test_tunnel_sharing.py",
        "test_local_gateway.py",
    }
)

if missing := sorted(name for name in FILES_ON_BOTH_LOOPS if not (Path(__file__).parent / name).is_file()):
    raise pytest.UsageError(f"{__file__}: FILES_ON_BOTH_LOOPS names files that do not exist: {', '.join(missing)}")


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> LoopFactories:
    return BOTH_LOOPS if item.path.name in FILES_ON_BOTH_LOOPS else ASYNCIO_ONLY
