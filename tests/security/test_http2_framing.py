"""Malformed HTTP/2 requests, which a gateway could turn into other requests, are rejected (T-25)."""

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import ConnectionTerminated, DataReceived, Event, ResponseReceived, StreamEnded, StreamReset

from tests.harness.server_process import CONFIGMAPS, Server

HeaderFields = list[tuple[str, str]]
GET: HeaderFields = [(":method", "GET"), (":path", "/version"), (":scheme", "https"), (":authority", "x")]
POST: HeaderFields = [
    (":method", "POST"),
    (":path", f"{CONFIGMAPS}?dryRun=All"),
    (":scheme", "https"),
    (":authority", "x"),
]
BODY = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"smuggled"}}'


def send_request(server: Server, headers: HeaderFields, body: bytes = b"") -> int:
    """Sends a request and returns the status, or 0 if the server ends the stream or the connection instead."""
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
                status = _read_status(event) or status
                if isinstance(event, StreamEnded | StreamReset | ConnectionTerminated):
                    return status if isinstance(event, StreamEnded) else 0
    return status


def _read_status(event: Event) -> int:
    if isinstance(event, ResponseReceived):
        return int(dict(event.headers)[b":status"])
    assert not isinstance(event, DataReceived) or b"smuggled" not in event.data
    return 0


MALFORMED: dict[str, HeaderFields] = {
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
    "a pseudo header after others": [*GET[:3], ("x", "y"), GET[3]],
    "an unknown pseudo header": [(":x", "y"), *GET],
    "capital letters in a name": [*GET, ("X-Capital", "y")],
    "a line break in a value": [*GET, ("x", "a\r\nhost: y")],
    "a NUL in a value": [*GET, ("x", "a\0b")],
    "two hosts": [*GET, ("host", "y"), ("host", "z")],
    "a method in lower case": [(":method", "get"), *GET[1:]],
    "a path without a slash": [GET[0], (":path", "version"), *GET[2:]],
}


@pytest.mark.parametrize("headers", MALFORMED.values(), ids=MALFORMED)
def test_t25_a_malformed_http2_request_is_rejected(server: Server, headers: HeaderFields) -> None:
    assert send_request(server, headers) in (0, 400)


@pytest.mark.parametrize("length", [0, len(BODY) - 1, len(BODY) + 1])
def test_t25_a_content_length_that_differs_from_the_body_is_rejected(server: Server, length: int) -> None:
    authenticated = [*POST, ("authorization", f"Bearer {server.key}"), ("content-type", "application/json")]
    assert send_request(server, [*authenticated, ("content-length", str(length))], BODY) in (0, 400)


def test_t25_a_valid_http2_request_is_accepted(server: Server) -> None:
    assert send_request(server, GET) == 200
    assert send_request(server, [*GET, ("te", "trailers"), ("cookie", "a=b"), ("cookie", "c=d")]) == 200
