"""Places for containers, one per file of tests. The tests run real programs, and so on real time."""

from collections.abc import Iterator

import pytest

from tests.harness.event_loops import ASYNCIO_ONLY, LoopFactories
from tests.runner.harness.podman import Containers, open_containers


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> LoopFactories:
    return ASYNCIO_ONLY


@pytest.fixture(scope="module")
def containers() -> Iterator[Containers]:
    with open_containers() as opened:
        yield opened
