"""The memory for unread responses and unfinished bodies is bounded."""

import ssl
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.settings import SettingCodes

from tests.harness.server_process import CONFIGMAPS, Server, configmap, running_server
from tests.security.conftest import assert_healthy

MIB = 2**20
DATA_BYTES = 900_000
PATH = f"{CONFIGMAPS}/large"
CONNECTIONS, STREAMS = 4, 100


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder: Path = tmp_path_factory.mktemp("unread") / "data"
    with running_server(folder) as server:
        with server.client() as client:
            for name in ("large", "larger", "largest", "too-large"):
                client.post(CONFIGMAPS, json=configmap(name, data="x" * DATA_BYTES)).raise_for_status()
        yield server
        assert_healthy(server)


def build_requests(server: Server, path: str, count: int, window: int) -> bytes:
    """Builds HTTP/2 requests of a client with a flow-control window of `window` bytes for each response."""
    client = H2Connection(H2Configuration(client_side=True))
    client.local_settings.update({SettingCodes.INITIAL_WINDOW_SIZE: window})
    client.initiate_connection()
    head = [(":method", "GET"), (":path", path), (":scheme", "https"), (":authority", "x")]
    for _ in range(count):
        stream = client.get_next_available_stream_id()
        client.send_headers(stream, [*head, ("authorization", f"Bearer {server.key}")], end_stream=True)
    return client.data_to_send()


def read_until_closed(connection: ssl.SSLSocket) -> None:
    """Reads until the server closes the connection."""
    with suppress(OSError):
        while connection.recv(65536):
            pass


@pytest.mark.parametrize("window", [0, 1, 16_384])
def test_unread_http2_responses_are_not_copied_for_each_request(server: Server, window: int) -> None:
    before = server.resident_bytes()
    with ExitStack() as stack:
        connections = [stack.enter_context(server.connect("h2")) for _ in range(CONNECTIONS)]
        for connection in connections:
            connection.sendall(build_requests(server, PATH, STREAMS, window))
        with server.client(None) as other:
            assert other.get("/version").status_code == 200
        assert server.resident_bytes() - before < 160 * MIB  # of 343 requested
        for connection in connections:
            read_until_closed(connection)


def test_memory_for_unread_responses_over_many_connections_is_bounded(server: Server) -> None:
    before = server.resident_bytes()
    request = f"GET {CONFIGMAPS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.key}\r\n\r\n".encode()
    with ExitStack() as stack:
        connections = [stack.enter_context(server.connect("http/1.1")) for _ in range(150)]
        for connection in connections:
            connection.sendall(request * 5)
        with server.client(None) as other:
            assert other.get("/version").status_code == 200
        assert server.resident_bytes() - before < 160 * MIB  # of 515 requested, of which the kernel buffers some


def test_memory_for_unfinished_bodies_is_bounded(server: Server) -> None:
    before = server.resident_bytes()
    head = f"POST {CONFIGMAPS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.key}\r\nContent-Length: 2500000\r\n"
    body = b'{"data": {"x": "' + b"x" * 2_400_000
    with ExitStack() as stack:
        for _ in range(100):
            connection = stack.enter_context(server.connect("http/1.1"))
            with suppress(OSError):  # rejected before it was sent
                connection.sendall(head.encode() + b"\r\n" + body)
        with server.client(None) as other:
            assert other.get("/version").status_code == 200
        assert server.resident_bytes() - before < 120 * MIB  # of 229 sent


@pytest.mark.parametrize("http2", [False, True], ids=["HTTP/1.1", "HTTP/2"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_large_response_is_complete_and_has_a_content_length(server: Server, http2: bool, method: str) -> None:
    with server.client(http2=http2) as client:
        client.headers["Accept-Encoding"] = "identity"
        response = client.request(method, PATH)
        assert response.status_code == 200
        if method == "GET":
            assert response.json()["data"]["data"] == "x" * DATA_BYTES
            assert int(response.headers["content-length"]) == len(response.content)
        assert client.get("/version").status_code == 200
