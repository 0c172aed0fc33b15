"""Client certificates and front proxies on their ports of a real server: kubectl, watches, exec through a gateway."""

import json
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import yaml
from cryptography.x509.oid import ExtendedKeyUsageOID

from tests.fake_cluster.pods import LOG_TEXT, serve_pod
from tests.fake_cluster.server import FakeCluster
from tests.harness.certificates import Authority, create_authority
from tests.harness.eventually import wait_until
from tests.harness.free_ports import free_ports
from tests.harness.gateways import build_kubectl, connect_cluster, create_user, gateway_path, is_online
from tests.harness.kubectl import Kubectl
from tests.harness.server_process import MANAGEMENT, TIMEOUT_SECONDS, Server, configmap, running_server

USERS = f"{MANAGEMENT}/apis/management.service.sh/v1/users"
REVIEWS = f"{MANAGEMENT}/apis/authentication.k8s.io/v1/selfsubjectreviews"
CONFIGMAPS = f"{MANAGEMENT}/api/v1/namespaces/default/configmaps"
ROOT_HEADERS = {"X-Remote-User": "root", "X-Remote-Group": "system:masters"}
CLIENT_AUTH = ExtendedKeyUsageOID.CLIENT_AUTH


@dataclass(frozen=True, slots=True)
class Ports:
    """A server with both ports, and the CAs of their clients."""

    server: Server
    users: Authority
    proxies: Authority
    user_port: int
    proxy_port: int
    folder: Path

    def client(self, port: int, files: tuple[Path, Path] | None, **headers: str) -> httpx.Client:
        context = ssl.create_default_context(cafile=self.server.ca_file)
        if files is not None:
            context.load_cert_chain(*files)
        url = f"https://127.0.0.1:{port}"
        return httpx.Client(base_url=url, verify=context, timeout=TIMEOUT_SECONDS, headers=headers)

    def user(self, name: str, *organizations: str) -> httpx.Client:
        return self.client(self.user_port, self.users.issue(name, name, organizations, CLIENT_AUTH))

    def proxy(self, name: str = "front-proxy", **headers: str) -> httpx.Client:
        return self.client(self.proxy_port, self.proxies.issue(name, name, (), CLIENT_AUTH), **headers)

    def kubectl(self, program: Path, name: str, path: str) -> Kubectl:
        cert, key = self.users.issue(name, name, (), CLIENT_AUTH)
        cluster = {"server": f"https://127.0.0.1:{self.user_port}{path}", "certificate-authority": self.server.ca_file}
        content = {
            **{"apiVersion": "v1", "kind": "Config", "current-context": "it"},
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it", "namespace": "default"}}],
            "clusters": [{"name": "it", "cluster": cluster}],
            "users": [{"name": "it", "user": {"client-certificate": str(cert), "client-key": str(key)}}],
        }
        return build_kubectl(program, self.folder / f"kubectl-{name}", yaml.safe_dump(content))


@pytest.fixture(scope="module", params=[1, 2], ids=["1-worker", "2-workers"])
def ports(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ports]:
    folder = tmp_path_factory.mktemp("certificates")
    users, proxies = create_authority(folder / "users", "Users"), create_authority(folder / "proxies", "Proxies")
    user_port, proxy_port = free_ports(2)
    settings: dict[str, str | int] = {
        "workers": request.param,
        "client_ca": str(users.file),
        "client_cert_port": user_port,
        "requestheader_client_ca": str(proxies.file),
        "requestheader_port": proxy_port,
        "requestheader_allowed_names": "front-proxy",
    }
    with running_server(folder / "data", **settings) as server:
        yield Ports(server, users, proxies, user_port, proxy_port, folder)


def who_am_i(client: httpx.Client, **headers: str) -> dict[str, Any]:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    response = client.post(REVIEWS, json=body, headers=headers)
    assert response.status_code == 201, response.text
    found: dict[str, Any] = response.json()["status"]["userInfo"]
    return found


