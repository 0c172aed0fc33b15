"""Requests through gateways with a forged identity or another target, over real connections."""

import asyncio
import json
import ssl
from collections.abc import Iterator, Sequence

import httpx
import pytest

from tests.fake_cluster.exchange import CannedResponse, RecordedRequest
from tests.fake_cluster.server import FakeCluster
from tests.harness.eventually import wait_until
from tests.harness.gateways import SYSTEM_SECRETS, M, connect_cluster, create_key, create_user, gateway_path
from tests.harness.log_lines import read_lines
from tests.harness.server_process import TIMEOUT_SECONDS
from tests.live.two_clusters import PODS, TOKEN, GatewayFixture, get_user_requests, run_two_clusters
from tests.live.websocket_client import UpgradeRejected, WebSocket


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayFixture]:
    with run_two_clusters(tmp_path_factory.mktemp("gateways")) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def ada(gateway: GatewayFixture) -> Iterator[httpx.Client]:
    with gateway.client() as client:
        yield client


V5 = "v5.channel.k8s.io"
IMPERSONATION_HEADERS = [
    *("Impersonate-User", "impersonate-user", "IMPERSONATE-USER"),
    *("Impersonate-Group", "IMPERSONATE-GROUP", "Impersonate-Joined-Group", "Impersonate-Uid"),
    *("Impersonate-Extra-Scopes", "Impersonate-", "Impersonate-Else"),
]


@pytest.fixture(scope="module")
def unscoped_key(gateway: GatewayFixture) -> str:
    """A key of ada without a scope."""
    with gateway.server.client() as admin:
        return create_key(admin, "ada", "adas-own")


FORGED_HEADERS = [
    *("Impersonate_User", "impersonate_user", "Impersonate_Group", "impersonate_extra_scopes", "Impersonate"),
    *("X-Remote-User", "x-remote-user", "X_Remote_User", "X-REMOTE-GROUP", "X-Remote-Uid", "X-Remote-Extra-Acme"),
    *("X-Forwarded-For", "X-Forwarded-Host", "x_forwarded_host", "X-Forwarded-Proto", "X-Forwarded-User", "Forwarded"),
    *(
        "X-Real-Ip",
        "Via",
        "X-Original-Url",
        "X-Rewrite-Url",
        "X-Host",
        "X-Cluster",
        "X-Service-Cluster",
        "True-Client-Ip",
    ),
    *("Cookie", "Proxy-Authorization", "X-Auth-Token", "X-Stream-Protocol-Version", "Audit-Id", "Te", "Trailer"),
]
ALLOWED_HEADERS = {
    "host",
    "authorization",
    "accept",
    "accept-encoding",
    "user-agent",
    "impersonate-user",
    "impersonate-group",
}
ALLOWED_HEADERS |= {"impersonate-uid", "audit-id", "content-length", "content-type"}


def check_identity(request: RecordedRequest, cluster: FakeCluster, allowed: set[str]) -> None:
    assert {name for name, _ in request.headers} <= allowed
    assert b"root" not in request.head and b"thief" not in request.head
    assert request.header_values("impersonate-user") == ["fairlead:ada"]
    assert "system:masters" not in request.header_values("impersonate-group")
    assert request.header_values("authorization") == [f"Bearer {TOKEN}"]
    assert request.header_values("host") == [f"127.0.0.1:{cluster.port}"]


@pytest.mark.parametrize("http2", [False, True], ids=["HTTP/1.1", "HTTP/2"])
def test_t18_t24_forged_identity_and_routing_headers_never_reach_a_cluster(
    gateway: GatewayFixture, http2: bool
) -> None:
    hop_by_hop = {"te", "trailer", "proxy-authorization"} if http2 else set()  # which HTTP/2 forbids
    headers = [
        (name, value)
        for name in FORGED_HEADERS
        if name.lower() not in hop_by_hop
        for value in ("root", "thief.example")
    ]
    with gateway.client(http2=http2) as client:
        response = client.get(f"{gateway_path('oslo')}{PODS}", headers=headers)
    assert response.status_code == 200
    check_identity(get_user_requests(gateway.oslo)[-1], gateway.oslo, ALLOWED_HEADERS)


