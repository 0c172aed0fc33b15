"""One server for all tests of the specification, which use unique names for their objects."""

from collections.abc import Iterator

import pytest

from tests.harness.server_process import running_server
from tests.specification.api import Api


@pytest.fixture(scope="package")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A client of the administrator."""
    folder = tmp_path_factory.mktemp("specification") / "data"
    with running_server(folder) as server, server.client() as client:
        yield Api(server, client)
        assert server.stop() == 0
        assert "Traceback" not in server.log.read_text()
