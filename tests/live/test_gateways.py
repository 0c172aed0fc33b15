"""Requests through gateways that pretend to be from somebody else, or to go somewhere else, over real connections."""

import asyncio
import json
import ssl
from collections.abc import Iterator, Sequence

import httpx
import pytest

from tests.fake_cluster.exchange import CannedResponse, RecordedRequest
from tests.fake_cluster.server import FakeCluster
from tests.harness.gateways import SYSTEM_SECRETS, M, connect, create_user, gateway_path, key_of, wait_until
from tests.harness.server_process import TIMEOUT_SECONDS
from tests.live.two_clusters import PODS, TOKEN, World, asked_by_people, two_clusters
from tests.live.websocket_client import NotSwitched, WebSocket


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with two_clusters(tmp_path_factory.mktemp("gateways")) as world:
        yield world


@pytest.fixture(scope="module")
def ada(world: World) -> Iterator[httpx.Client]:
    with world.client() as client:
        yield client


V5 = "v5.channel.k8s.io"
IMPERSONATING = [
    *("Impersonate-User", "impersonate-user", "IMPERSONATE-USER"),
    *("Impersonate-Group", "IMPERSONATE-GROUP", "Impersonate-Joined-Group", "Impersonate-Uid"),
    *("Impersonate-Extra-Scopes", "Impersonate-", "Impersonate-Else"),
]


@pytest.fixture(scope="module")
def adas_own(world: World) -> str:
    """A key of ada's without a scope."""
    with world.server.client() as admin:
        return key_of(admin, "ada", "adas-own")


