"""A real server behind a stand-in for a kube-apiserver: its port opens, follows the ConfigMap, and asks for reviews."""

import json
import ssl
from pathlib import Path

import httpx
import pytest

from tests.fake_cluster.aggregation import FakeHost, running_fake_host
from tests.harness.certificates import Authority, create_authority
from tests.harness.eventually import wait_until
from tests.harness.free_ports import free_ports
from tests.harness.server_process import MANAGEMENT, TIMEOUT_SECONDS, Server, running_server
from tests.live.test_client_certificates import CLIENT_AUTH

APPS = "/apis/management.service.sh/v1/apps"
ALICE, BO = {"X-Remote-User": "alice"}, {"X-Remote-User": "bo"}


def proxy_client(server: Server, port: int, authority: Authority) -> httpx.Client:
    context = ssl.create_default_context(cafile=server.ca_file)
    context.load_cert_chain(*authority.issue("proxy", "front-proxy-client", (), CLIENT_AUTH))
    return httpx.Client(base_url=f"https://127.0.0.1:{port}", verify=context, timeout=TIMEOUT_SECONDS)


def find_status(client: httpx.Client, headers: dict[str, str], seconds: float = TIMEOUT_SECONDS) -> int:
    """0 if there is no connection."""
    try:
        return client.get(APPS, headers=headers, timeout=seconds).status_code
    except httpx.TransportError:
        return 0


@pytest.mark.long
def test_the_port_follows_the_host_and_the_host_decides(tmp_path: Path) -> None:
    former, renewed = create_authority(tmp_path / "former"), create_authority(tmp_path / "renewed")
    kubernetes = FakeHost(former.file.read_text(), "alice")
    (port,), data, kubernetes.data = free_ports(1), kubernetes.data or {}, None
    with running_fake_host(kubernetes) as cluster:
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_bytes(cluster.build_kubeconfig())
        settings: dict[str, str | int] = {
            **{"aggregated_api": "host", "aggregated_api_authorization": "host"},
            **{"host_kubeconfig": str(kubeconfig), "requestheader_port": port},
        }
        with running_server(tmp_path / "data", **settings) as server:
            with server.client() as admin:
                assert admin.get(f"{MANAGEMENT}{APPS}").status_code == 200
            with proxy_client(server, port, former) as proxy, proxy_client(server, port, renewed) as other:
                assert find_status(proxy, ALICE, seconds=1) == 0, "the CA is not known yet"
                kubernetes.data = data
                wait_until(lambda: find_status(proxy, ALICE) == 200)
                assert find_status(proxy, BO) == 403
                assert proxy.get(APPS, headers={"Authorization": f"Bearer {server.key}"}).status_code == 401
                assert find_status(other, ALICE) == 0
                kubernetes.data = {**data, "requestheader-client-ca-file": renewed.file.read_text()}
                wait_until(lambda: find_status(other, ALICE) == 200)
                wait_until(lambda: find_status(proxy, ALICE) == 0)  # its open connection is closed
    reviews = [json.loads(each.body)["spec"] for each in cluster.requests if each.method == "POST"]
    wanted = {"verb": "list", "group": "management.service.sh", "version": "v1", "resource": "apps"}
    assert {each["user"] for each in reviews} == {"alice", "bo"}
    assert all(each["resourceAttributes"] == wanted for each in reviews)
