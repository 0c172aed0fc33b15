"""Answers that nobody reads and bodies that never end: what a client can make the server keep in memory is bounded."""

import ssl
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.settings import SettingCodes

from tests.harness.server_process import CONFIGMAPS, Server, configmap, running
from tests.security.conftest import assert_unharmed

MIB = 2**20
SIZE = 900_000
PATH = f"{CONFIGMAPS}/large"
CONNECTIONS, STREAMS = 4, 100


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder: Path = tmp_path_factory.mktemp("unread") / "data"
    with running(folder) as server:
        with server.client() as client:
            for name in ("large", "larger", "largest", "too-large"):
                client.post(CONFIGMAPS, json=configmap(name, data="x" * SIZE)).raise_for_status()
        yield server
        assert_unharmed(server)


def asking(server: Server, path: str, count: int, window: int) -> bytes:
    """So many requests over HTTP/2, by a client that has room for `window` bytes of each answer."""
    client = H2Connection(H2Configuration(client_side=True))
    client.local_settings.update({SettingCodes.INITIAL_WINDOW_SIZE: window})
    client.initiate_connection()
    head = [(":method", "GET"), (":path", path), (":scheme", "https"), (":authority", "x")]
    for _ in range(count):
        stream = client.get_next_available_stream_id()
        client.send_headers(stream, [*head, ("authorization", f"Bearer {server.key}")], end_stream=True)
    return client.data_to_send()


def read_to_the_end(connection: ssl.SSLSocket) -> None:
    """Until the server hangs up."""
    with suppress(OSError):
        while connection.recv(65536):
            pass


@pytest.mark.parametrize("window", [0, 1, 16_384])
def test_unread_answers_of_http2_are_not_copied_for_each_request(server: Server, window: int) -> None:
    before = server.resident()
    with ExitStack() as stack:
        connections = [stack.enter_context(server.connect("h2")) for _ in range(CONNECTIONS)]
        for connection in connections:
            connection.sendall(asking(server, PATH, STREAMS, window))
        with server.client(None) as other:
            assert other.get("/version").status_code == 200
        assert server.resident() - before < 160 * MIB  # of the 343 that were asked for
        for connection in connections:
            read_to_the_end(connection)


def test_unread_answers_over_many_connections_are_bounded(server: Server) -> None:
    before = server.resident()
    asked = f"GET {CONFIGMAPS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.key}\r\n\r\n".encode()
    with ExitStack() as stack:
        connections = [stack.enter_context(server.connect("http/1.1")) for _ in range(150)]
        for connection in connections:
            connection.sendall(asked * 5)
        with server.client(None) as other:
            assert other.get("/version").status_code == 200
        assert server.resident() - before < 160 * MIB  # of the 515 that were asked for, of which the kernel keeps some


def test_bodies_that_are_never_finished_are_bounded(server: Server) -> None:
    before = server.resident()
    head = f"POST {CONFIGMAPS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.key}\r\nContent-Length: 2500000\r\n"
    body = b'{"data": {"x": "' + b"x" * 2_400_000
    with ExitStack() as stack:
        for _ in range(100):
            connection = stack.enter_context(server.connect("http/1.1"))
            with suppress(OSError):  # refused before it was sent
                connection.sendall(head.encode() + b"\r\n" + body)
        with server.client(None) as other:
            assert other.get("/version").status_code == 200
        assert server.resident() - before < 120 * MIB  # of the 229 that were sent


@pytest.mark.parametrize("http2", [False, True], ids=["HTTP/1.1", "HTTP/2"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_large_answer_is_whole_and_says_its_length(server: Server, http2: bool, method: str) -> None:
    with server.client(http2=http2) as client:
        client.headers["Accept-Encoding"] = "identity"
        answer = client.request(method, PATH)
        assert answer.status_code == 200
        if method == "GET":
            assert answer.json()["data"]["data"] == "x" * SIZE
            assert int(answer.headers["content-length"]) == len(answer.content)
        assert client.get("/version").status_code == 200
