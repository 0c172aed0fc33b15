"""The requests of a sign-on to its provider: authorization, redemption of the code, refresh, logout.

Tokens are verified by `signin/oidc/tokens.py`. Every failure becomes a `SignOnRefused` with a fixed reason. During a
refresh, `GrantRevoked` says that the provider ended the session, and `ProviderError` that it could not be asked.
"""

from base64 import b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from fairlead.authn.sign_on_policy import SignOnReason
from fairlead.authn.sign_on_settings import Connector
from fairlead.core.errors import NotFound
from fairlead.core.objects import Object
from fairlead.registry.codec import decode
from fairlead.registry.registry import Registry
from fairlead.signin.oidc.discovery import Metadata, ProviderClient
from fairlead.signin.oidc.errors import ProviderError, Reason, TokenRejected
from fairlead.signin.oidc.issuer import Issuer
from fairlead.signin.oidc.tokens import Claims, Provider, verify_id_token, verify_logout_token
from fairlead.signin.sso.identity import missing_claims
from fairlead.signin.sso.pending import PendingSignOn
from fairlead.signin.sso.reasons import SignOnRefused

MAX_TOKEN_LENGTH = 16 * 1024

_MISCONFIGURED = frozenset(
    {
        *(Reason.ISSUER_URL, Reason.ADDRESS_BLOCKED, Reason.ISSUER_MISMATCH, Reason.JWKS_INVALID),
        *(Reason.RESPONSE_INVALID, Reason.RESPONSE_TOO_LARGE, Reason.PROVIDER_REDIRECT, Reason.PROVIDER_TLS),
    }
)
_CLIENT_ERRORS = frozenset({"invalid_client", "unauthorized_client", "unsupported_grant_type", "invalid_scope"})


class GrantRevoked(Exception):
    """The provider does not accept the refresh token any more: the user is gone, or has signed out there."""


@dataclass(frozen=True, slots=True)
class TokenSet:
    """Verified claims, and the tokens that were issued with them. `claims` is None if a refresh returned none."""

    claims: Claims | None
    userinfo: Mapping[str, Any] | None = None
    refresh_token: str = field(default="", repr=False)
    id_token: str = field(default="", repr=False)


