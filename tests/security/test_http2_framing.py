"""T-25 for HTTP/2: what must not be in a request there, and could be something else behind a gateway, is refused."""

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import ConnectionTerminated, DataReceived, Event, ResponseReceived, StreamEnded, StreamReset

from tests.harness.server_process import CONFIGMAPS, Server

Pairs = list[tuple[str, str]]
GET: Pairs = [(":method", "GET"), (":path", "/version"), (":scheme", "https"), (":authority", "x")]
POST: Pairs = [(":method", "POST"), (":path", f"{CONFIGMAPS}?dryRun=All"), (":scheme", "https"), (":authority", "x")]
BODY = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"smuggled"}}'


def asked(server: Server, headers: Pairs, body: bytes = b"") -> int:
    """The status, and 0 for a request that was not answered at all: its stream or the connection was ended."""
    lenient = H2Configuration(client_side=True, validate_outbound_headers=False, normalize_outbound_headers=False)
    client = H2Connection(lenient)
    client.initiate_connection()
    client.send_headers(1, headers, end_stream=not body)
    if body:
        client.send_data(1, body, end_stream=True)
    with server.connect("h2") as connection:
        connection.sendall(client.data_to_send())
        status = 0
        while data := connection.recv(65536):
            for event in client.receive_data(data):
                status = _status(event) or status
                if isinstance(event, StreamEnded | StreamReset | ConnectionTerminated):
                    return status if isinstance(event, StreamEnded) else 0
    return status


def _status(event: Event) -> int:
    if isinstance(event, ResponseReceived):
        return int(dict(event.headers)[b":status"])
    assert not isinstance(event, DataReceived) or b"smuggled" not in event.data
    return 0


REFUSED: dict[str, Pairs] = {
    "a connection header": [*GET, ("connection", "close")],
    "a transfer encoding": [*GET, ("transfer-encoding", "chunked")],
    "keep-alive": [*GET, ("keep-alive", "timeout=5")],
    "an upgrade": [*GET, ("upgrade", "h2c")],
    "a te that is not trailers": [*GET, ("te", "gzip")],
    "two methods": [(":method", "POST"), *GET],
    "two paths": [(":path", "/metrics"), *GET],
    "two authorities": [(":authority", "y"), *GET],
    "no path": [each for each in GET if each[0] != ":path"],
    "no method": GET[1:],
    "a pseudo header behind others": [*GET[:3], ("x", "y"), GET[3]],
    "a pseudo header that nobody knows": [(":x", "y"), *GET],
    "capital letters in a name": [*GET, ("X-Capital", "y")],
    "a line break in a value": [*GET, ("x", "a\r\nhost: y")],
    "a NUL in a value": [*GET, ("x", "a\0b")],
    "two hosts": [*GET, ("host", "y"), ("host", "z")],
    "a method in small letters": [(":method", "get"), *GET[1:]],
    "a path without a slash": [GET[0], (":path", "version"), *GET[2:]],
}


@pytest.mark.parametrize("headers", REFUSED.values(), ids=REFUSED)
def test_t25_what_http2_does_not_have_is_refused(server: Server, headers: Pairs) -> None:
    assert asked(server, headers) in (0, 400)


@pytest.mark.parametrize("length", [0, len(BODY) - 1, len(BODY) + 1])
def test_t25_a_length_that_is_not_that_of_the_body_is_refused(server: Server, length: int) -> None:
    signed = [*POST, ("authorization", f"Bearer {server.key}"), ("content-type", "application/json")]
    assert asked(server, [*signed, ("content-length", str(length))], BODY) in (0, 400)


def test_t25_what_http2_has_is_answered(server: Server) -> None:
    assert asked(server, GET) == 200
    assert asked(server, [*GET, ("te", "trailers"), ("cookie", "a=b"), ("cookie", "c=d")]) == 200
