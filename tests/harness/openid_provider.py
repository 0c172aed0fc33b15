"""An OpenID provider in memory, behind the real client for providers: no sockets, so it works on virtual time.

It issues codes, ID tokens, refresh tokens and userinfo. Tests change `users`, or replace what it answers.
"""

import secrets
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qsl, unquote_plus, urlsplit

from fairlead.core.clock import Clock
from fairlead.core.objects import Object
from fairlead.signin.oidc.discovery import ProviderClient
from fairlead.signin.oidc.errors import ProviderError, Reason
from fairlead.signin.oidc.fetch import Request
from fairlead.signin.oidc.issuer import Issuer
from tests.harness.openid_issuer import access_token_hash, public_jwk, sign

CLIENT_ID, CLIENT_SECRET = "fairlead", "provider-s3cret"
ID_TOKEN_SECONDS = 3600
LOGOUT_EVENT = "http://schemas.openid.net/event/backchannel-logout"


def parse_query(url: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(url).query))


class FakeProvider:
    """`users` has the claims by subject. `change_token` changes the claims of ID tokens before they are signed."""

    def __init__(self, url: str, clock: Clock) -> None:
        self.url = url
        self.users: dict[str, Object] = {"1": {"preferred_username": "alice", "name": "Alice", "groups": []}}
        self.metadata: Object = {
            "end_session_endpoint": f"{url}/logout",
            "authorization_response_iss_parameter_supported": True,
        }
        self.userinfo_claims: tuple[str, ...] = ()
        """Claims that are only in userinfo."""
        self.issues_refresh_tokens = True
        self.rotates_refresh_tokens = True
        self.issues_id_tokens_on_refresh = True
        self.client_secret: str | None = CLIENT_SECRET
        self.change_token: Callable[[Object], Object] = lambda claims: claims
        self.change_response: Callable[[Object], Object] = lambda response: response
        self.failure: ProviderError | None = None
        self.requests: list[tuple[str, Mapping[str, str]]] = []
        self.refreshes = 0
        self._clock = clock
        self._codes: dict[str, dict[str, str]] = {}
        self.refresh_tokens: dict[str, str] = {}
        self._access_tokens: dict[str, str] = {}

    def authorize(self, url: str, subject: str = "1") -> dict[str, str]:
        """Signs a user in at the authorization URL, and returns the parameters of the redirect to the callback."""
        sent = parse_query(url)
        code = secrets.token_urlsafe(16)
        self._codes[code] = {**sent, "sub": subject}
        return {"code": code, "state": sent["state"], "iss": self.url}

    def revoke_tokens(self, subject: str) -> None:
        self.refresh_tokens = {token: sub for token, sub in self.refresh_tokens.items() if sub != subject}

    def logout_token(self, **changes: Any) -> str:
        now = int(self._clock.now().timestamp())
        claims = {
            "iss": self.url,
            "aud": CLIENT_ID,
            "iat": now,
            "exp": now + 120,
            "jti": secrets.token_hex(8),
            "sub": "1",
            "events": {LOGOUT_EVENT: {}},
            **changes,
        }
        retained = {name: value for name, value in claims.items() if value is not None}
        return sign(retained, header={"typ": "logout+jwt"})

    def respond(self, request: Request) -> Object:
        if self.failure is not None:
            raise self.failure
        path, form = request.url.removeprefix(self.url), dict(parse_qsl(request.body.decode()))
        self.requests.append((path, form))
        match path:
            case "/.well-known/openid-configuration":
                return self._discovery_document()
            case "/keys":
                return {"keys": [public_jwk()]}
            case "/token":
                return self.change_response(self._issue(form, request.headers))
            case "/userinfo":
                subject = self._access_tokens[request.headers["authorization"].removeprefix("Bearer ")]
                return {"sub": subject, **self.users[subject]}
        raise AssertionError(f"unexpected request: {request.method} {path}")

    def _discovery_document(self) -> Object:
        endpoints = {"authorization": "authorize", "token": "token", "userinfo": "userinfo"}
        urls = {f"{name}_endpoint": f"{self.url}/{path}" for name, path in endpoints.items()}
        document = {"issuer": self.url, "jwks_uri": f"{self.url}/keys", **urls, **self.metadata}
        return {name: value for name, value in document.items() if value is not None}

    def _issue(self, form: Mapping[str, str], headers: Mapping[str, str]) -> Object:
        self._check_client(form, headers)
        if form["grant_type"] == "refresh_token":
            self.refreshes += 1
            subject = self.refresh_tokens.get(form["refresh_token"], "")
            if self.rotates_refresh_tokens:
                self.refresh_tokens.pop(form["refresh_token"], None)
            if subject not in self.users:
                raise oauth_error("invalid_grant")
            return self._tokens(subject, None)
        sent = self._codes.pop(form["code"], None)
        challenge = urlsafe_b64encode(sha256(form["code_verifier"].encode()).digest()).decode().rstrip("=")
        if sent is None or challenge != sent["code_challenge"] or form["redirect_uri"] != sent["redirect_uri"]:
            raise oauth_error("invalid_grant")
        return self._tokens(sent["sub"], sent["nonce"])

    def _check_client(self, form: Mapping[str, str], headers: Mapping[str, str]) -> None:
        secret = form.get("client_secret")
        if basic := headers.get("authorization", ""):
            secret = unquote_plus(b64decode(basic.removeprefix("Basic ")).decode().partition(":")[2])
        if secret != self.client_secret:
            raise oauth_error("invalid_client")

    def _tokens(self, subject: str, nonce: str | None) -> Object:
        access_token, now = secrets.token_urlsafe(16), int(self._clock.now().timestamp())
        self._access_tokens[access_token] = subject
        user = {name: value for name, value in self.users[subject].items() if name not in self.userinfo_claims}
        claims = {
            "iss": self.url,
            "sub": subject,
            "aud": CLIENT_ID,
            "iat": now,
            "exp": now + ID_TOKEN_SECONDS,
            "at_hash": access_token_hash(access_token),
            "sid": f"session-{subject}",
            **({"nonce": nonce} if nonce is not None else {}),
            **user,
        }
        response: Object = {"access_token": access_token, "token_type": "Bearer"}
        if nonce is not None or self.issues_id_tokens_on_refresh:
            response["id_token"] = sign(self.change_token(claims))
        if self.issues_refresh_tokens and (nonce is not None or self.rotates_refresh_tokens):
            response["refresh_token"] = secrets.token_urlsafe(16)
            self.refresh_tokens[response["refresh_token"]] = subject
        return response


def oauth_error(code: str) -> ProviderError:
    return ProviderError(Reason.PROVIDER_STATUS, "the provider responded with an error", status=400, oauth_error=code)


def unreachable() -> ProviderError:
    return ProviderError(Reason.PROVIDER_UNREACHABLE, "the provider is unreachable")


class FakeFetcher:
    """Sends requests to providers in memory, by their URL."""

    def __init__(self, *providers: FakeProvider) -> None:
        self.providers = {each.url: each for each in providers}

    async def fetch_json(self, issuer: Issuer, request: Request) -> Object:
        return self.providers[issuer.url].respond(request)


def provider_client(clock: Clock, *providers: FakeProvider) -> ProviderClient:
    return ProviderClient(FakeFetcher(*providers), clock)  # type: ignore[arg-type]
