"""Clients that take their time: half a request, a handshake never finished, an answer never read."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit

from tests.harness.server_process import CONFIGMAPS, Server, configmap

MANY = 150


@contextmanager
def crowd(server: Server, beginning: bytes) -> Iterator[list[socket.socket]]:
    """Many clients that begin like this, and then say nothing."""
    with ExitStack() as stack:
        connections: list[socket.socket] = []
        for _ in range(MANY):
            connection = stack.enter_context(server.connect("http/1.1"))
            connection.sendall(beginning)
            connections.append(connection)
        yield connections


def assert_serves_others(server: Server) -> None:
    with server.client() as client:
        assert client.get(CONFIGMAPS).status_code == 200
        assert client.post(f"{CONFIGMAPS}?dryRun=All", json=configmap("in-time")).status_code == 201


def test_headers_that_never_end_keep_nobody_else_waiting(server: Server) -> None:
    with crowd(server, b"GET /version HTTP/1.1\r\nHost: x\r\nX-Slow: ") as connections:
        for _ in range(3):
            for connection in connections:
                connection.sendall(b"x")
            assert_serves_others(server)


def test_bodies_that_never_end_keep_nobody_else_waiting(server: Server) -> None:
    head = (
        f"POST {CONFIGMAPS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.key}\r\nContent-Length: 1000\r\n\r\n{{"
    )
    with crowd(server, head.encode()):
        assert_serves_others(server)


def test_answers_that_are_never_read_keep_nobody_else_waiting(server: Server) -> None:
    ask = f"GET /kubernetes/management/openapi/v2 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.key}\r\n\r\n"
    before = server.resident()
    with crowd(server, ask.encode() * 20):
        assert_serves_others(server)
        assert server.resident() - before < 256 * 1024 * 1024


def test_handshakes_that_never_end_keep_nobody_else_waiting(server: Server) -> None:
    parts = urlsplit(server.url)
    with ExitStack() as stack:
        for beginning in (b"", b"\x16\x03\x01", b"\x16\x03\x01\x40\x00\x01", b"GET / HTTP/1.1\r\n"):
            for _ in range(MANY // 3):
                connection = stack.enter_context(socket.create_connection((parts.hostname, parts.port)))
                connection.sendall(beginning)
        assert_serves_others(server)


def test_when_they_have_gone_nothing_of_them_is_left(server: Server) -> None:
    before = server.descriptors()
    with crowd(server, b"GET /version HTTP/1.1\r\nHost: x\r\n"):
        assert server.descriptors() > before + MANY // 2
    with server.client() as client:
        while server.descriptors() > before + 5:
            assert client.get("/version").status_code == 200
