"""OpenID providers that others wrote, each in a process of its own, with TLS on loopback.

They are reached as `localhost`, and the server under test as `127.0.0.1`: for a browser these are two sites.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from fairlead.core.crypto.certificates import Certificates
from tests.conftest import find_component
from tests.harness.server_process import ROOT, TIMEOUT_SECONDS, build_tls_context

NODE_PROVIDER = Path(__file__).with_name("oidc_provider.mjs")
INSTALLED = ROOT / ".tools" / "oidc-provider"


@dataclass(frozen=True, slots=True)
class Client:
    """What a provider knows of a relying party."""

    id: str
    secret: str
    callback: str
    backchannel_logout: str = ""
    after_logout: str = ""

    def describe(self) -> dict[str, Any]:
        """As dynamic client registration has it."""
        described: dict[str, Any] = {
            "client_id": self.id,
            "client_secret": self.secret,
            "redirect_uris": [self.callback],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
        }
        if self.backchannel_logout:
            described |= {
                "backchannel_logout_uri": self.backchannel_logout,
                "backchannel_logout_session_required": True,
            }
        if self.after_logout:
            described["post_logout_redirect_uris"] = [self.after_logout]
        return described


@dataclass(frozen=True, slots=True)
class NodeProvider:
    """npm's `oidc-provider`. Its development pages accept any password for its accounts."""

    process: "subprocess.Popen[str]"
    issuer: str

    def set_clients(self, *clients: Client) -> None:
        self.change(clients=[client.describe() for client in clients])

    def set_account(self, sub: str, **claims: Any) -> None:
        self._send("account", sub=sub, claims=claims)

    def remove_account(self, sub: str) -> None:
        self._send("account", sub=sub, claims=None)

    def change(self, **settings: Any) -> None:
        """`claimsInIdToken`, `rotateRefreshTokens` or `idTokenSeconds`."""
        self._send("change", settings=settings)

    def rotate_keys(self, *, forget: bool = False) -> None:
        """A new signing key. `forget` removes the old ones from the published set at once."""
        self._send("rotate", forget=forget)

    def log_out(self, client: Client, sub: str, sid: str | None = None) -> None:
        """Sends a back-channel logout for the account's last session, and fails if the client does not accept it."""
        self._send("logout", client=client.id, sub=sub, sid=sid)

    def stop(self) -> None:
        """Ends all connections and accepts no others, until `start`."""
        self._send("stop")

    def start(self) -> None:
        self._send("start")

    def _send(self, command: str, **options: Any) -> None:
        answer = _exchange(self.process, {"command": command, **options})
        assert "error" not in answer, answer["error"]


@contextmanager
def running_node_provider(folder: Path, certificates: Certificates) -> Iterator[NodeProvider]:
    """Skips the test if it is not installed."""
    node = find_component("node")
    if not (INSTALLED / "installed.json").exists():
        pytest.skip("oidc-provider is not installed; `make test-tools` installs it")
    files = [str(certificates.cert_file), str(certificates.key_file)]
    command = [str(node), str(NODE_PROVIDER), str(INSTALLED), *files]
    with _running(command, folder / "oidc-provider.log", certificates) as (process, ready):
        yield NodeProvider(process, ready["issuer"])


@dataclass(frozen=True, slots=True)
class MockProvider:
    """PyPI's `oidc-provider-mock`. Its page accepts any name, and it knows every client."""

    process: "subprocess.Popen[str]"
    issuer: str
    ca_file: str

    def set_account(self, sub: str, **claims: Any) -> None:
        self._request("PUT", f"/users/{sub}", claims)

    def revoke_tokens(self, sub: str) -> None:
        self._request("POST", f"/users/{sub}/revoke-tokens", None)

    def _request(self, method: str, path: str, body: Any) -> None:
        with httpx.Client(verify=build_tls_context(self.ca_file), timeout=TIMEOUT_SECONDS) as client:
            client.request(method, f"{self.issuer}{path}", json=body).raise_for_status()


@contextmanager
def running_mock_provider(
    folder: Path, certificates: Certificates, *, refresh_tokens: bool = True, token_seconds: int = 3600
) -> Iterator[MockProvider]:
    settings = {
        "certificate": [str(certificates.cert_file), str(certificates.key_file)],
        "refreshTokens": refresh_tokens,
        "tokenSeconds": token_seconds,
    }
    command = [sys.executable, "-W", "ignore", "-m", "tests.sso.providers.mock_provider", json.dumps(settings)]
    with _running(command, folder / "oidc-provider-mock.log", certificates) as (process, ready):
        yield MockProvider(process, ready["issuer"], str(certificates.ca_file))


@contextmanager
def _running(
    command: Sequence[str], log: Path, certificates: Certificates
) -> Iterator[tuple["subprocess.Popen[str]", dict[str, Any]]]:
    """A process that says in its first line that it is ready. It ends with its standard input."""
    environment = {"PATH": "/usr/bin:/bin", "NODE_EXTRA_CA_CERTS": str(certificates.ca_file)}
    with log.open("ab") as errors:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, log.read_text()
        yield process, json.loads(line)
    finally:
        process.kill()
        process.communicate()


def _exchange(process: "subprocess.Popen[str]", message: dict[str, Any]) -> dict[str, Any]:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(json.dumps(message) + "\n")
    process.stdin.flush()
    answer: dict[str, Any] = json.loads(process.stdout.readline())
    return answer
