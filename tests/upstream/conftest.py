"""Fixtures for tests of the upstream package: one fake cluster per test, and the event loops to run on.

Servers run on uvloop, which closes connections differently from asyncio.
"""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import uvloop

from tests.fake_cluster.server import fake_cluster

__all__ = ["fake_cluster"]

FILES_ON_BOTH_LOOPS = frozenset({"test_transport.py", "test_websocket.py", "test_responses.py"})
LoopFactories = Mapping[str, Callable[[], asyncio.AbstractEventLoop]]
ASYNCIO_ONLY: LoopFactories = {"asyncio": asyncio.SelectorEventLoop}
BOTH_LOOPS: LoopFactories = {**ASYNCIO_ONLY, "uvloop": uvloop.new_event_loop}

if missing := sorted(name for name in FILES_ON_BOTH_LOOPS if not (Path(__file__).parent / name).is_file()):
    raise pytest.UsageError(f"{__file__}: FILES_ON_BOTH_LOOPS names files that do not exist: {', '.join(missing)}")


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> LoopFactories:
    return BOTH_LOOPS if item.path.name in FILES_ON_BOTH_LOOPS else ASYNCIO_ONLY
