"""T-25: no request can be hidden in another one, in whichever way its end is made unclear."""

import re

import pytest

from tests.harness.server_process import Server
from tests.security.smuggling import CARRIED, LENIENT, REFUSED, SWALLOWED

SECONDS = 0.3
"""How long a second answer is waited for on a connection that stays open."""


def exchanged(server: Server, text: str) -> tuple[list[int], bool]:
    """The statuses that came back, and whether the server has closed the connection."""
    arrived = b""
    with server.connect("http/1.1") as connection:
        connection.sendall(text.replace("{key}", server.key).encode("latin-1"))
        try:
            while piece := connection.recv(65536):
                arrived += piece
                connection.settimeout(SECONDS)
            closed = True
        except TimeoutError:
            closed = False
        except ConnectionResetError:
            closed = True
    assert b"/hidden" not in arrived
    return [int(status) for status in re.findall(rb"HTTP/1\.[01] (\d{3})", arrived)], closed


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED)
def test_t25_what_is_malformed_is_refused_and_ends_the_connection(server: Server, text: str) -> None:
    assert exchanged(server, text) == ([400], True)


@pytest.mark.parametrize("text", SWALLOWED.values(), ids=SWALLOWED)
def test_t25_what_others_may_read_differently_ends_the_connection(server: Server, text: str) -> None:
    statuses, closed = exchanged(server, text)
    assert len(statuses) == 1
    assert statuses[0] < 500
    assert closed


@pytest.mark.parametrize("text", CARRIED.values(), ids=CARRIED)
def test_t25_a_body_is_never_taken_for_a_request(server: Server, text: str) -> None:
    statuses, _ = exchanged(server, text)
    assert len(statuses) == 1
    assert statuses[0] < 500


@pytest.mark.parametrize("text", LENIENT.values(), ids=LENIENT)
def test_t25_what_is_read_leniently_is_one_request(server: Server, text: str) -> None:
    statuses, _ = exchanged(server, text)
    assert statuses == [200]


def test_t25_requests_sent_in_one_go_are_answered_in_their_order(server: Server) -> None:
    paths = ("/version", "/nope", "/healthz")
    statuses, closed = exchanged(server, "".join(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n" for path in paths))
    assert (statuses, closed) == ([200, 401, 200], False)


def test_t25_no_upgrade_is_agreed_to(server: Server) -> None:
    for protocol in ("h2c", "websocket", "SPDY/3.1", "TLS/1.0"):
        lines = f"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: {protocol}\r\nHTTP2-Settings: AAMAAABkAAQCAAAA\r\n"
        lines += "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
        statuses, _ = exchanged(server, f"GET /version HTTP/1.1\r\nHost: x\r\n{lines}\r\n")
        assert statuses == [200], protocol
