"""Fixtures: one running server for each module, and the newest kubectl."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.clients.server import Server, run_server
from tests.harness.kubectl import Kubectl


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with run_server(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture(scope="module")
def kubectl(server: Server, component: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    """The newest kubectl. test_kubectl_older.py tests older versions."""
    return Kubectl(component("kubectl"), server.kubeconfig, tmp_path_factory.mktemp("home"))
