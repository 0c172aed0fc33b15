"""Request lines and header fields over the size limits get 4xx over HTTP/1.1 and HTTP/2."""

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import ConnectionTerminated, ResponseReceived, StreamReset

from tests.harness.server_process import CONFIGMAPS, Server
from tests.requests.headers import build_bearer_header
from tests.requests.raw_http import RawRequest, send_requests

HUGE = 70 * 1024


@pytest.mark.parametrize(
    "raw_request",
    [
        RawRequest("GET", "/" + "x" * HUGE),
        RawRequest("GET", CONFIGMAPS, (f"labelSelector={'x' * HUGE}",)),
        RawRequest("GET", CONFIGMAPS, ("a=b",) * HUGE),
        RawRequest("GET", "/version", headers=(("X-Long", "y" * HUGE),)),
        RawRequest("GET", "/version", headers=(("X" * HUGE, "y"),)),
        RawRequest("GET", "/version", headers=(("X-Many", "y" * 500),) * 200),
        RawRequest("GET", "/version", headers=tuple((f"X-{number}", "") for number in range(500))),
        RawRequest("GET", "/version", headers=(("Cookie", "a=b; " * HUGE),)),
        RawRequest("GET", CONFIGMAPS, headers=(("Authorization", f"Bearer {'x' * HUGE}"),)),
        RawRequest("X" * HUGE, "/version"),
    ],
    ids=[
        "a long path", "a long parameter", "many parameters", "a long value", "a long name", "many fields of one name",
        "many names", "a long cookie", "a long key", "a long method",
    ],
)  # fmt: skip
def test_a_request_head_over_the_limit_is_rejected(server: Server, raw_request: RawRequest) -> None:
    (response,) = send_requests(server, raw_request)
    assert response.status in (400, 414, 431)
    assert response.closes_connection


def test_a_large_request_head_within_the_limit_is_accepted(server: Server) -> None:
    values = ",".join(f"value-{number:07}" for number in range(2000))
    (response,) = send_requests(
        server, RawRequest("GET", CONFIGMAPS, (f"labelSelector=k+in+({values})",), (build_bearer_header(server.key),))
    )
    assert response.status == 200


@pytest.mark.parametrize(
    "fields",
    [[("x-long", "y" * HUGE)], [("x-many", "y" * 500)] * 200, [(f"x-{number}", "") for number in range(5000)]],
    ids=["a long value", "many fields of one name", "many names"],
)
def test_a_request_head_over_the_limit_is_rejected_over_http2(server: Server, fields: list[tuple[str, str]]) -> None:
    client = H2Connection(H2Configuration(client_side=True))
    client.initiate_connection()
    stream = client.get_next_available_stream_id()
    head = [(":method", "GET"), (":path", "/version"), (":scheme", "https"), (":authority", "x")]
    client.send_headers(stream, [*head, *fields], end_stream=True)
    events: list[object] = []
    with server.connect("h2") as connection:
        connection.sendall(client.data_to_send())
        while not any(isinstance(each, ResponseReceived | StreamReset | ConnectionTerminated) for each in events):
            data = connection.recv(65536)
            assert data, "the server closed the connection without a response"
            events += client.receive_data(data)
    for each in events:
        if isinstance(each, ResponseReceived):
            assert dict(each.headers)[b":status"] == b"431"
