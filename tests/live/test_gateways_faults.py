"""Clusters that misbehave, over real connections: each fault is a Status without an address or a credential."""

import asyncio
import re
import socket
from collections.abc import Iterator

import httpx
import pytest

from tests.fake_cluster.certificates import get_authority
from tests.fake_cluster.exchange import CannedResponse, RecordedRequest
from tests.fake_cluster.server import ClusterOptions, FakeCluster
from tests.harness.gateways import M, connect, gateway_path, make
from tests.live.two_clusters import World, asked_by_people, two_clusters


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with two_clusters(tmp_path_factory.mktemp("gateways")) as world:
        yield world


@pytest.fixture(scope="module")
def ada(world: World) -> Iterator[httpx.Client]:
    with world.client() as client:
        yield client


BAD_GATEWAY, UNAVAILABLE, TIMEOUT = (502, "BadGateway"), (503, "ServiceUnavailable"), (504, "Timeout")


def assert_status(answer: httpx.Response, code: int, reason: str, *secrets: object) -> None:
    """A Status of that sort, and in none of it an address or a credential, nor anything of the cluster's own words."""
    assert answer.status_code == code, answer.text
    told = answer.json()
    assert (told["kind"], told["status"], told["code"], told["reason"]) == ("Status", "Failure", code, reason)
    assert 'cluster "' in told["message"] or code == TIMEOUT[0]
    # The audit id is random, and may have the digits of a port in it.
    said = answer.text + str([header for header in answer.headers.items() if header[0] != "audit-id"])
    for secret in (
        "127.0.0.1",
        "localhost",
        "stored-token",
        "elsewhere",
        "OpenSSH",
        "location",
        "set-cookie",
        *secrets,
    ):
        assert str(secret) not in said, said


FAULTS = {
    "/fake/never": TIMEOUT,
    "/fake/stall": TIMEOUT,
    "/fake/hang-up": UNAVAILABLE,
    "/fake/break-off?bytes=10": BAD_GATEWAY,
    "/fake/garbage": BAD_GATEWAY,
    "/fake/long-head?bytes=1000000": BAD_GATEWAY,
    "/fake/switch": BAD_GATEWAY,
    "/fake/status?code=401": BAD_GATEWAY,
    "/fake/status?code=301": BAD_GATEWAY,
    "/fake/status?code=399": BAD_GATEWAY,
    "/fake/redirect": BAD_GATEWAY,
}


@pytest.mark.parametrize("path", FAULTS)
def test_a_cluster_that_misbehaves_is_a_status_without_its_secrets(world: World, ada: httpx.Client, path: str) -> None:
    code, reason = FAULTS[path]
    assert_status(ada.get(gateway_path("oslo") + path), code, reason, world.oslo.port)
    assert ada.get(f"{gateway_path('oslo')}/version").json()["gitVersion"] == "v1.34.1"


def test_t21_a_redirect_to_a_thief_is_neither_followed_nor_relayed(world: World, ada: httpx.Client) -> None:
    for method in ("GET", "POST", "DELETE"):
        url = f"{gateway_path('oslo')}/fake/redirect?to={world.paris.url}/stolen"
        assert_status(ada.request(method, url), 502, "BadGateway", world.paris.port)
    assert "/stolen" not in [each.path for each in world.paris.requests]


@pytest.mark.parametrize("path", ["/fake/break-off?bytes=500000", "/fake/break-chunked"])
def test_a_long_answer_that_breaks_off_is_never_taken_for_a_whole_one(ada: httpx.Client, path: str) -> None:
    try:
        answer = ada.get(gateway_path("oslo") + path)
    except (httpx.RemoteProtocolError, httpx.ReadError):
        return
    assert_status(answer, 502, "BadGateway")


GOOD = {
    "/fake/slow?seconds=0.5": b'"slow"',
    "/fake/until-closed?bytes=100000": b"x" * 100_000,
    "/fake/continue": b'"at last"',
    "/fake/last": b'"last"',
    "/fake/drop-idle": b'"bye"',
    "/fake/extra": b"ok",
}


