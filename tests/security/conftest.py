"""Servers for the attacks: a shared one, whose log is checked after each test, and one that may break."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import httpx
import pytest

from tests.harness.server_process import Server, running_server


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("hostile") / "data") as server:
        yield server


@pytest.fixture
def server(shared_server: Server) -> Iterator[Server]:
    """The shared server. After the test it must be healthy, without tracebacks in its log."""
    log_offset = len(shared_server.log.read_text())
    yield shared_server
    assert_healthy(shared_server, log_offset)


@pytest.fixture(scope="session")
def get_working_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Server]]:
    """Returns a server, and starts a new one when the last no longer responds."""
    with ExitStack() as stack:
        current: list[Server] = []

        def get_server() -> Server:
            if not current or not _responds(current[-1]):
                stack.close()
                current.append(stack.enter_context(running_server(tmp_path_factory.mktemp("expendable") / "data")))
            return current[-1]

        yield get_server


def _responds(server: Server) -> bool:
    try:
        with server.client() as client:
            return client.get("/version", timeout=2.0).status_code == 200
    except httpx.TransportError:
        return False


@pytest.fixture
def expendable_server(get_working_server: Callable[[], Server]) -> Server:
    """A server for attacks that may leave it unusable for the next test."""
    return get_working_server()


def assert_healthy(server: Server, log_offset: int = 0) -> None:
    """The server runs and responds, and its log has neither tracebacks nor panics."""
    log = server.log.read_text()[log_offset:]
    assert server.process.poll() is None, log
    assert "Traceback" not in log, log
    assert "panicked" not in log, log
    assert server.key not in log
    with server.client() as client:
        assert client.get("/readyz").text == "ok"