STRANGE = [
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
KNOWN = {"host", "authorization", "accept", "accept-encoding", "user-agent", "impersonate-user", "impersonate-group"}
KNOWN |= {"impersonate-uid", "audit-id", "content-length", "content-type"}


def assert_adas_own(asked: RecordedRequest, far: FakeCluster, allowed: set[str]) -> None:
    assert {name for name, _ in asked.headers} <= allowed
    assert b"root" not in asked.head and b"thief" not in asked.head
    assert asked.header_values("impersonate-user") == ["fairlead:ada"]
    assert "system:masters" not in asked.header_values("impersonate-group")
    assert asked.header_values("authorization") == [f"Bearer {TOKEN}"]
    assert asked.header_values("host") == [f"127.0.0.1:{far.port}"]


@pytest.mark.parametrize("http2", [False, True], ids=["HTTP/1.1", "HTTP/2"])
def test_t18_t24_headers_that_say_who_or_where_never_reach_a_cluster(world: World, http2: bool) -> None:
    hop = {"te", "trailer", "proxy-authorization"} if http2 else set()  # which HTTP/2 itself forbids
    headers = [(name, value) for name in STRANGE if name.lower() not in hop for value in ("root", "thief.example")]
    with world.client(http2=http2) as client:
        answer = client.get(f"{gateway_path('oslo')}{PODS}", headers=headers)
    assert answer.status_code == 200
    assert_adas_own(asked_by_people(world.oslo)[-1], world.oslo, KNOWN)


def socket_to(world: World, path: str, headers: Sequence[tuple[str, str]] = ()) -> WebSocket:
    return WebSocket(world.server, path, world.ada.key, V5, headers)


def test_t18_t24_nor_with_a_websocket(world: World) -> None:
    left_out = {"te", "trailer"}
    headers = [(name, "thief") for name in STRANGE if name.lower() not in left_out]
    with socket_to(world, f"{gateway_path('oslo')}{PODS}/p/exec?command=cat", headers) as opened:
        opened.send(b"\x00hello")
        assert opened.receive() == b"\x01hello"
    handshake = {"connection", "upgrade", "sec-websocket-key", "sec-websocket-version", "sec-websocket-protocol"}
    assert_adas_own(asked_by_people(world.oslo)[-1], world.oslo, KNOWN | handshake)


def test_t20_a_refused_upgrade_leaves_no_connection_behind(world: World) -> None:
    asked = len(asked_by_people(world.oslo))
    with pytest.raises(NotSwitched, match="403"):
        socket_to(world, f"{gateway_path('oslo')}/fake/refuse")
    number = asked_by_people(world.oslo)[asked].connection
    wait_until(lambda: number not in world.oslo.open_connections)


@pytest.mark.parametrize("code", [200, 302, 401, 500])
def test_t20_only_a_101_switches(world: World, code: int) -> None:
    async def plain(asked: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        writer.write(CannedResponse(code, b"tunnel", "text/plain", {"location": world.paris.url}).encode("GET"))
        await reader.read()
        return False

    world.oslo.set_upgrade_behaviour(f"/switch/{code}", plain)
    with pytest.raises(NotSwitched) as refused:
        socket_to(world, f"{gateway_path('oslo')}/switch/{code}")
    assert refused.value.status == {302: 502, 401: 502}.get(code, code)
    assert "location" not in refused.value.head and str(world.paris.port) not in refused.value.body
    number = asked_by_people(world.oslo)[-1].connection
    wait_until(lambda: number not in world.oslo.open_connections)


def raw(world: World, text: str) -> bytes:
    """What comes back to bytes that no polite client would send."""
    arrived = b""
    with world.server.connect("http/1.1") as connection:
        connection.sendall(text.replace("{key}", world.ada.key).encode("latin-1"))
        connection.settimeout(1)
        try:
            while piece := connection.recv(65536):
                arrived += piece
        except (TimeoutError, ssl.SSLError, ConnectionResetError):
            pass
    return arrived


ELSEWHERE = {
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
"""What somebody asks for who may use oslo and wants to be in paris. The last two lead to oslo, as anybody would say."""


@pytest.mark.parametrize("target", ELSEWHERE)
def test_t13_t24_nobody_who_may_use_oslo_ends_up_in_paris(world: World, target: str) -> None:
    before = len(asked_by_people(world.oslo))
    line = target.format(pods=PODS, paris=world.paris.url)
    host = f"127.0.0.1:{world.paris.port}"
    headers = f"Host: {host}\r\nX-Forwarded-Host: {host}\r\nX-Cluster: paris\r\nConnection: close\r\n"
    arrived = raw(world, f"GET {line} HTTP/1.1\r\n{headers}Authorization: Bearer {{key}}\r\n\r\n")
    assert arrived.startswith(f"HTTP/1.1 {ELSEWHERE[target]} ".encode())
    assert asked_by_people(world.paris) == []
    hosts = [each.header("host") for each in asked_by_people(world.oslo)[before:]]
    assert hosts == ([f"127.0.0.1:{world.oslo.port}"] if ELSEWHERE[target] == 200 else [])


def test_t13_a_new_cluster_of_an_old_name_gets_nothing_of_the_old(world: World) -> None:
    """Requests go to the new one at once, and what was open to the old one is cut."""
    with world.server.client() as admin, FakeCluster() as old, FakeCluster() as new:
        connect(admin, "reborn", old.build_kubeconfig(token="stored-token-old"))
        with admin.stream("GET", f"{gateway_path('reborn')}/fake/ticks", timeout=TIMEOUT_SECONDS) as stream:
            pieces = stream.iter_raw()
            assert next(pieces)
            for path in (f"{M}/clusters/reborn", f"{SYSTEM_SECRETS}/cluster-reborn"):
                assert admin.delete(path).status_code == 200
            wait_until(lambda: admin.get(f"{M}/clusters/reborn").status_code == 404)
            connect(admin, "reborn", new.build_kubeconfig(token="stored-token-new"))
            before = len(old.requests)
            assert admin.get(f"{gateway_path('reborn')}{PODS}").status_code == 200
            with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
                for _ in pieces:
                    pass
        assert len(asked_by_people(new)) == 1 and len(old.requests) == before
        assert new.requests[-1].header("authorization") == "Bearer stored-token-new"


@pytest.mark.parametrize("http2", [False, True], ids=["HTTP/1.1", "HTTP/2"])
@pytest.mark.parametrize("name", IMPERSONATING)
def test_t19_impersonation_is_never_ignored(world: World, adas_own: str, name: str, http2: bool) -> None:
    before = len(asked_by_people(world.oslo))
    with world.server.client(adas_own, http2=http2) as client:
        answer = client.get(f"{gateway_path('oslo')}{PODS}", headers={name: "root"})
    assert answer.status_code == (403 if name.lower() == "impersonate-user" else 400), answer.text
    with pytest.raises(NotSwitched) as refused:
        WebSocket(world.server, f"{gateway_path('oslo')}{PODS}/p/exec?command=cat", adas_own, V5, [(name, "x")])
    assert refused.value.status == answer.status_code
    assert len(asked_by_people(world.oslo)) == before


def test_t19_a_key_with_a_scope_does_not_impersonate(ada: httpx.Client) -> None:
    answer = ada.get(f"{gateway_path('oslo')}{PODS}", headers={"Impersonate-User": "ada"})
    assert answer.status_code == 403 and "has a scope and cannot impersonate" in answer.json()["message"]


def test_t19_an_impersonated_user_needs_the_right_to_use_the_cluster(world: World) -> None:
    before = len(asked_by_people(world.oslo))
    with world.server.client() as admin:
        answer = admin.delete(f"{gateway_path('oslo')}{PODS}/p", headers={"Impersonate-User": "nobody"})
    assert answer.status_code == 403
    assert 'User "nobody" cannot use resource "clusters"' in answer.json()["message"]
    assert len(asked_by_people(world.oslo)) == before


def test_t19_a_cluster_sees_the_impersonated_user_and_who_impersonates(world: World) -> None:
    with world.server.client() as admin:
        headers = {"Impersonate-User": "ada", "Impersonate-Extra-Acme.com%2FReason": "support"}
        answer = admin.get(f"{gateway_path('oslo')}{PODS}", headers=headers)
    assert answer.status_code == 200 and "warning" not in answer.headers
    asked = asked_by_people(world.oslo)[-1]
    assert asked.header_values("impersonate-user") == ["fairlead:ada"]
    assert (
        "fairlead:service:user:ada" in asked.header_values("impersonate-group")
        and "service:admins" not in asked.head.decode()
    )
    assert asked.header_values("impersonate-extra-service.sh%2fimpersonator") == ["fairlead:admin"]
    assert asked.header_values("impersonate-extra-acme.com%2freason") == ["support"]
    wait_until(lambda: asked.header("audit-id") in world.audit_log.read_text())
    logged = [json.loads(line) for line in world.audit_log.read_text().splitlines()]
    (event,) = [each for each in logged if each["auditID"] == asked.header("audit-id")]
    assert (event["user"]["username"], event["impersonatedUser"]["username"]) == ("admin", "ada")


def test_t19_an_impersonated_websocket_is_the_users(world: World) -> None:
    path, headers = f"{gateway_path('oslo')}{PODS}/p/exec?command=cat", [("Impersonate-User", "ada")]
    with WebSocket(world.server, path, world.server.key, V5, headers) as opened:
        opened.send(b"\x00hello")
        assert opened.receive() == b"\x01hello"
    assert asked_by_people(world.oslo)[-1].header_values("impersonate-user") == ["fairlead:ada"]


def test_t23_the_stored_credential_is_for_those_who_may_use_the_cluster(world: World) -> None:
    before = len(asked_by_people(world.oslo))
    with world.server.client() as admin:
        stranger = create_user(admin, "stranger", "oslo")
        reader = create_user(admin, "oslos-reader", "oslo", "get", "list", "watch", "update")
    for key in (None, "nonsense", stranger.key, reader.key):
        with world.server.client(key) as client:
            for path in ("", "/version", "/healthz", PODS, f"{PODS}/p/exec?command=cat", "/api", "/openapi/v2"):
                assert client.get(gateway_path("oslo") + path).status_code == (
                    403 if key in (stranger.key, reader.key) else 401
                )
    assert len(asked_by_people(world.oslo)) == before


def test_t23_cookies_and_keys_of_the_caller_stay_here(world: World, ada: httpx.Client) -> None:
    ada.get(f"{gateway_path('oslo')}{PODS}", headers={"Cookie": f"session={ada.headers['authorization']}"})
    head = asked_by_people(world.oslo)[-1].head
    assert world.ada.key.encode() not in head and b"session" not in head


def test_t14_no_websocket_is_opened_for_those_who_may_only_read_the_cluster(world: World) -> None:
    before = len(asked_by_people(world.oslo))
    with world.server.client() as admin:
        reader = create_user(
            admin, "another-reader", "oslo", "get", "list", "watch", "create", "update", "patch", "delete"
        )
    for subresource in ("exec?command=cat", "attach", "portforward?ports=80"):
        with pytest.raises(NotSwitched, match="403"):
            WebSocket(world.server, f"{gateway_path('oslo')}{PODS}/p/{subresource}", reader.key, V5)
    assert len(asked_by_people(world.oslo)) == before
