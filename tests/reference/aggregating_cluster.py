"""A control plane with an aggregation layer, and Fairlead behind it as an APIService.

There is no node and no pod: the Service of the APIService is the external name `localhost`, which kube-apiserver
resolves itself, because it does not route to endpoints.
"""

import json
import ssl
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from cryptography.x509.oid import ExtendedKeyUsageOID

from tests.harness.certificates import Authority, create_authority
from tests.harness.eventually import seconds_until, wait_until
from tests.harness.gateways import build_kubectl
from tests.harness.kubectl import Kubectl
from tests.harness.server_process import MANAGEMENT, Server, running_server
from tests.reference.control_plane import ADMIN_TOKEN, ControlPlane, free_port

GROUP = "management.service.sh"
API_SERVICE, NAMESPACE = f"v1.{GROUP}", "fairlead"
PROXY_NAME = "front-proxy-client"
CLIENT_AUTH = ExtendedKeyUsageOID.CLIENT_AUTH
AVAILABLE_SECONDS = 90.0
ACCOUNT = {"kind": "ServiceAccount", "name": "fairlead", "namespace": NAMESPACE}
RBAC = "rbac.authorization.k8s.io"


def aggregation_flags(proxies: Authority) -> list[str]:
    """The flags of kube-apiserver for its aggregation layer, as kubeadm sets them, and the newer header of UIDs."""
    cert, key = proxies.issue("proxy-client", PROXY_NAME, (), CLIENT_AUTH)
    return [
        f"--requestheader-client-ca-file={proxies.file}",
        f"--requestheader-allowed-names={PROXY_NAME}",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        "--requestheader-uid-headers=X-Remote-Uid",
        f"--proxy-client-cert-file={cert}",
        f"--proxy-client-key-file={key}",
        "--enable-aggregator-routing=false",
    ]


def host_objects() -> list[dict[str, Any]]:
    """The namespace, the account and its rights: what the chart installs."""
    reader = {"apiGroup": RBAC, "kind": "Role", "name": "extension-apiserver-authentication-reader"}
    delegator = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "system:auth-delegator"}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "fairlead", "namespace": NAMESPACE}},
        {
            **{"apiVersion": f"{RBAC}/v1", "kind": "RoleBinding", "roleRef": reader, "subjects": [ACCOUNT]},
            "metadata": {"name": "fairlead", "namespace": "kube-system"},
        },
        {
            **{"apiVersion": f"{RBAC}/v1", "kind": "ClusterRoleBinding", "roleRef": delegator, "subjects": [ACCOUNT]},
            "metadata": {"name": "fairlead"},
        },
        {
            **{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "fairlead", "namespace": NAMESPACE}},
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        },
    ]


