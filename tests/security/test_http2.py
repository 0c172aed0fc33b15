"""Floods of cheap HTTP/2 frames do not affect other clients (T-38)."""

import ssl
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes

from tests.harness.server_process import CONFIGMAPS, Server

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RESET, SETTINGS, PING, WINDOW_UPDATE, CONTINUATION = 0, 1, 2, 3, 4, 6, 8, 9
ACK = END_STREAM = 1
END_HEADERS = 4
HEAD = b"\x82\x86\x41\x01x\x44\x08/version"
"""GET https://x/version in HPACK."""


def build_frame(type: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((type, flags)) + stream.to_bytes(4, "big") + payload


def build_reset_requests(server: Server, key: str, count: int) -> H2Connection:
    """Builds a connection on which every request is reset at once."""
    client = H2Connection(H2Configuration(client_side=True))
    client.initiate_connection()
    head = [(":method", "GET"), (":path", CONFIGMAPS), (":scheme", "https"), (":authority", "x")]
    for _ in range(count):
        stream = client.get_next_available_stream_id()
        client.send_headers(stream, [*head, ("authorization", f"Bearer {key}")], end_stream=True)
        client.reset_stream(stream, ErrorCodes.CANCEL)
    return client


def is_closed_by_server(connection: ssl.SSLSocket) -> bool:
    """Whether the server closes the connection."""
    try:
        while connection.recv(65536):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


@pytest.mark.parametrize("has_key", [True, False], ids=["with a key", "without a key"])
def test_t38_a_connection_that_resets_hundreds_of_requests_is_closed(server: Server, has_key: bool) -> None:
    client = build_reset_requests(server, server.key if has_key else "invalid", 500)
    with server.connect("h2") as connection, server.client() as other:
        with suppress(OSError):  # the server may close the connection before the end
            connection.sendall(client.data_to_send())
        assert other.get("/version").status_code == 200
        assert is_closed_by_server(connection)
        assert other.get(CONFIGMAPS).status_code == 200


def test_t38_many_connections_with_resets_leak_no_memory(server: Server) -> None:
    before = server.resident_bytes()
    for _ in range(50):
        with server.connect("h2") as connection, suppress(OSError):
            connection.sendall(build_reset_requests(server, server.key, 100).data_to_send())
    assert server.resident_bytes() - before < 32 * 1024 * 1024


FRAME_FLOODS: dict[str, Callable[[], Iterator[bytes]]] = {
    "pings": lambda: iter([build_frame(PING, payload=b"12345678") * 1000] * 50),
    "unsolicited ping acknowledgements": lambda: iter([build_frame(PING, ACK, payload=b"12345678") * 1000] * 50),
    "settings": lambda: iter([build_frame(SETTINGS, payload=struct.pack(">HL", 3, 100)) * 1000] * 50),
    "priorities": lambda: (
        build_frame(PRIORITY, stream=number * 2 + 1, payload=b"\0\0\0\0\x10") for number in range(20_000)
    ),
    "window updates": lambda: iter([build_frame(WINDOW_UPDATE, payload=struct.pack(">L", 1)) * 1000] * 20),
    "endless empty continuation frames": lambda: iter(
        [build_frame(HEADERS, stream=1, payload=HEAD), *[build_frame(CONTINUATION, stream=1)] * 20_000]
    ),
    "endless headers": lambda: iter(
        [
            build_frame(HEADERS, stream=1, payload=HEAD),
            *[build_frame(CONTINUATION, stream=1, payload=b"\0\1a\1b" * 3000)] * 200,
        ]
    ),
    "empty data frames": lambda: iter(
        [build_frame(HEADERS, END_HEADERS, 1, HEAD.replace(b"\x82", b"\x83")), *[build_frame(DATA, stream=1)] * 20_000]
    ),
    "resets of streams that were never opened": lambda: iter(
        [build_frame(RESET, stream=1, payload=b"\0\0\0\x08")] * 1000
    ),
    "unfinished requests": lambda: (build_frame(HEADERS, END_HEADERS, 2 * number + 1, HEAD) for number in range(500)),
}


@pytest.mark.parametrize("build_frames", FRAME_FLOODS.values(), ids=FRAME_FLOODS)
def test_t38_a_flood_of_frames_does_not_affect_other_clients(
    server: Server, build_frames: Callable[[], Iterator[bytes]]
) -> None:
    before = server.resident_bytes()
    with server.connect("h2", timeout=1) as connection, server.client() as other:
        with suppress(OSError):  # closed, or no longer read
            connection.sendall(PREFACE + build_frame(SETTINGS))
            for frames in build_frames():
                connection.sendall(frames)
        assert other.get("/version").status_code == 200
    assert server.resident_bytes() - before < 32 * 1024 * 1024
