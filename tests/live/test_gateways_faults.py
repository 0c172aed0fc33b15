"""Clusters that misbehave, over real connections: each fault becomes a Status without an address or a credential."""

import asyncio
import re
import socket
from collections.abc import Iterator

import httpx
import pytest

from tests.fake_cluster.certificates import get_authority
from tests.fake_cluster.exchange import CannedResponse, RecordedRequest
from tests.fake_cluster.server import ClusterOptions, FakeCluster
from tests.harness.gateways import M, connect_cluster, create_resource, gateway_path
from tests.live.two_clusters import GatewayFixture, get_user_requests, run_two_clusters


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayFixture]:
    with run_two_clusters(tmp_path_factory.mktemp("gateways")) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def ada(gateway: GatewayFixture) -> Iterator[httpx.Client]:
    with gateway.client() as client:
        yield client


BAD_GATEWAY, UNAVAILABLE, TIMEOUT = (502, "BadGateway"), (503, "ServiceUnavailable"), (504, "Timeout")


def check_status(response: httpx.Response, code: int, reason: str, *secrets: object) -> None:
    """Checks that the response is this Status, without an address, a credential or text of the cluster."""
    assert response.status_code == code, response.text
    status = response.json()
    assert (status["kind"], status["status"], status["code"], status["reason"]) == ("Status", "Failure", code, reason)
    assert 'cluster "' in status["message"] or code == TIMEOUT[0]
    # The audit id is random, and may contain the digits of a port.
    text = response.text + str([header for header in response.headers.items() if header[0] != "audit-id"])
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
        assert str(secret) not in text, text


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
def test_a_misbehaving_cluster_becomes_a_status_without_its_secrets(
    gateway: GatewayFixture, ada: httpx.Client, path: str
) -> None:
    code, reason = FAULTS[path]
    check_status(ada.get(gateway_path("oslo") + path), code, reason, gateway.oslo.port)
    assert ada.get(f"{gateway_path('oslo')}/version").json()["gitVersion"] == "v1.34.1"


def test_t21_a_redirect_is_neither_followed_nor_relayed(gateway: GatewayFixture, ada: httpx.Client) -> None:
    for method in ("GET", "POST", "DELETE"):
        url = f"{gateway_path('oslo')}/fake/redirect?to={gateway.paris.url}/stolen"
        check_status(ada.request(method, url), 502, "BadGateway", gateway.paris.port)
    assert "/stolen" not in [each.path for each in gateway.paris.requests]


@pytest.mark.parametrize("path", ["/fake/break-off?bytes=500000", "/fake/break-chunked"])
def test_an_interrupted_response_is_never_relayed_as_complete(ada: httpx.Client, path: str) -> None:
    try:
        response = ada.get(gateway_path("oslo") + path)
    except (httpx.RemoteProtocolError, httpx.ReadError):
        return
    check_status(response, 502, "BadGateway")


UNUSUAL = {
    "/fake/slow?seconds=0.5": b'"slow"',
    "/fake/until-closed?bytes=100000": b"x" * 100_000,
    "/fake/continue": b'"at last"',
    "/fake/last": b'"last"',
    "/fake/drop-idle": b'"bye"',
    "/fake/extra": b"ok",
}


@pytest.mark.parametrize("path", UNUSUAL)
def test_an_unusual_valid_response_is_relayed(ada: httpx.Client, path: str) -> None:
    for _ in range(3):
        response = ada.get(gateway_path("oslo") + path)
        assert (response.status_code, response.content) == (200, UNUSUAL[path])


def test_a_half_closed_connection_is_not_reused(gateway: GatewayFixture, ada: httpx.Client) -> None:
    """The cluster has closed its side for writing and still reads: a request there would never get a response."""

    async def half_close(request: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        writer.write(CannedResponse(body=b'"half"').encode(request.method))
        await writer.drain()
        writer.get_extra_info("socket").shutdown(socket.SHUT_WR)
        await reader.read()
        return False

    gateway.oslo.set_behaviour("/fake/half", half_close)
    for _ in range(3):
        assert ada.get(f"{gateway_path('oslo')}/fake/half").content == b'"half"'
    numbers = [each.connection for each in gateway.oslo.requests if each.path == "/fake/half"]
    assert len(set(numbers)) == 3


@pytest.mark.parametrize("path", ["/fake/huge?bytes=30000000", "/fake/chunked?bytes=30000000&size=70000"])
def test_a_huge_response_is_streamed_without_buffering(gateway: GatewayFixture, ada: httpx.Client, path: str) -> None:
    ada.get(f"{gateway_path('oslo')}/fake/huge?bytes=1000000")
    before = gateway.server.resident_bytes()
    with ada.stream("GET", gateway_path("oslo") + path) as response:
        assert response.status_code == 200
        assert sum(len(data) for data in response.iter_raw()) == 30_000_000
    assert gateway.server.resident_bytes() - before < 20_000_000


def test_a_huge_upload_is_relayed_completely(gateway: GatewayFixture, ada: httpx.Client) -> None:
    """Larger than the body limit of the server: the cluster has its own limit."""
    pieces = [bytes([number]) * 1_000_000 for number in range(4)]
    gateway.oslo.set_response("/upload", CannedResponse(201, b"{}"))
    assert ada.post(f"{gateway_path('oslo')}/upload", content=iter(pieces)).status_code == 201
    assert get_user_requests(gateway.oslo)[-1].body == b"".join(pieces)


CERTIFICATES = {
    "for another name": ClusterOptions(names=("other.example",)),
    "expired": ClusterOptions(days=-1),
    "of an unknown CA": ClusterOptions(issuer=get_authority("unknown CA")),
}


@pytest.mark.parametrize("certificate", CERTIFICATES)
def test_a_cluster_with_an_untrusted_certificate_gets_no_request(gateway: GatewayFixture, certificate: str) -> None:
    name = "untrusted-" + certificate.lower().rpartition(" ")[2]
    with FakeCluster(options=CERTIFICATES[certificate]) as cluster, gateway.server.client() as admin:
        connect_cluster(admin, name, cluster.build_kubeconfig(token="stored-token"))
        check_status(admin.get(f"{gateway_path(name)}/version"), 502, "BadGateway", cluster.port)
        assert cluster.requests == []
        assert admin.delete(f"{M}/clusters/{name}").status_code == 200


@pytest.mark.parametrize(
    "address", ["https://169.254.169.254", "https://[::ffff:169.254.169.254]:8443", "https://0.0.0.0:6443", "own"]
)
def test_t22_a_cluster_at_a_forbidden_address_gets_503(gateway: GatewayFixture, address: str) -> None:
    name = "forbidden" + "".join(re.findall(r"[a-z0-9]", address))[:20]
    server = gateway.server.url + "/kubernetes/management" if address == "own" else address
    with gateway.server.client() as admin:
        connect_cluster(admin, name, gateway.oslo.build_kubeconfig(token="stored-token", server=server))
        response = admin.get(f"{gateway_path(name)}/api/v1/secrets")
        check_status(response, 503, "ServiceUnavailable", server, "169.254", gateway.server.url)
        assert admin.delete(f"{M}/clusters/{name}").status_code == 200


def test_an_unknown_or_unconfigured_cluster_gets_an_error(gateway: GatewayFixture) -> None:
    with gateway.server.client() as admin:
        assert admin.get(f"{gateway_path('nowhere')}/version").status_code == 404
        create_resource(admin, "clusters", "Cluster", "bare")
        check_status(admin.get(f"{gateway_path('bare')}/version"), 503, "ServiceUnavailable")