def open_websocket(gateway: GatewayFixture, path: str, headers: Sequence[tuple[str, str]] = ()) -> WebSocket:
    return WebSocket(gateway.server, path, gateway.ada.key, V5, headers)


def test_t18_t24_forged_headers_of_a_websocket_never_reach_a_cluster(gateway: GatewayFixture) -> None:
    excluded = {"te", "trailer"}
    headers = [(name, "thief") for name in FORGED_HEADERS if name.lower() not in excluded]
    with open_websocket(gateway, f"{gateway_path('oslo')}{PODS}/p/exec?command=cat", headers) as websocket:
        websocket.send(b"\x00hello")
        assert websocket.receive() == b"\x01hello"
    handshake = {"connection", "upgrade", "sec-websocket-key", "sec-websocket-version", "sec-websocket-protocol"}
    check_identity(get_user_requests(gateway.oslo)[-1], gateway.oslo, ALLOWED_HEADERS | handshake)


def test_t20_a_rejected_upgrade_leaves_no_open_connection(gateway: GatewayFixture) -> None:
    before = len(get_user_requests(gateway.oslo))
    with pytest.raises(UpgradeRejected, match="403"):
        open_websocket(gateway, f"{gateway_path('oslo')}/fake/refuse")
    number = get_user_requests(gateway.oslo)[before].connection
    wait_until(lambda: number not in gateway.oslo.open_connections)


