"""T-38: floods of frames that cost their sender nothing. The server hangs up, or does not care; nobody else notices."""

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


def frame(type: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((type, flags)) + stream.to_bytes(4, "big") + payload


def resetting(server: Server, key: str, count: int) -> H2Connection:
    """A connection on which every request is taken back as soon as it is made."""
    client = H2Connection(H2Configuration(client_side=True))
    client.initiate_connection()
    head = [(":method", "GET"), (":path", CONFIGMAPS), (":scheme", "https"), (":authority", "x")]
    for _ in range(count):
        stream = client.get_next_available_stream_id()
        client.send_headers(stream, [*head, ("authorization", f"Bearer {key}")], end_stream=True)
        client.reset_stream(stream, ErrorCodes.CANCEL)
    return client


def is_hung_up_on(connection: ssl.SSLSocket) -> bool:
    """Whether the server ends the connection, with or without a last word."""
    try:
        while connection.recv(65536):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


@pytest.mark.parametrize("known", [True, False], ids=["with a key", "without"])
def test_t38_who_takes_hundreds_of_requests_back_is_hung_up_on(server: Server, known: bool) -> None:
    client = resetting(server, server.key if known else "nobody", 500)
    with server.connect("h2") as connection, server.client() as other:
        with suppress(OSError):  # it may have had enough before the end
            connection.sendall(client.data_to_send())
        assert other.get("/version").status_code == 200
        assert is_hung_up_on(connection)
        assert other.get(CONFIGMAPS).status_code == 200


def test_t38_many_such_connections_leave_nothing_behind(server: Server) -> None:
    before = server.resident()
    for _ in range(50):
        with server.connect("h2") as connection, suppress(OSError):
            connection.sendall(resetting(server, server.key, 100).data_to_send())
    assert server.resident() - before < 32 * 1024 * 1024


FLOODS: dict[str, Callable[[], Iterator[bytes]]] = {
    "pings": lambda: iter([frame(PING, payload=b"12345678") * 1000] * 50),
    "answers to pings that nobody sent": lambda: iter([frame(PING, ACK, payload=b"12345678") * 1000] * 50),
    "settings": lambda: iter([frame(SETTINGS, payload=struct.pack(">HL", 3, 100)) * 1000] * 50),
    "priorities": lambda: (frame(PRIORITY, stream=number * 2 + 1, payload=b"\0\0\0\0\x10") for number in range(20_000)),
    "wider windows": lambda: iter([frame(WINDOW_UPDATE, payload=struct.pack(">L", 1)) * 1000] * 20),
    "headers that never end": lambda: iter(
        [frame(HEADERS, stream=1, payload=HEAD), *[frame(CONTINUATION, stream=1)] * 20_000]
    ),
    "headers without end": lambda: iter(
        [frame(HEADERS, stream=1, payload=HEAD), *[frame(CONTINUATION, stream=1, payload=b"\0\1a\1b" * 3000)] * 200]
    ),
    "empty pieces of a body": lambda: iter(
        [frame(HEADERS, END_HEADERS, 1, HEAD.replace(b"\x82", b"\x83")), *[frame(DATA, stream=1)] * 20_000]
    ),
    "resets of what never was": lambda: iter([frame(RESET, stream=1, payload=b"\0\0\0\x08")] * 1000),
    "requests that never end": lambda: (frame(HEADERS, END_HEADERS, 2 * number + 1, HEAD) for number in range(500)),
}


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS)
def test_t38_a_flood_of_frames_costs_others_nothing(server: Server, flood: Callable[[], Iterator[bytes]]) -> None:
    before = server.resident()
    with server.connect("h2", timeout=1) as connection, server.client() as other:
        with suppress(OSError):  # hung up on, or no longer listened to
            connection.sendall(PREFACE + frame(SETTINGS))
            for frames in flood():
                connection.sendall(frames)
        assert other.get("/version").status_code == 200
    assert server.resident() - before < 32 * 1024 * 1024
