"""One server for the attacks that must leave it as it was; what each of them leaves in the log is looked at at once."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import httpx
import pytest

from tests.harness.server_process import Server, running


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("hostile") / "data") as server:
        yield server


@pytest.fixture
def server(shared: Server) -> Iterator[Server]:
    """The shared server: alive before and after, with nothing to complain about in between."""
    before = len(shared.log.read_text())
    yield shared
    assert_unharmed(shared, before)


@pytest.fixture(scope="session")
def replaced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Server]]:
    """A server that is replaced by another one when it no longer answers."""
    with ExitStack() as stack:
        current: list[Server] = []

        def well() -> Server:
            if not current or not _answers(current[-1]):
                stack.close()
                current.append(stack.enter_context(running(tmp_path_factory.mktemp("expendable") / "data")))
            return current[-1]

        yield well


def _answers(server: Server) -> bool:
    try:
        with server.client() as client:
            return client.get("/version", timeout=2.0).status_code == 200
    except httpx.TransportError:
        return False


@pytest.fixture
def expendable(replaced: Callable[[], Server]) -> Server:
    """For attacks after which a server may be of no use to the next test."""
    return replaced()


def assert_unharmed(server: Server, since: int = 0) -> None:
    """It runs, it answers, and its log has neither tracebacks nor panics."""
    log = server.log.read_text()[since:]
    assert server.process.poll() is None, log
    assert "Traceback" not in log, log
    assert "panicked" not in log, log
    assert server.key not in log
    with server.client() as client:
        assert client.get("/readyz").text == "ok"
