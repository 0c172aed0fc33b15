"""Slow clients with unfinished requests, unfinished handshakes and unread responses do not block others."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit

from tests.harness.server_process import CONFIGMAPS, Server, configmap

CLIENTS = 150


@contextmanager
def open_slow_connections(server: Server, beginning: bytes) -> Iterator[list[socket.socket]]:
    """Opens many connections that send this beginning and then nothing."""
    with ExitStack() as stack:
        connections: list[socket.socket] = []
        for _ in range(CLIENTS):
            connection = stack.enter_context(server.connect("http/1.1"))
            connection.sendall(beginning)
            connections.append(connection)
        yield connections


def assert_serves_others(server: Server) -> None:
    with server.client() as client:
        assert client.get(CONFIGMAPS).status_code == 200
        assert client.post(f"{CONFIGMAPS}?dryRun=All", json=configmap("in-time")).status_code == 201


def test_unfinished_headers_do_not_block_other_clients(server: Server) -> None:
    with open_slow_connections(server, b"GET /version HTTP/1.1\r\nHost: x\r\nX-Slow: ") as connections:
        for _ in range(3):
            for connection in connections:
                connection.sendall(b"x")
            assert_serves_others(server)


def test_unfinished_bodies_do_not_block_other_clients(server: Server) -> None:
    head = (
        f"POST {CONFIGMAPS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.key}\r\nContent-Length: 1000\r\n\r\n{{"
    )
    with open_slow_connections(server, head.encode()):
        assert_serves_others(server)


def test_unread_responses_do_not_block_other_clients(server: Server) -> None:
    request = f"GET /kubernetes/management/openapi/v2 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.key}\r\n\r\n"
    before = server.resident_bytes()
    with open_slow_connections(server, request.encode() * 20):
        assert_serves_others(server)
        assert server.resident_bytes() - before < 256 * 1024 * 1024


def test_unfinished_handshakes_do_not_block_other_clients(server: Server) -> None:
    parts = urlsplit(server.url)
    with ExitStack() as stack:
        for beginning in (b"", b"\x16\x03\x01", b"\x16\x03\x01\x40\x00\x01", b"GET / HTTP/1.1\r\n"):
            for _ in range(CLIENTS // 3):
                connection = stack.enter_context(socket.create_connection((parts.hostname, parts.port)))
                connection.sendall(beginning)
        assert_serves_others(server)


def test_descriptors_of_slow_clients_are_closed_after_they_leave(server: Server) -> None:
    before = server.count_descriptors()
    with open_slow_connections(server, b"GET /version HTTP/1.1\r\nHost: x\r\n"):
        assert server.count_descriptors() > before + CLIENTS // 2
    with server.client() as client:
        while server.count_descriptors() > before + 5:
            assert client.get("/version").status_code == 200
