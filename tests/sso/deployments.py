"""A server with connectors, and sign-ons step by step, so that a test can do any of them wrong.

authorization = deployment.begin(visitor, "forged")             # to the provider
code = forger.grant(authorization, aud="another-client")
answer = deployment.finish(visitor, "forged", authorization, code)
assert deployment.reason_of(answer) == "token_rejected"          # in the audit log
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import httpx

from fairlead.core.crypto.certificates import Certificates
from tests.console.servers import GROUP, LOGIN_COOKIE, ConsoleServer, running_console
from tests.harness.eventually import wait_until
from tests.harness.log_lines import read_lines
from tests.harness.server_process import MANAGEMENT
from tests.sso.providers.forging import read_query
from tests.sso.providers.processes import Client
from tests.sso.visits import Visitor

CONFIG = f"{GROUP}/configs/service-manager-config"
SECRETS = f"{MANAGEMENT}/api/v1/namespaces/service-system/secrets"
CLIENT_ID = "fairlead"
CANARY = "canary-of-the-client-secret-000000000001"
"""The client secret at all providers. Nothing that the server shows or writes may contain it."""
REASON_ANNOTATION = "service.sh/sign-on-reason"
DETAIL_ANNOTATION = "service.sh/sign-on-detail"

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Deployment:
    """A running server. `audit_folder` contains its audit logs."""

    console: ConsoleServer
    ca_file: str
    audit_folder: Path

    @property
    def url(self) -> str:
        return self.console.url

    # --- settings

    def connector(self, id: str, issuer: str, **oidc: Any) -> Json:
        """A connector for a provider of the tests, with changes."""
        right: Json = {
            "issuerURL": issuer,
            "clientId": CLIENT_ID,
            "clientSecretRef": {"namespace": "service-system", "name": "provider", "key": "clientSecret"},
            "ca": Path(self.ca_file).read_text(),
            "allowLoopback": True,
        }
        return {"id": id, "displayName": id.title(), "oidc": right | oidc}

    def configure(self, *connectors: Json, rules: Sequence[Json] = (), **auth: Any) -> None:
        """Replaces the settings of single sign-on."""
        response = self.try_configure(*connectors, rules=rules, **auth)
        assert response.is_success, response.text

    def try_configure(self, *connectors: Json, rules: Sequence[Json] = (), **auth: Any) -> httpx.Response:
        settings = {"auth": {"connectors": list(connectors), "groupMappings": list(rules), **auth}}
        with self.console.server.client() as client:
            headers = {"Content-Type": "application/merge-patch+json"}
            return client.patch(CONFIG, json={"spec": {"raw": json.dumps(settings)}}, headers=headers)

    def client_of(self, id: str) -> Client:
        """This server as a client of a provider."""
        base = f"{self.url}/auth/{id}"
        return Client(CLIENT_ID, CANARY, f"{base}/callback", f"{base}/backchannel-logout", f"{self.url}/console/")

    # --- the sign-on

    def begin(self, visitor: Visitor, id: str, return_path: str = "/console/") -> str:
        """The address at the provider that the browser is sent to."""
        response = self.start(visitor, id, return_path)
        assert response.is_redirect, f"{response.status_code} {response.text}"
        location: str = response.headers["location"]
        return location

    def start(self, visitor: Visitor, id: str, return_path: str = "/console/") -> httpx.Response:
        return visitor.get(f"{self.url}/auth/{id}/login?return={quote(return_path, safe='')}")

    def finish(self, visitor: Visitor, id: str, authorization: str, code: str, **query: str) -> httpx.Response:
        """The callback, as a right provider sends the browser there. `query` changes its parameters."""
        right = {"code": code, "state": read_query(authorization)["state"], **query}
        return visitor.get(f"{self.url}/auth/{id}/callback?{urlencode(right)}")

    def sign_in(self, visitor: Visitor, id: str, name: str) -> httpx.Response:
        """A whole sign-on through the pages of a real provider. The response is that of the callback."""
        authorization = self.begin(visitor, id)
        return visitor.get(visitor.sign_in(authorization, name, f"{self.url}/auth/{id}/callback"))

    def key_of(self, response: httpx.Response) -> str:
        """The access key that a callback has set as a cookie."""
        assert LOGIN_COOKIE in response.cookies, f"{response.status_code} {dict(response.headers)} {response.text}"
        return response.cookies[LOGIN_COOKIE]

    # --- what came of it

    def whoami(self, key: str) -> Json | None:
        """The user of a key as the server sees it: name and groups. None if the key is rejected."""
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        with self.console.server.client(key) as client:
            path = f"{MANAGEMENT}/apis/authentication.k8s.io/v1/selfsubjectreviews"
            response = client.post(path, json=review)
        if response.status_code == 401:
            return None
        assert response.is_success, response.text
        user: Json = response.json()["status"]["userInfo"]
        return user

    def users(self) -> list[Json]:
        items: list[Json] = self.console.send("GET", f"{GROUP}/users")["items"]
        return items

    def user_of(self, issuer: str, subject: str) -> Json:
        (user,) = [
            each
            for each in self.users()
            if (each["spec"].get("issuer"), each["spec"].get("subject")) == (issuer, subject)
        ]
        return user

    def audit_text(self) -> str:
        """All audit events. Those of unauthenticated clients are in a file of their own."""
        files = sorted(self.audit_folder.glob("audit*.log"))
        return "".join(f"{line}\n" for file in files for line in read_lines(file))

    def event_of(self, response: httpx.Response) -> Json:
        """The audit event of a response, when the request was complete."""
        audit_id = response.headers["audit-id"]
        found = wait_until(lambda: self._find_event(audit_id), what=f"the audit log has {audit_id}")
        return found

    def _find_event(self, audit_id: str) -> Json | None:
        found = [json.loads(line) for line in self.audit_text().splitlines() if audit_id in line]
        return next((each for each in found if each["stage"] == "ResponseComplete"), None)

    def reason_of(self, response: httpx.Response) -> str:
        """Why the sign-on of a response was refused, in the audit log."""
        reason: str = self.event_of(response)["annotations"].get(REASON_ANNOTATION, "")
        return reason

    def detail_of(self, response: httpx.Response) -> str:
        detail: str = self.event_of(response)["annotations"].get(DETAIL_ANNOTATION, "")
        return detail


@contextmanager
def running_deployment(folder: Path, certificates: Certificates, **settings: str | int) -> Iterator[Deployment]:
    with running_console(folder / "data", certificates, audit_rejected=0, **settings) as console:
        deployment = Deployment(console, str(certificates.ca_file), folder / "data")
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "provider"}}
        console.create(SECRETS, {**secret, "stringData": {"clientSecret": CANARY}})
        yield deployment