def create_plain_user(ports: Ports, name: str) -> None:
    body = {
        "apiVersion": "management.service.sh/v1",
        "kind": "User",
        "metadata": {"name": name},
        "spec": {"username": name},
    }
    with ports.server.client() as admin:
        assert admin.post(USERS, json=body).status_code == 201


@pytest.mark.parametrize("is_relayed", [False, True], ids=["main", "client-certificates"])
def test_the_limit_of_headers_is_the_same_on_all_ports(ports: Ports, is_relayed: bool) -> None:
    """Also for headers that arrive at once, and for long paths."""
    port = ports.user_port if is_relayed else urlsplit(ports.server.url).port or 0

    def send(path: str, headers: dict[str, str]) -> int:
        """The status; 0 if the server has closed the connection before all was sent, and its response was lost."""
        with ports.client(port, None) as client:
            try:
                return client.get(path, headers=headers).status_code
            except httpx.TransportError:
                return 0

    assert send("/version", {"X-Long": "x" * 60_000}) == 200
    statuses = [send("/version", {"X-Long": "x" * size}) for size in (66_000, 80_000, 100_000, 300_000)]
    statuses.append(send("/version", {f"X-{each}": "x" * 1_000 for each in range(80)}))
    statuses.append(send(f"/version?{'x' * 40_000}", {"X-Long": "x" * 40_000}))
    assert 431 in statuses and {*statuses} <= {431, 0}
    assert send("/version", {"X-Long": "x" * 60_000}) == 200


def test_a_certificate_authenticates_its_user_until_the_user_is_disabled(ports: Ports) -> None:
    create_plain_user(ports, "ada")
    with ports.user("ada", "devs", "system:masters") as ada, ports.server.client() as admin:
        found = who_am_i(ada)
        assert found["username"] == "ada" and "devs" in found["groups"] and "system:masters" not in found["groups"]
        assert [user["metadata"]["name"] for user in ada.get(USERS).json()["items"]] == ["ada"]  # no administrator
        patch = {"spec": {"disabled": True}}
        headers = {"Content-Type": "application/merge-patch+json"}
        assert admin.patch(f"{USERS}/ada", content=json.dumps(patch), headers=headers).status_code == 200
        assert ada.get(CONFIGMAPS).status_code == 401


def test_who_has_no_user_or_no_certificate_is_not_authenticated(ports: Ports) -> None:
    with ports.user("unknown") as unknown, ports.client(ports.user_port, None) as anonymous:
        for client in (unknown, anonymous):
            assert client.get(CONFIGMAPS).status_code == 401
            assert client.get(CONFIGMAPS, headers=ROOT_HEADERS).status_code == 401
            assert client.get("/version").status_code == 200
        key = {"Authorization": f"Bearer {ports.server.key}"}
        assert anonymous.get(CONFIGMAPS, headers=key).status_code == 200
        assert unknown.get(CONFIGMAPS, headers=key).status_code == 401  # one credential or the other


def test_a_front_proxy_names_the_user(ports: Ports) -> None:
    with ports.proxy() as proxy:
        found = who_am_i(proxy, **ROOT_HEADERS, **{"X-Remote-Extra-Scopes": "a", "X-Remote-Uid": "7"})
        assert (found["username"], found["extra"]) == ("root", {"scopes": ["a"]}) and "uid" not in found
        assert proxy.get(CONFIGMAPS, headers=ROOT_HEADERS).status_code == 200
        assert proxy.get(CONFIGMAPS, headers={"X-Remote-User": "ada"}).status_code == 403
        assert proxy.get(CONFIGMAPS).status_code == 401
        key = {"Authorization": f"Bearer {ports.server.key}"}
        assert proxy.get(CONFIGMAPS, headers=key).status_code == 401
        assert proxy.get(CONFIGMAPS, headers={**key, "X-Remote-User": "ada"}).status_code == 403


