"""Request bodies over real connections: too large, endless, truncated or malformed ones are never processed."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from tests.harness.server_process import CONFIGMAPS, MANAGEMENT, Server, configmap, running_server
from tests.live.http2_client import Http2Client
from tests.live.raw_requests import VERSIONS, build_authorization, build_head, exchange

MEGABYTE = 1024 * 1024
BODY_LIMIT = MEGABYTE


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("bodies") / "data", body_limit=BODY_LIMIT) as server:
        yield server


def generate_body(size: int) -> Iterator[bytes]:
    """Yields a body without a Content-Length."""
    data = b"x" * 65_536
    while size > 0:
        yield data[:size]
        size -= len(data)


@VERSIONS
@pytest.mark.parametrize("has_length", [True, False], ids=["content-length", "chunked"])
@pytest.mark.parametrize("size", [BODY_LIMIT + 1, 3 * BODY_LIMIT])
def test_a_body_over_the_limit_gets_413_and_the_connection_stays_usable(
    server: Server, size: int, has_length: bool, http2: bool
) -> None:
    with server.client(http2=http2) as client:
        response = client.post(CONFIGMAPS, content=b"x" * size if has_length else generate_body(size))
        assert (response.status_code, response.json()["reason"]) == (413, "RequestEntityTooLarge")
        assert str(BODY_LIMIT) in response.json()["message"]
        assert client.get(CONFIGMAPS).status_code == 200


@VERSIONS
@pytest.mark.parametrize("has_length", [True, False], ids=["content-length", "chunked"])
def test_a_body_of_exactly_the_limit_is_read(server: Server, has_length: bool, http2: bool) -> None:
    with server.client(http2=http2) as client:
        response = client.post(CONFIGMAPS, content=b"x" * BODY_LIMIT if has_length else generate_body(BODY_LIMIT))
        assert response.status_code == 400, "it was read completely, and is not JSON"


@pytest.mark.parametrize("has_length", [True, False], ids=["content-length", "chunked"])
def test_an_endless_body_is_interrupted_without_filling_the_memory(server: Server, has_length: bool) -> None:
    size = 200 * MEGABYTE
    lines = f"Content-Length: {size}" if has_length else "Transfer-Encoding: chunked"
    data = b"x" * MEGABYTE if has_length else b"100000\r\n" + b"x" * MEGABYTE + b"\r\n"
    before = server.resident_bytes()
    peak = before
    with server.connect() as connection:
        try:
            connection.sendall(build_head("POST", CONFIGMAPS, build_authorization(server), lines).encode())
            for _ in range(200):
                connection.sendall(data)
                peak = max(peak, server.resident_bytes())
            pytest.fail("the whole body was read")
        except OSError:
            pass
    assert peak - before < 50 * MEGABYTE
    with server.client() as client:
        assert client.get(CONFIGMAPS).status_code == 200


def test_an_anonymous_request_with_a_body_gets_401(server: Server) -> None:
    assert exchange(server, build_head("POST", CONFIGMAPS, "Content-Length: 1000"), b"x" * 1000)[0] == 401


def test_bodies_of_anonymous_requests_are_not_buffered(server: Server) -> None:
    """Each client sends all but one byte of a body of the maximum size."""
    before = server.resident_bytes()
    connections = [server.connect() for _ in range(120)]
    for connection in connections:
        connection.sendall(build_head("POST", CONFIGMAPS, f"Content-Length: {BODY_LIMIT}").encode())
        with suppress(OSError):  # the server has closed the connection
            connection.sendall(b"x" * (BODY_LIMIT - 1))
    time.sleep(0.5)  # so that the server has received everything
    growth = server.resident_bytes() - before
    for connection in connections:
        connection.close()
    assert growth < 50 * MEGABYTE


def build_yaml_body(name: str) -> bytes:
    """In YAML, because a truncated YAML body is often valid."""
    return f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata:\n  a: one\n".encode()


def encode_chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def configmap_exists(server: Server, name: str) -> bool:
    with server.client() as client:
        client.get(f"{MANAGEMENT}/api/v1/namespaces")  # requests sent before this one have been processed
        return client.get(f"{CONFIGMAPS}/{name}").status_code == 200


@contextmanager
def send_interrupted_request(server: Server, request: str, body: bytes) -> Iterator[None]:
    """Sends a request and disconnects in the middle of the body."""
    with server.connect() as connection:
        connection.sendall(request.encode() + body)
        time.sleep(0.2)  # so that the server has begun to read
    time.sleep(0.2)
    yield


def test_an_interrupted_chunked_body_is_not_processed(server: Server) -> None:
    lines = (build_authorization(server), "Content-Type: application/yaml", "Transfer-Encoding: chunked")
    with send_interrupted_request(
        server, build_head("POST", CONFIGMAPS, *lines), encode_chunk(build_yaml_body("half-a-body"))
    ):
        assert not configmap_exists(server, "half-a-body")


def test_a_malformed_chunked_body_is_not_processed(server: Server) -> None:
    lines = (build_authorization(server), "Content-Type: application/yaml", "Transfer-Encoding: chunked")
    exchange(server, build_head("POST", CONFIGMAPS, *lines), encode_chunk(build_yaml_body("garbled")) + b"ZZ\r\n")
    assert not configmap_exists(server, "garbled")


def test_a_body_shorter_than_its_content_length_is_not_processed(server: Server) -> None:
    lines = (build_authorization(server), "Content-Type: application/yaml", "Content-Length: 5000")
    with send_interrupted_request(server, build_head("POST", CONFIGMAPS, *lines), build_yaml_body("shorter")):
        assert not configmap_exists(server, "shorter")


def test_a_delete_with_an_interrupted_body_deletes_nothing(server: Server) -> None:
    with server.client() as client:
        assert client.post(CONFIGMAPS, json=configmap("victim")).status_code == 201
    request = build_head("DELETE", f"{CONFIGMAPS}/victim", build_authorization(server), "Transfer-Encoding: chunked")
    with send_interrupted_request(server, request, b""):
        assert configmap_exists(server, "victim")


@pytest.mark.parametrize(
    "length", [{}, {"content_length": "5000"}], ids=["without content-length", "with content-length"]
)
def test_the_body_of_a_reset_http2_stream_is_not_processed(server: Server, length: dict[str, str]) -> None:
    name = f"reset-{len(length)}"
    client = Http2Client(server)
    stream = client.request("POST", CONFIGMAPS, end=False, content_type="application/yaml", **length)
    client.send(stream, build_yaml_body(name))
    time.sleep(0.2)
    client.reset_stream(stream)
    assert not configmap_exists(server, name)
    client.close()


def test_a_reset_upload_uses_no_more_cpu_time(server: Server) -> None:
    client = Http2Client(server)
    stream = client.request("POST", CONFIGMAPS, end=False, content_type="application/yaml")
    client.send(stream, build_yaml_body("spinning"))
    time.sleep(0.3)
    client.reset_stream(stream)
    time.sleep(0.3)
    before = server.cpu_seconds()
    time.sleep(1.2)
    assert server.cpu_seconds() - before < 0.4
    client.close()


def test_a_client_that_disconnects_causes_no_traceback(server: Server) -> None:
    request = build_head("POST", CONFIGMAPS, build_authorization(server), "Content-Length: 5000")
    with send_interrupted_request(server, request, b"{"):
        assert "Traceback" not in server.log.read_text()


@pytest.mark.parametrize(
    "lines",
    [
        ("Content-Length: 5", "Transfer-Encoding: chunked"),
        ("Content-Length: 5", "Content-Length: 6"),
        ("Content-Length: +5",),
        ("Content-Length: 0x5",),
        ("Transfer-Encoding: chunked, identity",),
        ("Transfer-Encoding: xchunked",),
    ],
)
def test_no_request_can_be_smuggled_in_another(server: Server, lines: tuple[str, ...]) -> None:
    """Bytes after a body with ambiguous length must not be processed as a second request."""
    hidden = build_head("POST", CONFIGMAPS, build_authorization(server), "Content-Length: 0")
    request = build_head("POST", CONFIGMAPS, build_authorization(server), *lines).replace("Connection: close\r\n", "")
    _, response = exchange(server, request, b"0\r\n\r\n", hidden.encode())
    assert response.count(b"HTTP/1.1 ") <= 1
