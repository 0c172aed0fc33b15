"""One running server for each module, and the clients that talk to it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.clients.server import Server, running
from tests.harness.kubectl import Kubectl


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture(scope="module")
def kubectl(server: Server, component: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    """The newest kubectl. There is a module for older ones, too."""
    return Kubectl(component("kubectl"), server.kubeconfig, tmp_path_factory.mktemp("home"))