class ProviderAccess:
    def __init__(self, client: ProviderClient, registry: Registry) -> None:
        self._client = client
        self._secrets = registry.resource("", "secrets")
        self._clock = registry.clock

    async def authorization_url(self, connector: Connector, redirect_uri: str, pending: PendingSignOn) -> str:
        """The address at the provider to which the browser is sent. Raises SignOnRefused."""
        try:  # a browser should not be sent to a provider that is down
            metadata = await self._client.check_available(issuer_of(connector))
        except ProviderError as error:
            raise refusal_of(error) from None
        if not metadata.authorization_endpoint or not metadata.token_endpoint:
            raise SignOnRefused(SignOnReason.PROVIDER_MISCONFIGURED, "the provider has no authorization endpoint")
        client = connector.client
        challenge = urlsafe_b64encode(sha256(pending.verifier.encode()).digest()).decode().rstrip("=")
        parameters = {
            **client.extra_parameters,
            "response_type": "code",
            "client_id": client.id,
            "redirect_uri": redirect_uri,
            "scope": " ".join(client.scopes),
            "state": pending.state,
            "nonce": pending.nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        if client.prompt:
            parameters["prompt"] = client.prompt
        return _with_query(metadata.authorization_endpoint, parameters)

    async def check_response_issuer(self, connector: Connector, issuer: str | None) -> None:
        """Compares the `iss` of an authorization response (RFC 9207). Raises SignOnRefused."""
        metadata = await self._discover(connector)
        if (issuer is None and metadata.sends_issuer) or (issuer is not None and issuer != connector.issuer):
            raise SignOnRefused(SignOnReason.ISSUER_MISMATCH)

    async def redeem_code(
        self, connector: Connector, redirect_uri: str, pending: PendingSignOn, code: str, compared: frozenset[str]
    ) -> TokenSet:
        """Exchanges the code for tokens, and verifies them. Raises SignOnRefused."""
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": pending.verifier,
        }
        try:
            response = await self._post_token(connector, form)
        except ProviderError as error:
            rejected = SignOnRefused(SignOnReason.CODE_REJECTED) if error.oauth_error == "invalid_grant" else None
            raise rejected or refusal_of(error) from None
        id_token = _text(response, "id_token")
        access_token = _text(response, "access_token")
        if not id_token:
            raise SignOnRefused(SignOnReason.TOKEN_REJECTED, "the response has no ID token")
        try:
            claims = await self._verify(connector, id_token, access_token, pending.nonce)
            userinfo = await self._userinfo(connector, claims, claims.subject, access_token, compared)
        except TokenRejected as error:
            raise SignOnRefused(SignOnReason.TOKEN_REJECTED, error.reason.value) from None
        except ProviderError as error:
            raise refusal_of(error) from None
        return TokenSet(claims, userinfo, _text(response, "refresh_token"), id_token)

    async def refresh(
        self, connector: Connector, refresh_token: str, subject: str, compared: frozenset[str]
    ) -> TokenSet:
        """Redeems a refresh token. Raises GrantRevoked, ProviderError, or SignOnRefused for another identity."""
        try:
            response = await self._post_token(
                connector, {"grant_type": "refresh_token", "refresh_token": refresh_token}
            )
        except ProviderError as error:
            if error.oauth_error == "invalid_grant":
                raise GrantRevoked from None
            raise
        id_token = _text(response, "id_token")
        access_token = _text(response, "access_token")
        try:
            claims = await self._verify(connector, id_token, access_token, None) if id_token else None
            if claims is not None and claims.subject != subject:
                raise SignOnRefused(SignOnReason.TOKEN_REJECTED, Reason.INVALID_SUBJECT.value)
            userinfo = await self._userinfo(connector, claims, subject, access_token, compared)
        except TokenRejected as error:
            raise SignOnRefused(SignOnReason.TOKEN_REJECTED, error.reason.value) from None
        return TokenSet(claims, userinfo, _text(response, "refresh_token"), id_token)

    async def verify_logout(self, connector: Connector, token: str) -> Claims:
        """The claims of a logout token. Raises TokenRejected or ProviderError."""
        provider = Provider(self._client, issuer_of(connector))
        return await verify_logout_token(provider, token, client_id=connector.client.id, now=self._clock.now())

    async def logout_url(self, connector: Connector, id_token: str, return_url: str) -> str:
        """The address that ends the session at the provider. Empty if it has none, or is unavailable."""
        try:
            metadata = await self._client.discover(issuer_of(connector))
        except ProviderError:
            return ""
        if not metadata.end_session_endpoint:
            return ""
        hint = {"id_token_hint": id_token} if id_token else {}
        parameters = {**hint, "client_id": connector.client.id, "post_logout_redirect_uri": return_url}
        return _with_query(metadata.end_session_endpoint, parameters)

    async def _discover(self, connector: Connector) -> Metadata:
        try:
            return await self._client.discover(issuer_of(connector))
        except ProviderError as error:
            raise refusal_of(error) from None

    async def _verify(self, connector: Connector, id_token: str, access_token: str, nonce: str | None) -> Claims:
        return await verify_id_token(
            Provider(self._client, issuer_of(connector)),
            id_token,
            client_id=connector.client.id,
            nonce=nonce,
            now=self._clock.now(),
            access_token=access_token or None,
        )

    async def _userinfo(
        self, connector: Connector, claims: Claims | None, subject: str, access_token: str, compared: frozenset[str]
    ) -> Mapping[str, Any] | None:
        """Userinfo, only if the ID token lacks a claim. It must be about the same subject."""
        if not access_token or not missing_claims(connector, claims or {}, compared):
            return None
        metadata = await self._client.discover(issuer_of(connector))
        if not metadata.userinfo_endpoint:
            return None
        found = await self._client.get_json(metadata.userinfo_endpoint, access_token, issuer=issuer_of(connector))
        if found.get("sub") != subject:
            raise SignOnRefused(SignOnReason.USERINFO_REJECTED, "it is about another subject")
        return found

    async def _post_token(self, connector: Connector, form: Mapping[str, str]) -> Object:
        metadata = await self._client.discover(issuer_of(connector))
        client = connector.client
        sent, basic = {**form, "client_id": client.id}, None
        if client.secret is not None:
            secret = await self._client_secret(connector)
            if _uses_basic(client.auth_method, metadata):
                basic = (client.id, secret)
            else:
                sent["client_secret"] = secret
        return await self._client.post_form(
            metadata.token_endpoint, sent, issuer=issuer_of(connector), basic_auth=basic
        )

    async def _client_secret(self, connector: Connector) -> str:
        """The current client secret. It is read on each use, so it can be replaced at any time."""
        reference = connector.client.secret
        assert reference is not None
        try:
            secret = decode(await self._secrets.get(reference.namespace, reference.name))
            value = b64decode((secret.get("data") or {}).get(reference.key) or "", validate=True).decode()
        except (NotFound, NotBase64, UnicodeDecodeError):
            value = ""
        if not value:
            where = f"{reference.namespace}/{reference.name}, key {reference.key}"
            raise SignOnRefused(SignOnReason.CLIENT_SECRET_MISSING, where)
        return value.strip("\r\n")


def issuer_of(connector: Connector) -> Issuer:
    return Issuer(connector.issuer, connector.ca_pem, connector.allow_loopback, connector.algorithms)


def refusal_of(error: ProviderError) -> SignOnRefused:
    """The reason of a failed request, for users."""
    if error.oauth_error in _CLIENT_ERRORS or error.reason in _MISCONFIGURED:
        reason = SignOnReason.PROVIDER_MISCONFIGURED
    elif error.oauth_error:
        reason = SignOnReason.PROVIDER_ERROR
    else:
        reason = SignOnReason.PROVIDER_UNAVAILABLE
    return SignOnRefused(reason, error.reason.value)


def _uses_basic(method: str, metadata: Metadata) -> bool:
    if method:
        return method == "client_secret_basic"
    supported = metadata.raw.get("token_endpoint_auth_methods_supported")
    return (
        not isinstance(supported, list) or "client_secret_basic" in supported or "client_secret_post" not in supported
    )


def _text(response: Object, name: str) -> str:
    value = response.get(name)
    return value if isinstance(value, str) and len(value) <= MAX_TOKEN_LENGTH else ""


def _with_query(url: str, parameters: Mapping[str, str]) -> str:
    """The URL with these parameters in addition to its own. An endpoint cannot preset one that the server sets."""
    parts = urlsplit(url)
    own = [(name, value) for name, value in parse_qsl(parts.query, keep_blank_values=True) if name not in parameters]
    return urlunsplit(parts._replace(query=urlencode([*own, *parameters.items()]), fragment=""))
