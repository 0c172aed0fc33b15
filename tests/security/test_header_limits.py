"""Request lines and header fields beyond all measure: refused with an error of the client's, over both versions."""

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import ConnectionTerminated, ResponseReceived, StreamReset

from tests.harness.server_process import CONFIGMAPS, Server
from tests.security.headers import bearer
from tests.security.raw_http import Ask, answers

HUGE = 70 * 1024


@pytest.mark.parametrize(
    "ask",
    [
        Ask("GET", "/" + "x" * HUGE),
        Ask("GET", CONFIGMAPS, (f"labelSelector={'x' * HUGE}",)),
        Ask("GET", CONFIGMAPS, ("a=b",) * HUGE),
        Ask("GET", "/version", headers=(("X-Long", "y" * HUGE),)),
        Ask("GET", "/version", headers=(("X" * HUGE, "y"),)),
        Ask("GET", "/version", headers=(("X-Many", "y" * 500),) * 200),
        Ask("GET", "/version", headers=tuple((f"X-{number}", "") for number in range(500))),
        Ask("GET", "/version", headers=(("Cookie", "a=b; " * HUGE),)),
        Ask("GET", CONFIGMAPS, headers=(("Authorization", f"Bearer {'x' * HUGE}"),)),
        Ask("X" * HUGE, "/version"),
    ],
    ids=[
        "a long path", "a long parameter", "many parameters", "a long value", "a long name", "many fields of one name",
        "many names", "a long cookie", "a long key", "a long method",
    ],
)  # fmt: skip
def test_what_is_too_large_is_refused(server: Server, ask: Ask) -> None:
    (answer,) = answers(server, ask)
    assert answer.status in (400, 414, 431)
    assert answer.ends_connection


def test_what_is_just_large_is_read(server: Server) -> None:
    values = ",".join(f"value-{number:07}" for number in range(2000))
    (answer,) = answers(server, Ask("GET", CONFIGMAPS, (f"labelSelector=k+in+({values})",), (bearer(server.key),)))
    assert answer.status == 200


@pytest.mark.parametrize(
    "fields",
    [[("x-long", "y" * HUGE)], [("x-many", "y" * 500)] * 200, [(f"x-{number}", "") for number in range(5000)]],
    ids=["a long value", "many fields of one name", "many names"],
)
def test_what_is_too_large_is_refused_over_http2(server: Server, fields: list[tuple[str, str]]) -> None:
    client = H2Connection(H2Configuration(client_side=True))
    client.initiate_connection()
    stream = client.get_next_available_stream_id()
    head = [(":method", "GET"), (":path", "/version"), (":scheme", "https"), (":authority", "x")]
    client.send_headers(stream, [*head, *fields], end_stream=True)
    events: list[object] = []
    with server.connect("h2") as connection:
        connection.sendall(client.data_to_send())
        while not any(isinstance(each, ResponseReceived | StreamReset | ConnectionTerminated) for each in events):
            piece = connection.recv(65536)
            assert piece, "the server hung up without a word"
            events += client.receive_data(piece)
    for each in events:
        if isinstance(each, ResponseReceived):
            assert dict(each.headers)[b":status"] == b"431"
