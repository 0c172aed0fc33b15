"""Requests as raw bytes over HTTP/1.1."""

import ssl

import pytest

from tests.harness.server_process import Server

VERSIONS = pytest.mark.parametrize("http2", [False, True], ids=["HTTP/1.1", "HTTP/2"])


def exchange(server: Server, request: str | bytes, *more: bytes) -> tuple[int, bytes]:
    """Sends raw bytes over HTTP/1.1; returns the status (0 without a response) and all received bytes."""
    with server.connect() as connection:
        try:
            for data in (request.encode() if isinstance(request, str) else request, *more):
                connection.sendall(data)
        except OSError:
            pass  # the server has closed the connection; its response can still be read
        response = read_to_end(connection)
    return int(response.split(b" ", 2)[1]) if response.startswith(b"HTTP/1.1 ") else 0, response


def read_to_end(connection: ssl.SSLSocket) -> bytes:
    """Reads up to the end of the connection."""
    response = b""
    try:
        while data := connection.recv(1 << 16):
            response += data
    except OSError:
        pass
    return response


def build_head(method: str, path: str, *lines: str) -> str:
    return "\r\n".join((f"{method} {path} HTTP/1.1", "Host: server", "Connection: close", *lines, "", ""))


def build_authorization(server: Server) -> str:
    return f"Authorization: Bearer {server.key}"
