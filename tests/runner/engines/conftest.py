"""Places for containers, one per file of tests."""

from collections.abc import Iterator

import pytest

from tests.runner.harness.podman import Containers, open_containers


@pytest.fixture(scope="module")
def containers() -> Iterator[Containers]:
    with open_containers() as opened:
        yield opened