@dataclass(frozen=True, slots=True)
class Host:
    """The control plane in front. `proxies` is the CA of its proxy client certificate."""

    plane: ControlPlane
    proxies: Authority
    folder: Path

    def kubectl(self, token: str = ADMIN_TOKEN) -> Kubectl:
        """kubectl at the kube-apiserver. Each token has its own home, and so its own discovery cache."""
        return build_kubectl(self.plane.binaries / "kubectl", self.folder / token[-32:], self.plane.kubeconfig(token))

    def apply(self, *objects: dict[str, Any]) -> None:
        body = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        self.kubectl()("apply", "-f", "-", body=body)

    def account_kubeconfig(self) -> Path:
        """A kubeconfig with a token of the server's service account."""
        file = self.folder / "account.kubeconfig"
        token = self.kubectl()("create", "token", "fairlead", "-n", NAMESPACE, "--duration=24h").strip()
        file.write_text(self.plane.kubeconfig(token))
        return file

    def register(self, server: Server, port: int) -> None:
        """Creates the APIService, and waits until it is available."""
        bundle = b64encode(Path(server.ca_file).read_bytes()).decode()
        spec = {
            **{"group": GROUP, "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 15},
            "caBundle": bundle,
            "service": {"namespace": NAMESPACE, "name": "fairlead", "port": port},
        }
        body = {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "spec": spec}
        self.apply({**body, "metadata": {"name": API_SERVICE}})
        self.wait_available()
        # Discovery follows the availability with a delay.
        resources = "api-resources", f"--api-group={GROUP}", "-o", "name"
        wait_until(lambda: self.kubectl()(*resources), AVAILABLE_SECONDS, "its resources are discovered")

    def unregister(self) -> None:
        self.kubectl()("delete", "apiservice", API_SERVICE, "--ignore-not-found")

    def wait_available(self) -> float:
        return seconds_until(lambda: self.availability()["status"] == "True", AVAILABLE_SECONDS, "it is available")

    def availability(self) -> dict[str, str]:
        found = self.kubectl().get_json("apiservice", API_SERVICE)
        conditions = found.get("status", {}).get("conditions", [])
        return next((each for each in conditions if each["type"] == "Available"), {"status": "", "message": ""})

    def controller_log(self) -> str:
        return (self.plane.folder / "controllers.log").read_text(errors="replace")


@contextmanager
def running_host(binaries: Path, folder: Path, controller_flags: Sequence[str] = ()) -> Iterator[Host]:
    proxies = create_authority(folder / "proxies", "Front proxies")
    flags = aggregation_flags(proxies)
    with ControlPlane(binaries, folder / "plane", flags, controller_flags=controller_flags) as plane:
        host = Host(plane, proxies, folder)
        host.apply(*host_objects())
        yield host


@dataclass(frozen=True, slots=True)
class Aggregated:
    """Fairlead behind the host. `port` is its port for front proxies."""

    host: Host
    server: Server
    port: int


@contextmanager
def running_behind(host: Host, folder: Path, **settings: str | int) -> Iterator[Aggregated]:
    """Fairlead as an APIService of the host, until the context is closed."""
    port = free_port()
    configured: dict[str, str | int] = {
        "aggregated_api": "host",
        "host_kubeconfig": str(host.account_kubeconfig()),
        "requestheader_port": port,
        "tls_names": f"fairlead.{NAMESPACE}.svc",
        **settings,
    }
    folder.mkdir(parents=True, exist_ok=True)
    with running_server(folder / "data", **configured) as server:
        try:
            host.register(server, port)
            yield Aggregated(host, server, port)
        finally:
            host.unregister()
        log = server.log.read_text()
    assert "Traceback" not in log, log


def app(name: str, title: str = "One") -> dict[str, Any]:
    spec = {"displayName": title}
    return {"apiVersion": f"{GROUP}/v1", "kind": "App", "metadata": {"name": name}, "spec": spec}


def shared_secret(name: str, namespace: str, **meta: Any) -> dict[str, Any]:
    body = {"apiVersion": f"{GROUP}/v1", "kind": "SharedSecret", "spec": {"data": {"a": "Yg=="}}}
    return {**body, "metadata": {"name": name, "namespace": namespace, **meta}}


def proxy_client(aggregated: Aggregated, name: str | None, authority: Authority | None = None) -> httpx.Client:
    """A client of the port for front proxies, with a certificate of the host's CA for this common name."""
    context = ssl.create_default_context(cafile=aggregated.server.ca_file)
    if name is not None:
        issuer = authority or aggregated.host.proxies
        context.load_cert_chain(*issuer.issue(f"client-{name}", name, (), CLIENT_AUTH))
    return httpx.Client(base_url=f"https://127.0.0.1:{aggregated.port}", verify=context, timeout=20)


def create_own(server: Server, path: str, body: dict[str, Any]) -> dict[str, Any]:
    with server.client() as admin:
        response = admin.post(f"{MANAGEMENT}{path}", json=body)
        assert response.status_code == 201, response.text
        created: dict[str, Any] = response.json()
        return created


def exists_own(server: Server, path: str) -> bool:
    with server.client() as admin:
        return admin.get(f"{MANAGEMENT}{path}").status_code == 200


# --- clients ----------------------------------------------------------------------------------------------------------
