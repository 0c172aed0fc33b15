"""Request timeouts: a request that takes too long is ended, and other clients are not affected."""

import json
import time
from collections.abc import Iterator

import pytest

from tests.harness.server_process import CONFIGMAPS, Server, configmap, running_server
from tests.live.http2_client import Http2Client


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("timeouts") / "data", request_timeout=4) as server:
        yield server


@pytest.mark.parametrize(
    ("length_header", "first_bytes"),
    [("Content-Length: 500", b"{"), ("Transfer-Encoding: chunked", b"1\r\n{\r\n"), ("Content-Length: 500", b"")],
    ids=["content-length", "chunked", "empty"],
)
def test_a_request_whose_body_never_ends_times_out(server: Server, length_header: str, first_bytes: bytes) -> None:
    with server.connect() as slow, server.client() as client:
        lines = (
            f"POST {CONFIGMAPS} HTTP/1.1",
            "Host: server",
            f"Authorization: Bearer {server.key}",
            length_header,
            "",
            "",
        )
        slow.sendall("\r\n".join(lines).encode() + first_bytes)
        assert client.get(CONFIGMAPS).status_code == 200, "other clients are not served meanwhile"
        response = b""
        while data := slow.recv(65_536):
            response += data
    assert response.startswith((b"HTTP/1.1 504 ", b"HTTP/1.1 408 "))
    assert json.loads(response.partition(b"\r\n\r\n")[2])["reason"] == "Timeout"


def test_an_http2_stream_whose_body_never_ends_times_out_without_its_connection(server: Server) -> None:
    client = Http2Client(server)
    slow = client.request("POST", CONFIGMAPS, end=False)
    client.send(slow, b"{")
    other = client.request("GET", CONFIGMAPS)
    assert client.read(lambda: other in client.ended)
    assert client.read(lambda: slow in client.ended)
    assert (client.statuses[other], client.statuses[slow]) == (200, 504)
    third = client.request("GET", CONFIGMAPS)
    assert client.read(lambda: third in client.ended)
    client.close()


def test_waiting_for_a_future_resource_version_times_out(server: Server) -> None:
    with server.client() as client:
        response = client.get(CONFIGMAPS, params={"resourceVersion": "999999999999"})
    assert (response.status_code, response.json()["reason"]) == (504, "Timeout")


def test_a_watch_may_last_longer_than_the_request_timeout(server: Server) -> None:
    with server.client() as writer, server.client() as client:
        watch = client.send(client.build_request("GET", CONFIGMAPS, params={"watch": "1"}), stream=True)
        time.sleep(4.5)
        writer.post(CONFIGMAPS, json=configmap("late"))
        assert json.loads(next(watch.iter_lines()))["object"]["metadata"]["name"] == "late"
        watch.close()
