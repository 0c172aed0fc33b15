"""Bodies over real connections: too large, endless, cut short, garbled. Half a body is never taken for a whole one."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from tests.harness.server_process import CONFIGMAPS, MANAGEMENT, Server, configmap, running
from tests.live.http2_client import Http2
from tests.live.test_http import VERSIONS, exchange, head, signed

MEGABYTE = 1024 * 1024
BODY_LIMIT = MEGABYTE


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("bodies") / "data", body_limit=BODY_LIMIT) as started:
        yield started


def chunks(size: int) -> Iterator[bytes]:
    """A body without a length."""
    piece = b"x" * 65_536
    while size > 0:
        yield piece[:size]
        size -= len(piece)


@VERSIONS
@pytest.mark.parametrize("told", [True, False], ids=["with its length", "without"])
@pytest.mark.parametrize("size", [BODY_LIMIT + 1, 3 * BODY_LIMIT])
def test_a_body_past_the_limit_is_413_and_the_connection_still_works(
    server: Server, size: int, told: bool, http2: bool
) -> None:
    with server.client(http2=http2) as client:
        answer = client.post(CONFIGMAPS, content=b"x" * size if told else chunks(size))
        assert (answer.status_code, answer.json()["reason"]) == (413, "RequestEntityTooLarge")
        assert str(BODY_LIMIT) in answer.json()["message"]
        assert client.get(CONFIGMAPS).status_code == 200


@VERSIONS
@pytest.mark.parametrize("told", [True, False], ids=["with its length", "without"])
def test_a_body_of_just_the_limit_is_read(server: Server, told: bool, http2: bool) -> None:
    with server.client(http2=http2) as client:
        answer = client.post(CONFIGMAPS, content=b"x" * BODY_LIMIT if told else chunks(BODY_LIMIT))
        assert answer.status_code == 400, "it was read to its end, and is no JSON"


@pytest.mark.parametrize("told", [True, False], ids=["with its length", "without"])
def test_an_endless_body_is_cut_off_without_filling_the_memory(server: Server, told: bool) -> None:
    size = 200 * MEGABYTE
    lines = f"Content-Length: {size}" if told else "Transfer-Encoding: chunked"
    piece = b"x" * MEGABYTE if told else b"100000\r\n" + b"x" * MEGABYTE + b"\r\n"
    before = server.resident()
    peak = before
    with server.connect() as connection:
        try:
            connection.sendall(head("POST", CONFIGMAPS, signed(server), lines).encode())
            for _ in range(200):
                connection.sendall(piece)
                peak = max(peak, server.resident())
            pytest.fail("all of it was taken")
        except OSError:
            pass
    assert peak - before < 50 * MEGABYTE
    with server.client() as client:
        assert client.get(CONFIGMAPS).status_code == 200


def test_strangers_are_sent_away_whatever_they_send(server: Server) -> None:
    assert exchange(server, head("POST", CONFIGMAPS, "Content-Length: 1000"), b"x" * 1000)[0] == 401


def test_what_strangers_send_is_not_kept(server: Server) -> None:
    """Each of them has nearly sent as much as a body may hold, and then stops."""
    before = server.resident()
    strangers = [server.connect() for _ in range(120)]
    for stranger in strangers:
        stranger.sendall(head("POST", CONFIGMAPS, f"Content-Length: {BODY_LIMIT}").encode())
        with suppress(OSError):  # it was sent away at once
            stranger.sendall(b"x" * (BODY_LIMIT - 1))
    time.sleep(0.5)  # what has been sent has also arrived
    grown = server.resident() - before
    for stranger in strangers:
        stranger.close()
    assert grown < 50 * MEGABYTE


def in_yaml(name: str) -> bytes:
    """Half a body in YAML is often a whole one: nothing says that more should follow."""
    return f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata:\n  a: one\n".encode()


def chunk(piece: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(piece), piece)


def exists(server: Server, name: str) -> bool:
    with server.client() as client:
        client.get(f"{MANAGEMENT}/api/v1/namespaces")  # whatever was sent before this has been dealt with
        return client.get(f"{CONFIGMAPS}/{name}").status_code == 200


@contextmanager
def broken_off(server: Server, request: str, body: bytes) -> Iterator[None]:
    """A request whose sender goes away in the middle of its body."""
    with server.connect() as connection:
        connection.sendall(request.encode() + body)
        time.sleep(0.2)  # so that the server has begun to read
    time.sleep(0.2)
    yield


def test_a_body_that_breaks_off_is_not_taken_for_a_whole_one(server: Server) -> None:
    lines = (signed(server), "Content-Type: application/yaml", "Transfer-Encoding: chunked")
    with broken_off(server, head("POST", CONFIGMAPS, *lines), chunk(in_yaml("half-a-body"))):
        assert not exists(server, "half-a-body")


def test_a_body_that_is_garbled_is_not_taken_for_a_whole_one(server: Server) -> None:
    lines = (signed(server), "Content-Type: application/yaml", "Transfer-Encoding: chunked")
    exchange(server, head("POST", CONFIGMAPS, *lines), chunk(in_yaml("garbled")) + b"ZZ\r\n")
    assert not exists(server, "garbled")


def test_a_body_shorter_than_was_told_is_not_taken_for_a_whole_one(server: Server) -> None:
    lines = (signed(server), "Content-Type: application/yaml", "Content-Length: 5000")
    with broken_off(server, head("POST", CONFIGMAPS, *lines), in_yaml("shorter")):
        assert not exists(server, "shorter")


def test_a_delete_whose_options_never_arrive_deletes_nothing(server: Server) -> None:
    with server.client() as client:
        assert client.post(CONFIGMAPS, json=configmap("victim")).status_code == 201
    request = head("DELETE", f"{CONFIGMAPS}/victim", signed(server), "Transfer-Encoding: chunked")
    with broken_off(server, request, b""):
        assert exists(server, "victim")


@pytest.mark.parametrize("length", [{}, {"content_length": "5000"}], ids=["without length", "with"])
def test_a_stream_that_is_reset_is_not_taken_for_a_whole_body(server: Server, length: dict[str, str]) -> None:
    name = f"reset-{len(length)}"
    client = Http2(server)
    stream = client.request("POST", CONFIGMAPS, end=False, content_type="application/yaml", **length)
    client.send(stream, in_yaml(name))
    time.sleep(0.2)
    client.break_off(stream)
    assert not exists(server, name)
    client.close()


def test_an_upload_that_was_broken_off_costs_nothing_any_more(server: Server) -> None:
    client = Http2(server)
    stream = client.request("POST", CONFIGMAPS, end=False, content_type="application/yaml")
    client.send(stream, in_yaml("spinning"))
    time.sleep(0.3)
    client.break_off(stream)
    time.sleep(0.3)
    before = server.busy_seconds()
    time.sleep(1.2)
    assert server.busy_seconds() - before < 0.4
    client.close()


def test_senders_who_go_away_are_no_fault_of_the_servers(server: Server) -> None:
    request = head("POST", CONFIGMAPS, signed(server), "Content-Length: 5000")
    with broken_off(server, request, b"{"):
        assert "Traceback" not in server.log.read_text()


@pytest.mark.parametrize(
    "lines",
    [
        ("Content-Length: 5", "Transfer-Encoding: chunked"),
        ("Content-Length: 5", "Content-Length: 6"),
        ("Content-Length: +5",),
        ("Content-Length: 0x5",),
        ("Transfer-Encoding: chunked, identity",),
        ("Transfer-Encoding: xchunked",),
    ],
)
def test_no_request_can_be_hidden_in_another(server: Server, lines: tuple[str, ...]) -> None:
    """Whatever the server makes of a body of two lengths, what may follow it is not answered as a second request."""
    hidden = head("POST", CONFIGMAPS, signed(server), "Content-Length: 0")
    request = head("POST", CONFIGMAPS, signed(server), *lines).replace("Connection: close\r\n", "")
    _, answer = exchange(server, request, b"0\r\n\r\n", hidden.encode())
    assert answer.count(b"HTTP/1.1 ") <= 1
