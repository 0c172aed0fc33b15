"""T-25: no request is smuggled through a gateway to a cluster, and no response from a cluster to the next client.

The requests are those of tests/security, sent to a cluster instead of the server. The cluster must receive at most one
request, and never the hidden one.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pytest

from tests.fake_cluster.behaviours import respond_with_bytes
from tests.fake_cluster.exchange import RecordedRequest
from tests.fake_cluster.server import FakeCluster
from tests.harness.gateways import GatewayUser, connect_cluster, create_user, gateway_path
from tests.harness.server_process import CONFIGMAPS, TIMEOUT_SECONDS, Server, running_server
from tests.security.smuggling import AMBIGUOUS, HIDDEN, REJECTED, UNAMBIGUOUS

SECOND_RESPONSE_SECONDS = 0.3
"""How long to wait for a second response on an open connection."""
CLUSTER_CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


@dataclass(frozen=True, slots=True)
class GatewayFixture:
    server: Server
    oslo: FakeCluster
    ada: GatewayUser

    def get_user_requests(self) -> list[RecordedRequest]:
        return [each for each in self.oslo.requests if each.header("impersonate-user")]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayFixture]:
    with (
        running_server(tmp_path_factory.mktemp("smuggling") / "data") as server,
        FakeCluster() as oslo,
        server.client() as admin,
    ):
        connect_cluster(admin, "oslo", oslo.build_kubeconfig())
        yield GatewayFixture(server, oslo, create_user(admin, "ada", "oslo", "use"))


def rewrite_for_cluster(gateway: GatewayFixture, text: str) -> bytes:
    """Returns the same request for the cluster, with the key of ada, who may use it."""
    key = f"\r\nAuthorization: Bearer {gateway.ada.key}\r\n"
    rewritten = text.replace(CONFIGMAPS, gateway_path("oslo") + CLUSTER_CONFIGMAPS).replace(
        "/version", f"{gateway_path('oslo')}/version"
    )
    if "{key}" not in rewritten:
        line, _, rest = rewritten.partition("\r\n")
        rewritten = line + key + rest
    return rewritten.replace("{key}", gateway.ada.key).encode("latin-1")


def send_raw(gateway: GatewayFixture, text: str, seconds: float) -> tuple[list[int], bool]:
    """Returns the statuses of all responses, and whether the server closed the connection."""
    received = b""
    with gateway.server.connect("http/1.1") as connection:
        connection.sendall(rewrite_for_cluster(gateway, text))
        try:
            while data := connection.recv(65536):
                received += data
                connection.settimeout(seconds)
            closed = True
        except TimeoutError:
            closed = False
        except ConnectionResetError:
            closed = True
    return [int(status) for status in re.findall(rb"HTTP/1\.[01] (\d{3})", received)], closed


def send_and_record(
    gateway: GatewayFixture, text: str, seconds: float = SECOND_RESPONSE_SECONDS
) -> tuple[list[int], bool, list[RecordedRequest]]:
    before = len(gateway.get_user_requests())
    statuses, closed = send_raw(gateway, text, seconds)
    requests = gateway.get_user_requests()[before:]
    assert not [each for each in requests if "hidden" in each.target]
    return statuses, closed, requests


@pytest.mark.parametrize("text", REJECTED.values(), ids=REJECTED)
def test_t25_a_malformed_request_gets_400_and_never_reaches_the_cluster(gateway: GatewayFixture, text: str) -> None:
    statuses, closed, requests = send_and_record(gateway, text, TIMEOUT_SECONDS)
    assert (statuses, closed, requests) == ([400], True, [])


@pytest.mark.parametrize("text", AMBIGUOUS.values(), ids=AMBIGUOUS)
def test_t25_an_ambiguous_request_is_relayed_at_most_once(gateway: GatewayFixture, text: str) -> None:
    statuses, closed, requests = send_and_record(gateway, text, TIMEOUT_SECONDS)
    assert len(statuses) == 1 and statuses[0] < 500 and closed
    assert len(requests) <= 1
    for each in requests:
        assert not (each.header("content-length") and each.header("transfer-encoding"))


@pytest.mark.parametrize("text", UNAMBIGUOUS.values(), ids=UNAMBIGUOUS)
def test_t25_a_request_in_a_body_is_relayed_as_body(gateway: GatewayFixture, text: str) -> None:
    statuses, _, requests = send_and_record(gateway, text)
    assert len(statuses) == 1 and statuses[0] < 500
    assert [each.body.decode() for each in requests] == [HIDDEN]


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n"
SMUGGLED = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil"
RESPONSES = {
    "two lengths": HEAD + b"content-length: 2\r\ncontent-length: 40\r\n\r\nok" + SMUGGLED,
    "chunked with a length": HEAD
    + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
    + SMUGGLED,
    "a length with a sign": HEAD + b"content-length: +2\r\n\r\nok" + SMUGGLED,
    "an unknown encoding": HEAD + b"transfer-encoding: xchunked\r\n\r\n2\r\nok\r\n0\r\n\r\n" + SMUGGLED,
    "a folded header": HEAD + b"x-folded: a\r\n b\r\ncontent-length: 2\r\n\r\nok" + SMUGGLED,
    "a space before a colon": HEAD + b"content-length : 2\r\n\r\nok" + SMUGGLED,
    "a chunk longer than its size": HEAD + b"transfer-encoding: chunked\r\n\r\n1\r\nok\r\n0\r\n\r\n" + SMUGGLED,
    "chunks that end in line feeds": HEAD + b"transfer-encoding: chunked\r\n\r\n2\nok\n0\n\n" + SMUGGLED,
    "an invalid chunk size": HEAD + b"transfer-encoding: chunked\r\n\r\nzz\r\nok\r\n0\r\n\r\n" + SMUGGLED,
    "a NUL in a header": HEAD + b"x-nul: a\x00b\r\ncontent-length: 2\r\n\r\nok" + SMUGGLED,
}


@pytest.mark.parametrize("name", RESPONSES)
def test_t25_an_ambiguous_response_of_a_cluster_is_rejected(gateway: GatewayFixture, name: str) -> None:
    gateway.oslo.set_behaviour("/two-ways", respond_with_bytes(RESPONSES[name]))
    with gateway.server.client(gateway.ada.key) as client:
        try:
            response = client.get(f"{gateway_path('oslo')}/two-ways")
        except (httpx.RemoteProtocolError, httpx.ReadError):
            pass  # the response began, and was interrupted
        else:
            assert (response.status_code, response.json()["reason"]) == (502, "BadGateway")
            assert "evil" not in response.text and "127.0.0.1" not in response.text
    with gateway.server.client(gateway.ada.key) as client:
        assert [client.get(f"{gateway_path('oslo')}/version").json()["major"] for _ in range(3)] == ["1"] * 3