def test_other_clients_are_not_front_proxies(ports: Ports) -> None:
    with ports.proxy("other") as other:
        assert other.get(CONFIGMAPS, headers=ROOT_HEADERS).status_code == 401
    user = ports.users.issue("front-proxy", "front-proxy", (), CLIENT_AUTH)
    for files in (user, None):
        with ports.client(ports.proxy_port, files) as client, pytest.raises(httpx.TransportError):
            client.get(CONFIGMAPS, headers=ROOT_HEADERS)
    with ports.server.client(None) as main:
        assert main.get(CONFIGMAPS, headers=ROOT_HEADERS).status_code == 401


def test_a_watch_through_a_front_proxy_shows_changes(ports: Ports) -> None:
    with (
        ports.proxy(**ROOT_HEADERS) as proxy,
        proxy.stream("GET", CONFIGMAPS, params={"watch": "1", "timeoutSeconds": "30"}) as watch,
        ports.server.client() as admin,
    ):
        events = watch.iter_lines()
        assert admin.post(CONFIGMAPS, json=configmap("seen")).status_code == 201
        assert any('"seen"' in line for line in events)


def test_kubectl_works_with_a_client_certificate(ports: Ports, component: Callable[[str], Path]) -> None:
    kubectl = ports.kubectl(component("kubectl"), "admin", MANAGEMENT)
    assert kubectl("auth", "whoami", "-o", "jsonpath={.status.userInfo.username}") == "admin"
    manifest = json.dumps(configmap("applied", a="1"))
    assert kubectl("apply", "-f", "-", body=manifest) == "configmap/applied created\n"
    assert "applied" in kubectl.get_names("configmaps")
    assert "binaryData" in kubectl("explain", "configmap")
    with kubectl.watching("get", "configmaps", "-w", "-o", "name") as watch:
        assert watch.stdout is not None
        assert any("applied" in line for line in iter(watch.stdout.readline, ""))


def test_exec_and_logs_through_a_gateway_work_with_a_client_certificate(
    ports: Ports, component: Callable[[str], Path]
) -> None:
    with FakeCluster() as pods, ports.server.client() as admin:
        serve_pod(pods)
        connect_cluster(admin, "oslo", pods.build_kubeconfig(token="oslos-own"))
        wait_until(lambda: is_online(admin, "oslo"))
        create_user(admin, "bo", "oslo", "use")
        kubectl = ports.kubectl(component("kubectl"), "bo", gateway_path("oslo"))
        text = "".join(f"line {number}\n" for number in range(20_000))
        assert kubectl("exec", "-i", "p", "--", "cat", body=text) == text
        assert kubectl("logs", "p") == LOG_TEXT
        failed = kubectl.run("exec", "p", "--", "exit", "7")
        assert failed.returncode == 7


def test_too_large_headers_and_garbage_do_not_harm_others(ports: Ports) -> None:
    for sent in (b"GET / HTTP/1.1\r\n", b"\x16\x03\x01" + b"\xff" * 500, b"\r\n" * 50):
        with socket.create_connection(("127.0.0.1", ports.user_port), TIMEOUT_SECONDS) as raw, suppress(OSError):
            raw.sendall(sent)
            raw.recv(100)
    with ports.user("admin") as admin:
        with suppress(httpx.TransportError):  # the connection is closed, maybe before the response is read
            assert admin.get(CONFIGMAPS, headers={"X-Large": "x" * 1_000_000}).status_code in (400, 431)
        assert admin.get(CONFIGMAPS).status_code == 200


def test_a_server_with_idle_connections_on_its_ports_stops_soon(tmp_path: Path) -> None:
    users, (port,) = create_authority(tmp_path / "users"), free_ports(1)
    settings: dict[str, str | int] = {"client_ca": str(users.file), "client_cert_port": port, "shutdown_grace": 60}
    with running_server(tmp_path / "data", **settings) as server:
        context = ssl.create_default_context(cafile=server.ca_file)
        context.load_cert_chain(*users.issue("admin", "admin", (), CLIENT_AUTH))
        with httpx.Client(base_url=f"https://127.0.0.1:{port}", verify=context, timeout=TIMEOUT_SECONDS) as client:
            assert client.get(CONFIGMAPS).status_code == 200
            assert server.stop() == 0
    assert list((tmp_path / "data" / "connections").iterdir()) == []
