"""The providers of these tests do what the tests of the server rely on."""

import base64
import hashlib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import httpx
import jwt
import pytest

from fairlead.core.crypto.certificates import Certificates
from tests.harness.server_process import build_tls_context
from tests.sso.providers.forging import Answer, Forger, read_query
from tests.sso.providers.processes import Client, MockProvider, NodeProvider
from tests.sso.providers.tokens import sign, sign_with_public_key
from tests.sso.visits import Visitor

CALLBACK = "https://127.0.0.1:1/auth/corp/callback"
CLIENT = Client("fairlead", "a secret of the tests, long enough", CALLBACK)


@dataclass(frozen=True, slots=True)
class RelyingParty:
    """A client of a provider that is right by being short."""

    ca_file: str

    def fetch(self, url: str) -> dict[str, Any]:
        found: dict[str, Any] = self._request("GET", url).json()
        return found

    def begin(self, issuer: str) -> tuple[str, str]:
        """The authorization address, and the verifier of its challenge."""
        verifier = secrets.token_urlsafe(48)
        digest = hashlib.sha256(verifier.encode()).digest()
        query = {
            "client_id": CLIENT.id,
            "response_type": "code",
            "scope": "openid profile email groups offline_access",
            "redirect_uri": CALLBACK,
            "state": "state-of-the-test",
            "nonce": "nonce-of-the-test",
            "prompt": "consent",
            "code_challenge_method": "S256",
            "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
        }
        endpoint = self.fetch(f"{issuer}/.well-known/openid-configuration")["authorization_endpoint"]
        return f"{endpoint}?{urlencode(query)}", verifier

    def sign_in(self, issuer: str, name: str) -> dict[str, Any]:
        """The answer of the token endpoint."""
        authorization, verifier = self.begin(issuer)
        with Visitor(self.ca_file) as visitor:
            back = read_query(visitor.sign_in(authorization, name, CALLBACK))
        assert back["state"] == "state-of-the-test"
        return self.exchange(issuer, grant_type="authorization_code", code=back["code"], verifier=verifier)

    def exchange(self, issuer: str, verifier: str = "", **form: str) -> dict[str, Any]:
        endpoint = self.fetch(f"{issuer}/.well-known/openid-configuration")["token_endpoint"]
        if verifier:
            form |= {"code_verifier": verifier, "redirect_uri": CALLBACK}
        found: dict[str, Any] = self._request("POST", endpoint, data=form, auth=(CLIENT.id, CLIENT.secret)).json()
        return found

    def _request(self, method: str, url: str, **options: Any) -> httpx.Response:
        with httpx.Client(verify=build_tls_context(self.ca_file), timeout=20) as client:
            return client.request(method, url, **options)


@pytest.fixture
def party(certificates: Certificates) -> RelyingParty:
    return RelyingParty(str(certificates.ca_file))


@pytest.fixture
def corp(node_provider: NodeProvider) -> Iterator[NodeProvider]:
    node_provider.set_clients(CLIENT)
    node_provider.set_account("ada", email="ada@corp.example", email_verified=True, groups=["developers"])
    yield node_provider


def read_claims(answer: dict[str, Any]) -> dict[str, Any]:
    claims: dict[str, Any] = jwt.decode(answer["id_token"], options={"verify_signature": False})
    return claims


def test_accounts_of_oidc_provider_sign_in_refresh_and_are_removed(corp: NodeProvider, party: RelyingParty) -> None:
    answer = party.sign_in(corp.issuer, "ada")
    assert read_claims(answer)["nonce"] == "nonce-of-the-test"
    assert "groups" not in read_claims(answer)

    corp.change(claimsInIdToken=True)
    corp.set_account("ada", groups=["developers", "operators"])
    refreshed = party.exchange(corp.issuer, grant_type="refresh_token", refresh_token=answer["refresh_token"])
    assert read_claims(refreshed)["groups"] == ["developers", "operators"]

    corp.remove_account("ada")
    refused = party.exchange(corp.issuer, grant_type="refresh_token", refresh_token=refreshed["refresh_token"])
    assert refused["error"] == "invalid_grant"


def test_oidc_provider_changes_its_keys_and_goes_away_for_a_while(corp: NodeProvider, party: RelyingParty) -> None:
    (first,) = party.fetch(f"{corp.issuer}/jwks")["keys"]
    corp.rotate_keys()
    assert first["kid"] in [key["kid"] for key in party.fetch(f"{corp.issuer}/jwks")["keys"][1:]]
    corp.stop()
    with pytest.raises(httpx.ConnectError):
        party.fetch(f"{corp.issuer}/jwks")
    corp.start()
    assert read_claims(party.sign_in(corp.issuer, "ada"))["sub"] == "ada"


def test_accounts_of_oidc_provider_mock_sign_in_refresh_and_are_revoked(
    mock_provider: MockProvider, party: RelyingParty
) -> None:
    mock_provider.set_account("bob", email="bob@corp.example", groups=["developers"])
    answer = party.sign_in(mock_provider.issuer, "bob")
    assert read_claims(answer)["groups"] == ["developers"]

    token = answer["refresh_token"]
    assert "access_token" in party.exchange(mock_provider.issuer, grant_type="refresh_token", refresh_token=token)
    mock_provider.revoke_tokens("bob")
    refused = party.exchange(mock_provider.issuer, grant_type="refresh_token", refresh_token=token)
    assert refused["error"] == "invalid_grant"


def test_the_forging_provider_is_right_without_instructions(forger: Forger, party: RelyingParty) -> None:
    forger.use(CLIENT)
    authorization, verifier = party.begin(forger.issuer)
    form = {"grant_type": "authorization_code", "code": forger.grant(authorization)}
    assert party.exchange(forger.issuer, verifier="another", **form)["error"] == "invalid_grant"

    form["code"] = forger.grant(authorization)
    token = party.exchange(forger.issuer, verifier=verifier, **form)["id_token"]
    keys = party.fetch(f"{forger.issuer}/jwks")["keys"]
    assert jwt.decode(token, jwt.PyJWK(keys[0]).key, ["RS256"], audience=CLIENT.id)["sub"] == "eve"
    assert party.exchange(forger.issuer, verifier=verifier, **form)["error"] == "invalid_grant"


def test_the_forging_provider_forges(forger: Forger, party: RelyingParty) -> None:
    forger.use(CLIENT)
    authorization, verifier = party.begin(forger.issuer)
    claims = forger.claims(authorization, sub="admin")
    forged = sign_with_public_key(claims, forger.key)
    code = forger.grant_token(authorization, forged)
    answer = party.exchange(forger.issuer, grant_type="authorization_code", code=code, verifier=verifier)
    assert answer["id_token"] == forged
    assert jwt.get_unverified_header(sign(claims, forger.key, kid="other"))["kid"] == "other"

    forger.answers["/jwks"] = Answer({"error": "broken"}, 500)
    assert party.fetch(f"{forger.issuer}/jwks") == {"error": "broken"}
    assert forger.count("/jwks") == 1