@pytest.mark.parametrize("path", GOOD)
def test_an_unusual_answer_is_an_answer(ada: httpx.Client, path: str) -> None:
    for _ in range(3):
        answer = ada.get(gateway_path("oslo") + path)
        assert (answer.status_code, answer.content) == (200, GOOD[path])


def test_a_half_closed_connection_is_not_used_again(world: World, ada: httpx.Client) -> None:
    """The cluster has answered, says no more, and goes on listening: to send it something would be to wait for ever."""

    async def half(asked: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        writer.write(CannedResponse(body=b'"half"').encode(asked.method))
        await writer.drain()
        writer.get_extra_info("socket").shutdown(socket.SHUT_WR)
        await reader.read()
        return False

    world.oslo.set_behaviour("/fake/half", half)
    for _ in range(3):
        assert ada.get(f"{gateway_path('oslo')}/fake/half").content == b'"half"'
    numbers = [each.connection for each in world.oslo.requests if each.path == "/fake/half"]
    assert len(set(numbers)) == 3


@pytest.mark.parametrize("path", ["/fake/huge?bytes=30000000", "/fake/chunked?bytes=30000000&size=70000"])
def test_a_huge_answer_passes_through_and_does_not_stay(world: World, ada: httpx.Client, path: str) -> None:
    ada.get(f"{gateway_path('oslo')}/fake/huge?bytes=1000000")
    before = world.server.resident()
    with ada.stream("GET", gateway_path("oslo") + path) as answer:
        assert answer.status_code == 200
        assert sum(len(piece) for piece in answer.iter_raw()) == 30_000_000
    assert world.server.resident() - before < 20_000_000


def test_a_huge_upload_passes_through_whole(world: World, ada: httpx.Client) -> None:
    """Larger than the server takes for itself: it is the cluster's to limit."""
    pieces = [bytes([number]) * 1_000_000 for number in range(4)]
    world.oslo.set_response("/upload", CannedResponse(201, b"{}"))
    assert ada.post(f"{gateway_path('oslo')}/upload", content=iter(pieces)).status_code == 201
    assert asked_by_people(world.oslo)[-1].body == b"".join(pieces)


CERTIFICATES = {
    "for another name": ClusterOptions(names=("other.example",)),
    "that ran out": ClusterOptions(days=-1),
    "of a stranger": ClusterOptions(issuer=get_authority("a stranger")),
}


@pytest.mark.parametrize("which", CERTIFICATES)
def test_a_cluster_with_a_certificate_that_is_not_trusted_is_sent_nothing(world: World, which: str) -> None:
    name = "untrusted-" + which.rpartition(" ")[2]
    with FakeCluster(options=CERTIFICATES[which]) as far, world.server.client() as admin:
        connect(admin, name, far.build_kubeconfig(token="stored-token"))
        assert_status(admin.get(f"{gateway_path(name)}/version"), 502, "BadGateway", far.port)
        assert far.requests == []
        assert admin.delete(f"{M}/clusters/{name}").status_code == 200


@pytest.mark.parametrize(
    "address", ["https://169.254.169.254", "https://[::ffff:169.254.169.254]:8443", "https://0.0.0.0:6443", "own"]
)
def test_t22_no_cluster_is_at_a_forbidden_address(world: World, address: str) -> None:
    name = "forbidden" + "".join(re.findall(r"[a-z0-9]", address))[:20]
    server = world.server.url + "/kubernetes/management" if address == "own" else address
    with world.server.client() as admin:
        connect(admin, name, world.oslo.build_kubeconfig(token="stored-token", server=server))
        answer = admin.get(f"{gateway_path(name)}/api/v1/secrets")
        assert_status(answer, 503, "ServiceUnavailable", server, "169.254", world.server.url)
        assert admin.delete(f"{M}/clusters/{name}").status_code == 200


def test_what_is_no_cluster_is_said(world: World) -> None:
    with world.server.client() as admin:
        assert admin.get(f"{gateway_path('nowhere')}/version").status_code == 404
        make(admin, "clusters", "Cluster", "bare")
        assert_status(admin.get(f"{gateway_path('bare')}/version"), 503, "ServiceUnavailable")
