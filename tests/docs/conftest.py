"""A server for the tests that compare documents with what it serves."""

from collections.abc import Iterator

import pytest

from tests.harness.server_process import Server, running_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("server") / "data") as server:
        yield server
