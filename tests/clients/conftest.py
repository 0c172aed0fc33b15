"""One running server for each module, and the clients that talk to it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.clients.kubectl import Kubectl, minor_version
from tests.clients.running import Server, running

OLDEST = 30
"""Of kubectl 1.x: the oldest that validates, explains and reports its version as today's do."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture(scope="module")
def kubectl(server: Server, component: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    """The machine's own kubectl. A distribution's may be years old; there is a module for that one, too."""
    program = component("kubectl")
    minor = minor_version(program)
    if minor < OLDEST:
        pytest.skip(f"kubectl 1.{minor} is too old for these tests; put 1.{OLDEST} or newer on the PATH")
    return Kubectl(program, server.kubeconfig, tmp_path_factory.mktemp("home"))