@pytest.mark.parametrize("code", [200, 302, 401, 500])
def test_t20_only_status_101_upgrades_the_connection(gateway: GatewayFixture, code: int) -> None:
    async def respond_without_upgrade(
        request: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        writer.write(CannedResponse(code, b"tunnel", "text/plain", {"location": gateway.paris.url}).encode("GET"))
        await reader.read()
        return False

    gateway.oslo.set_upgrade_behaviour(f"/switch/{code}", respond_without_upgrade)
    with pytest.raises(UpgradeRejected) as caught:
        open_websocket(gateway, f"{gateway_path('oslo')}/switch/{code}")
    assert caught.value.status == {302: 502, 401: 502}.get(code, code)
    assert "location" not in caught.value.head and str(gateway.paris.port) not in caught.value.body
    number = get_user_requests(gateway.oslo)[-1].connection
    wait_until(lambda: number not in gateway.oslo.open_connections)


def send_raw(gateway: GatewayFixture, text: str) -> bytes:
    """Sends raw bytes, which an HTTP library would reject; returns all received bytes."""
    received = b""
    with gateway.server.connect("http/1.1") as connection:
        connection.sendall(text.replace("{key}", gateway.ada.key).encode("latin-1"))
        try:
            while data := connection.recv(65536):
                received += data
                connection.settimeout(1)
        except (TimeoutError, ssl.SSLError, ConnectionResetError):
            pass
    return received


TARGETS = {
    "/kubernetes/cluster/oslo/../paris{pods}": 400,
    "/kubernetes/cluster/oslo/%2e%2e/paris{pods}": 400,
    "/kubernetes/cluster/oslo/..%2fparis{pods}": 400,
    "/kubernetes/cluster/oslo%2f..%2fparis{pods}": 400,
    "/kubernetes/cluster/oslo//{paris}{pods}": 400,
    "/kubernetes/cluster/oslo/{paris}{pods}": 400,
    "/kubernetes/cluster/oslo@127.0.0.1{pods}": 403,
    "/kubernetes/cluster/paris{pods}?cluster=oslo": 403,
    "{paris}{pods}": 403,
    "/kubernetes/cluster/oslo{pods}?cluster=paris&server={paris}": 200,
    "{paris}/kubernetes/cluster/oslo{pods}": 200,
}
"""Request targets that try to reach paris with permission for oslo only. The last two lead to oslo."""


@pytest.mark.parametrize("target", TARGETS)
def test_t13_t24_a_request_with_permission_for_oslo_never_reaches_paris(gateway: GatewayFixture, target: str) -> None:
    before = len(get_user_requests(gateway.oslo))
    line = target.format(pods=PODS, paris=gateway.paris.url)
    host = f"127.0.0.1:{gateway.paris.port}"
    headers = f"Host: {host}\r\nX-Forwarded-Host: {host}\r\nX-Cluster: paris\r\nConnection: close\r\n"
    received = send_raw(gateway, f"GET {line} HTTP/1.1\r\n{headers}Authorization: Bearer {{key}}\r\n\r\n")
    assert received.startswith(f"HTTP/1.1 {TARGETS[target]} ".encode())
    assert get_user_requests(gateway.paris) == []
    hosts = [each.header("host") for each in get_user_requests(gateway.oslo)[before:]]
    assert hosts == ([f"127.0.0.1:{gateway.oslo.port}"] if TARGETS[target] == 200 else [])


def test_t13_a_recreated_cluster_gets_no_request_or_stream_of_the_old_one(gateway: GatewayFixture) -> None:
    """Requests go to the new cluster at once, and streams to the old one end."""
    with gateway.server.client() as admin, FakeCluster() as old, FakeCluster() as new:
        connect_cluster(admin, "recreated", old.build_kubeconfig(token="stored-token-old"))
        with admin.stream("GET", f"{gateway_path('recreated')}/fake/ticks", timeout=TIMEOUT_SECONDS) as stream:
            chunks = stream.iter_raw()
            assert next(chunks)
            for path in (f"{M}/clusters/recreated", f"{SYSTEM_SECRETS}/cluster-recreated"):
                assert admin.delete(path).status_code == 200
            wait_until(lambda: admin.get(f"{M}/clusters/recreated").status_code == 404)
            connect_cluster(admin, "recreated", new.build_kubeconfig(token="stored-token-new"))
            before = len(old.requests)
            assert admin.get(f"{gateway_path('recreated')}{PODS}").status_code == 200
            with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
                for _ in chunks:
                    pass
        assert len(get_user_requests(new)) == 1 and len(old.requests) == before
        assert new.requests[-1].header("authorization") == "Bearer stored-token-new"


@pytest.mark.parametrize("http2", [False, True], ids=["HTTP/1.1", "HTTP/2"])
@pytest.mark.parametrize("name", IMPERSONATION_HEADERS)
def test_t19_impersonation_is_never_ignored(gateway: GatewayFixture, unscoped_key: str, name: str, http2: bool) -> None:
    before = len(get_user_requests(gateway.oslo))
    with gateway.server.client(unscoped_key, http2=http2) as client:
        response = client.get(f"{gateway_path('oslo')}{PODS}", headers={name: "root"})
    assert response.status_code == (403 if name.lower() == "impersonate-user" else 400), response.text
    with pytest.raises(UpgradeRejected) as caught:
        WebSocket(gateway.server, f"{gateway_path('oslo')}{PODS}/p/exec?command=cat", unscoped_key, V5, [(name, "x")])
    assert caught.value.status == response.status_code
    assert len(get_user_requests(gateway.oslo)) == before


def test_t19_a_key_with_a_scope_does_not_impersonate(ada: httpx.Client) -> None:
    response = ada.get(f"{gateway_path('oslo')}{PODS}", headers={"Impersonate-User": "ada"})
    assert response.status_code == 403 and "has a scope and cannot impersonate" in response.json()["message"]


def test_t19_an_impersonated_user_needs_permission_to_use_the_cluster(gateway: GatewayFixture) -> None:
    before = len(get_user_requests(gateway.oslo))
    with gateway.server.client() as admin:
        response = admin.delete(f"{gateway_path('oslo')}{PODS}/p", headers={"Impersonate-User": "nobody"})
    assert response.status_code == 403
    assert 'User "nobody" cannot use resource "clusters"' in response.json()["message"]
    assert len(get_user_requests(gateway.oslo)) == before


def test_t19_a_cluster_gets_the_impersonated_user_and_the_impersonator(gateway: GatewayFixture) -> None:
    with gateway.server.client() as admin:
        headers = {"Impersonate-User": "ada", "Impersonate-Extra-Acme.com%2FReason": "support"}
        response = admin.get(f"{gateway_path('oslo')}{PODS}", headers=headers)
    assert response.status_code == 200 and "warning" not in response.headers
    request = get_user_requests(gateway.oslo)[-1]
    assert request.header_values("impersonate-user") == ["fairlead:ada"]
    assert (
        "fairlead:service:user:ada" in request.header_values("impersonate-group")
        and "service:admins" not in request.head.decode()
    )
    assert request.header_values("impersonate-extra-service.sh%2fimpersonator") == ["fairlead:admin"]
    assert request.header_values("impersonate-extra-acme.com%2freason") == ["support"]
    audit_id = request.header("audit-id")
    (line,) = wait_until(lambda: [line for line in read_lines(gateway.audit_log) if audit_id in line])
    event = json.loads(line)
    assert (event["user"]["username"], event["impersonatedUser"]["username"]) == ("admin", "ada")


def test_t19_a_websocket_with_impersonation_has_the_impersonated_user(gateway: GatewayFixture) -> None:
    path, headers = f"{gateway_path('oslo')}{PODS}/p/exec?command=cat", [("Impersonate-User", "ada")]
    with WebSocket(gateway.server, path, gateway.server.key, V5, headers) as websocket:
        websocket.send(b"\x00hello")
        assert websocket.receive() == b"\x01hello"
    assert get_user_requests(gateway.oslo)[-1].header_values("impersonate-user") == ["fairlead:ada"]


def test_t23_the_stored_credential_is_used_only_for_users_with_permission(gateway: GatewayFixture) -> None:
    before = len(get_user_requests(gateway.oslo))
    with gateway.server.client() as admin:
        unprivileged = create_user(admin, "unprivileged", "oslo")
        reader = create_user(admin, "oslos-reader", "oslo", "get", "list", "watch", "update")
    for key in (None, "nonsense", unprivileged.key, reader.key):
        with gateway.server.client(key) as client:
            for path in ("", "/version", "/healthz", PODS, f"{PODS}/p/exec?command=cat", "/api", "/openapi/v2"):
                assert client.get(gateway_path("oslo") + path).status_code == (
                    403 if key in (unprivileged.key, reader.key) else 401
                )
    assert len(get_user_requests(gateway.oslo)) == before


def test_t23_cookies_and_keys_of_the_client_are_not_relayed(gateway: GatewayFixture, ada: httpx.Client) -> None:
    ada.get(f"{gateway_path('oslo')}{PODS}", headers={"Cookie": f"session={ada.headers['authorization']}"})
    head = get_user_requests(gateway.oslo)[-1].head
    assert gateway.ada.key.encode() not in head and b"session" not in head


def test_t14_users_who_may_only_read_the_cluster_object_get_no_websocket(gateway: GatewayFixture) -> None:
    before = len(get_user_requests(gateway.oslo))
    with gateway.server.client() as admin:
        reader = create_user(
            admin, "another-reader", "oslo", "get", "list", "watch", "create", "update", "patch", "delete"
        )
    for subresource in ("exec?command=cat", "attach", "portforward?ports=80"):
        with pytest.raises(UpgradeRejected, match="403"):
            WebSocket(gateway.server, f"{gateway_path('oslo')}{PODS}/p/{subresource}", reader.key, V5)
    assert len(get_user_requests(gateway.oslo)) == before
