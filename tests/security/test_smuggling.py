"""Request smuggling: no request can be hidden in another one (T-25)."""

import re

import pytest

from tests.harness.server_process import TIMEOUT_SECONDS, Server
from tests.security.smuggling import AMBIGUOUS, LENIENT, REJECTED, UNAMBIGUOUS

WAIT_SECONDS = 0.3
"""How long to wait for a second response on a connection that stays open."""


def send_text(server: Server, text: str, wait_seconds: float = WAIT_SECONDS) -> tuple[list[int], bool]:
    """Sends the text and returns the statuses of all responses, and whether the server closed the connection."""
    received = b""
    with server.connect("http/1.1") as connection:
        connection.sendall(text.replace("{key}", server.key).encode("latin-1"))
        try:
            while data := connection.recv(65536):
                received += data
                connection.settimeout(wait_seconds)
            is_closed = True
        except TimeoutError:
            is_closed = False
        except ConnectionResetError:
            is_closed = True
    assert b"/hidden" not in received
    return [int(status) for status in re.findall(rb"HTTP/1\.[01] (\d{3})", received)], is_closed


@pytest.mark.parametrize("text", REJECTED.values(), ids=REJECTED)
def test_t25_a_malformed_request_gets_400_and_closes_the_connection(server: Server, text: str) -> None:
    assert send_text(server, text, TIMEOUT_SECONDS) == ([400], True)


@pytest.mark.parametrize("text", AMBIGUOUS.values(), ids=AMBIGUOUS)
def test_t25_an_ambiguous_request_closes_the_connection(server: Server, text: str) -> None:
    statuses, is_closed = send_text(server, text, TIMEOUT_SECONDS)
    assert len(statuses) == 1
    assert statuses[0] < 500
    assert is_closed


@pytest.mark.parametrize("text", UNAMBIGUOUS.values(), ids=UNAMBIGUOUS)
def test_t25_a_body_is_never_parsed_as_a_request(server: Server, text: str) -> None:
    statuses, _ = send_text(server, text)
    assert len(statuses) == 1
    assert statuses[0] < 500


@pytest.mark.parametrize("text", LENIENT.values(), ids=LENIENT)
def test_t25_a_leniently_parsed_request_is_one_request(server: Server, text: str) -> None:
    statuses, _ = send_text(server, text)
    assert statuses == [200]


def test_t25_pipelined_requests_are_answered_in_order(server: Server) -> None:
    paths = ("/version", "/nope", "/healthz")
    text = "".join(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n" for path in paths)
    statuses, is_closed = send_text(server, text, 10 * WAIT_SECONDS)
    assert (statuses, is_closed) == ([200, 401, 200], False)


def test_t25_protocol_upgrades_are_ignored(server: Server) -> None:
    for protocol in ("h2c", "websocket", "SPDY/3.1", "TLS/1.0"):
        lines = f"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: {protocol}\r\nHTTP2-Settings: AAMAAABkAAQCAAAA\r\n"
        lines += "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
        statuses, _ = send_text(server, f"GET /version HTTP/1.1\r\nHost: x\r\n{lines}\r\n")
        assert statuses == [200], protocol
