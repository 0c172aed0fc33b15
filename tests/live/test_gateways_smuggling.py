"""T-25: nothing is smuggled through a gateway, neither by a client to the cluster nor by a cluster to the next client.

The requests are those that are held against the server's own paths, sent to a cluster's instead. Whatever becomes of
them, the cluster has heard one request of theirs at most, and never the hidden one.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pytest

from tests.fake_cluster.behaviours import respond_with_bytes
from tests.fake_cluster.exchange import RecordedRequest
from tests.fake_cluster.server import FakeCluster
from tests.harness.gateways import GatewayUser, connect, create_user, gateway_path
from tests.harness.server_process import CONFIGMAPS, Server, running
from tests.security.smuggling import CARRIED, HIDDEN, REFUSED, SWALLOWED

SECONDS = 0.3
"""How long a second answer is waited for on a connection that stays open."""
INSIDE = "/api/v1/namespaces/default/configmaps"


@dataclass(frozen=True, slots=True)
class World:
    server: Server
    oslo: FakeCluster
    ada: GatewayUser

    def heard(self) -> list[RecordedRequest]:
        return [each for each in self.oslo.requests if each.header("impersonate-user")]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with (
        running(tmp_path_factory.mktemp("smuggling") / "data") as server,
        FakeCluster() as oslo,
        server.client() as admin,
    ):
        connect(admin, "oslo", oslo.build_kubeconfig())
        yield World(server, oslo, create_user(admin, "ada", "oslo", "use"))


def through(world: World, text: str) -> bytes:
    """The same request to the cluster, by somebody who may use it."""
    key = f"\r\nAuthorization: Bearer {world.ada.key}\r\n"
    moved = text.replace(CONFIGMAPS, gateway_path("oslo") + INSIDE).replace(
        "/version", f"{gateway_path('oslo')}/version"
    )
    if "{key}" not in moved:
        line, _, rest = moved.partition("\r\n")
        moved = line + key + rest
    return moved.replace("{key}", world.ada.key).encode("latin-1")


def exchanged(world: World, text: str) -> tuple[list[int], bool]:
    """The statuses that came back, and whether the server has closed the connection."""
    arrived = b""
    with world.server.connect("http/1.1") as connection:
        connection.sendall(through(world, text))
        try:
            while piece := connection.recv(65536):
                arrived += piece
                connection.settimeout(SECONDS)
            closed = True
        except TimeoutError:
            closed = False
        except ConnectionResetError:
            closed = True
    return [int(status) for status in re.findall(rb"HTTP/1\.[01] (\d{3})", arrived)], closed


def heard_of(world: World, text: str) -> tuple[list[int], bool, list[RecordedRequest]]:
    before = len(world.heard())
    statuses, closed = exchanged(world, text)
    heard = world.heard()[before:]
    assert not [each for each in heard if "hidden" in each.target]
    return statuses, closed, heard


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED)
def test_t25_what_is_malformed_is_refused_and_never_heard_of(world: World, text: str) -> None:
    statuses, closed, heard = heard_of(world, text)
    assert (statuses, closed, heard) == ([400], True, [])


@pytest.mark.parametrize("text", SWALLOWED.values(), ids=SWALLOWED)
def test_t25_what_others_may_read_differently_is_one_request(world: World, text: str) -> None:
    statuses, closed, heard = heard_of(world, text)
    assert len(statuses) == 1 and statuses[0] < 500 and closed
    assert len(heard) <= 1
    for each in heard:
        assert not (each.header("content-length") and each.header("transfer-encoding"))


@pytest.mark.parametrize("text", CARRIED.values(), ids=CARRIED)
def test_t25_a_body_stays_a_body(world: World, text: str) -> None:
    statuses, _, heard = heard_of(world, text)
    assert len(statuses) == 1 and statuses[0] < 500
    assert [each.body.decode() for each in heard] == [HIDDEN]


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n"
EVIL = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil"
ANSWERS = {
    "two lengths": HEAD + b"content-length: 2\r\ncontent-length: 40\r\n\r\nok" + EVIL,
    "chunked with a length": HEAD
    + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
    + EVIL,
    "a length with a sign": HEAD + b"content-length: +2\r\n\r\nok" + EVIL,
    "an unknown encoding": HEAD + b"transfer-encoding: xchunked\r\n\r\n2\r\nok\r\n0\r\n\r\n" + EVIL,
    "a folded header": HEAD + b"x-folded: a\r\n b\r\ncontent-length: 2\r\n\r\nok" + EVIL,
    "a space before a colon": HEAD + b"content-length : 2\r\n\r\nok" + EVIL,
    "a chunk longer than its size": HEAD + b"transfer-encoding: chunked\r\n\r\n1\r\nok\r\n0\r\n\r\n" + EVIL,
    "chunks that end in line feeds": HEAD + b"transfer-encoding: chunked\r\n\r\n2\nok\n0\n\n" + EVIL,
    "a chunk size that is none": HEAD + b"transfer-encoding: chunked\r\n\r\nzz\r\nok\r\n0\r\n\r\n" + EVIL,
    "a NUL in a header": HEAD + b"x-nul: a\x00b\r\ncontent-length: 2\r\n\r\nok" + EVIL,
}


@pytest.mark.parametrize("name", ANSWERS)
def test_t25_an_answer_that_can_be_read_two_ways_is_none(world: World, name: str) -> None:
    world.oslo.set_behaviour("/two-ways", respond_with_bytes(ANSWERS[name]))
    with world.server.client(world.ada.key) as client:
        try:
            answer = client.get(f"{gateway_path('oslo')}/two-ways")
        except (httpx.RemoteProtocolError, httpx.ReadError):
            pass  # it began well, and was broken off
        else:
            assert (answer.status_code, answer.json()["reason"]) == (502, "BadGateway")
            assert "evil" not in answer.text and "127.0.0.1" not in answer.text
    with world.server.client(world.ada.key) as client:
        assert [client.get(f"{gateway_path('oslo')}/version").json()["major"] for _ in range(3)] == ["1"] * 3
