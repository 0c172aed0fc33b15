"""Time limits: a request that takes too long is given up, and nobody else notices."""

import json
import time
from collections.abc import Iterator

import pytest

from tests.harness.server_process import CONFIGMAPS, Server, configmap, running
from tests.live.http2_client import Http2


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("timeouts") / "data", request_timeout=1) as started:
        yield started


@pytest.mark.parametrize(
    ("length", "beginning"),
    [("Content-Length: 500", b"{"), ("Transfer-Encoding: chunked", b"1\r\n{\r\n"), ("Content-Length: 500", b"")],
    ids=["told", "untold", "nothing at all"],
)
def test_a_body_that_never_ends_is_given_up(server: Server, length: str, beginning: bytes) -> None:
    with server.connect() as slow, server.client() as quick:
        lines = (f"POST {CONFIGMAPS} HTTP/1.1", "Host: server", f"Authorization: Bearer {server.key}", length, "", "")
        slow.sendall("\r\n".join(lines).encode() + beginning)
        assert quick.get(CONFIGMAPS).status_code == 200, "others are served meanwhile"
        answer = b""
        while piece := slow.recv(65_536):
            answer += piece
    assert answer.startswith((b"HTTP/1.1 504 ", b"HTTP/1.1 408 "))
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["reason"] == "Timeout"


def test_a_stream_whose_body_never_ends_is_given_up_and_its_connection_is_not(server: Server) -> None:
    client = Http2(server)
    slow = client.request("POST", CONFIGMAPS, end=False)
    client.send(slow, b"{")
    other = client.request("GET", CONFIGMAPS)
    assert client.read(lambda: other in client.ended)
    assert client.read(lambda: slow in client.ended)
    assert (client.statuses[other], client.statuses[slow]) == (200, 504)
    again = client.request("GET", CONFIGMAPS)
    assert client.read(lambda: again in client.ended)
    client.close()


def test_a_version_of_the_future_is_not_waited_for_longer_than_that(server: Server) -> None:
    with server.client() as client:
        answer = client.get(CONFIGMAPS, params={"resourceVersion": "999999999999"})
    assert (answer.status_code, answer.json()["reason"]) == (504, "Timeout")


def test_a_watch_lasts_longer_than_a_request_may(server: Server) -> None:
    with server.client() as writer, server.client() as client:
        watch = client.send(client.build_request("GET", CONFIGMAPS, params={"watch": "1"}), stream=True)
        time.sleep(1.5)
        writer.post(CONFIGMAPS, json=configmap("late"))
        assert json.loads(next(watch.iter_lines()))["object"]["metadata"]["name"] == "late"
        watch.close()
