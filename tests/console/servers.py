"""Servers for tests with a browser: one certificate for all, which the browser trusts, and users with passwords."""

import base64
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509 import load_pem_x509_certificate

from fairlead.core.crypto.certificates import Certificates
from tests.harness.cli import CliFixture
from tests.harness.fake_server import FakeServer
from tests.harness.server_process import MANAGEMENT, Server, running_server

GROUP = f"{MANAGEMENT}/apis/management.service.sh/v1"
RBAC = f"{MANAGEMENT}/apis/rbac.authorization.k8s.io/v1"
PASSWORD = "correct horse battery staple"
LOGIN_COOKIE = "__Host-service_access_key"

ADMIN, OWNER, VIEWER, AUDITOR, OUTSIDER = USERS = ("admin", "owner", "viewer", "auditor", "outsider")
"""Who can sign in: the administrator, the owner of the project `storefront` of the demo, a member of it with the role
viewer, one who reads everything except Secrets, and one without any rights."""
PROJECT = "storefront"


@dataclass(frozen=True, slots=True)
class ConsoleServer:
    """A running server whose users can sign in with `PASSWORD`."""

    server: Server

    @property
    def url(self) -> str:
        return self.server.url

    def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Creates an object as the administrator. The path is that of the collection, below the management API."""
        return self.send("POST", path, body)

    def send(self, method: str, path: str, body: Any = None, *, patch: bool = False) -> dict[str, Any]:
        """A request of the administrator: `send("GET", f"{GROUP}/apps")`."""
        headers = {"Content-Type": "application/merge-patch+json"} if patch else {}
        with self.server.client() as client:
            response = client.request(method, path, json=body, headers=headers)
        assert response.is_success, response.text
        answer: dict[str, Any] = response.json()
        return answer

    def log_in(self, user: str, password: str = PASSWORD) -> str:
        """Logs in and returns the value of the cookie."""
        with self.server.client(None) as client:
            body = {"username": user, "password": password}
            response = client.post("/auth/password/login?cookie=true", json=body, headers={"Origin": self.url})
            assert response.status_code == 200, response.text
            return response.cookies[LOGIN_COOKIE]


@contextmanager
def running_console(folder: Path, certificates: Certificates, **settings: str | int) -> Iterator[ConsoleServer]:
    """A server without objects, except for the user admin with a password."""
    with restarted_console(folder, certificates, **settings) as console:
        set_password(console, ADMIN)  # which ends all logins
        yield console


@contextmanager
def restarted_console(folder: Path, certificates: Certificates, **settings: str | int) -> Iterator[ConsoleServer]:
    """A server on a folder that another one has left. Its logins are still valid."""
    tls = {"tls_cert": str(certificates.cert_file), "tls_key": str(certificates.key_file)}
    with running_server(folder, **tls, tls_ca=str(certificates.ca_file), **settings) as server:
        yield ConsoleServer(server)


def fill_with_demo(console: ConsoleServer, folder: Path) -> None:
    """The objects of `fairlead demo`, and the other users."""
    with pytest.MonkeyPatch.context() as patches:
        cli = CliFixture(folder, FakeServer(console.url, console.server.ca_file), patches)
        cli.save_login(key=console.server.key)
        created = cli.run("demo")
    assert created.code == 0, created.err
    for name in (OWNER, VIEWER, AUDITOR, OUTSIDER):
        create_user(console, name)
    members = console.send("GET", f"{GROUP}/projects/{PROJECT}")["spec"]["members"]
    spec = {
        "owner": {"user": OWNER, "team": None},
        "members": [*members, {"kind": "User", "name": VIEWER, "clusterRole": "viewer"}],
    }
    console.send("PATCH", f"{GROUP}/projects/{PROJECT}", {"spec": spec}, patch=True)
    read = ["get", "list", "watch"]
    rules = [
        {"apiGroups": ["management.service.sh", "rbac.authorization.k8s.io"], "resources": ["*"], "verbs": read},
        {"apiGroups": [""], "resources": ["namespaces", "configmaps", "events"], "verbs": read},
    ]
    rbac = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": AUDITOR}}
    console.create(f"{RBAC}/clusterroles", {**rbac, "kind": "ClusterRole", "rules": rules})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": AUDITOR}
    subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": AUDITOR}]
    binding = {**rbac, "kind": "ClusterRoleBinding", "roleRef": reference, "subjects": subjects}
    console.create(f"{RBAC}/clusterrolebindings", binding)


def create_user(console: ConsoleServer, name: str) -> None:
    user = {"apiVersion": "management.service.sh/v1", "kind": "User", "metadata": {"name": name}, "spec": {}}
    console.create(f"{GROUP}/users", user)
    set_password(console, name)


def set_password(console: ConsoleServer, name: str, password: str = PASSWORD) -> None:
    profile = {"apiVersion": "management.service.sh/v1", "kind": "UserProfile", "password": password}
    console.create(f"{GROUP}/users/{name}/profile", profile)


def hash_public_key(cert_file: Path) -> str:
    """The hash by which a browser can be made to trust a certificate."""
    key = load_pem_x509_certificate(cert_file.read_bytes()).public_key()
    encoded = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return base64.b64encode(hashlib.sha256(encoded).digest()).decode()
