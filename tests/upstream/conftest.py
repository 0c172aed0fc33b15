"""One far side for each test, and both event loops: servers run on uvloop, which ends connections in its own way."""

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop

from tests.fake_cluster.server import fake_cluster

__all__ = ["fake_cluster"]

ON_BOTH = frozenset({"test_transport.py", "test_websocket.py", "test_responses.py"})
Loops = Mapping[str, Callable[[], asyncio.AbstractEventLoop]]
ONE: Loops = {"asyncio": asyncio.SelectorEventLoop}
BOTH: Loops = {**ONE, "uvloop": uvloop.new_event_loop}


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> Loops:
    return BOTH if item.path.name in ON_BOTH else ONE
