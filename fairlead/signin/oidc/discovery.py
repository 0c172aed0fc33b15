"""The client for OpenID providers: their metadata (OpenID Connect Discovery 1.0), keys, and OAuth requests."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote_plus, urlencode

from fairlead.core.bounded_cache import BoundedCache
from fairlead.core.clock import Clock, SystemClock
from fairlead.core.objects import Object
from fairlead.signin.oidc.addresses import check_issuer_url, parse_url
from fairlead.signin.oidc.cached_document import CachedDocument, Lifetimes
from fairlead.signin.oidc.fetch import MAX_ISSUERS, MAX_RESPONSE_BYTES, Fetcher, Issuer, Request
from fairlead.signin.oidc.jwks import KeySet
from fairlead.signin.oidc.reasons import ProviderError, Reason

WELL_KNOWN = "/.well-known/openid-configuration"
METADATA_LIFETIMES = Lifetimes(max_age=3600.0)
KEY_LIFETIMES = Lifetimes(max_age=600.0)
RECENT_SECONDS = 5.0
_ENDPOINTS = (
    *("authorization_endpoint", "token_endpoint", "userinfo_endpoint", "end_session_endpoint"),
    *("revocation_endpoint", "device_authorization_endpoint"),
)


@dataclass(frozen=True, slots=True)
class Metadata:
    """The metadata of an issuer. All URLs are https; an endpoint that it does not have is an empty string."""

    issuer: str
    jwks_uri: str
    authorization_endpoint: str = ""
    token_endpoint: str = ""
    userinfo_endpoint: str = ""
    end_session_endpoint: str = ""
    revocation_endpoint: str = ""
    device_authorization_endpoint: str = ""
    sends_issuer: bool = False
    """Whether authorization responses have the parameter `iss` (RFC 9207)."""
    raw: Object = field(default_factory=dict, compare=False, repr=False)
    """The whole document, for lists such as `scopes_supported`. Its types are not checked."""


@dataclass(frozen=True, slots=True)
class _Documents:
    metadata: CachedDocument[Metadata]
    keys: CachedDocument[KeySet]


class ProviderClient:
    """Fetches and caches the documents of all issuers; sends requests to their endpoints. One per process."""

    def __init__(self, fetcher: Fetcher | None = None, clock: Clock | None = None) -> None:
        self._fetcher = fetcher or Fetcher()
        self._clock = clock or SystemClock()
        self._documents: BoundedCache[Issuer, _Documents] = BoundedCache(MAX_ISSUERS)

    async def discover(self, issuer: Issuer) -> Metadata:
        """Returns the metadata. Raises ProviderError."""
        return await self._documents_of(issuer).metadata.get()

    async def check_available(self, issuer: Issuer) -> Metadata:
        """Returns the metadata, fetched a few seconds ago at most. Raises ProviderError if the provider is down now."""
        return await self._documents_of(issuer).metadata.get_recent(RECENT_SECONDS)

    async def keys(self, issuer: Issuer, kid: str | None) -> KeySet:
        """Returns the keys of the issuer, fetched again if none has that id, though rarely. Raises ProviderError."""
        document = self._documents_of(issuer).keys
        keys = await document.get()
        return keys if kid is None or keys.has_key_id(kid) else await document.refresh()

    async def refresh_keys(self, issuer: Issuer) -> KeySet:
        """Returns the keys, fetched again unless that would be too often: a provider may reuse the id of a key."""
        return await self._documents_of(issuer).keys.refresh()

    async def post_form(
        self, url: str, form: Mapping[str, str], *, issuer: Issuer, basic_auth: tuple[str, str] | None = None
    ) -> Object:
        """Posts a form to an endpoint of the issuer. `basic_auth` is the client's id and secret.

        Raises ProviderError. If the provider sent an OAuth error, it has the code as `oauth_error`.
        """
        headers = {"content-type": "application/x-www-form-urlencoded"}
        if basic_auth is not None:
            headers["authorization"] = _basic_authorization(*basic_auth)
        request = Request("POST", url, headers, urlencode(form).encode(), MAX_RESPONSE_BYTES)
        return await self._fetcher.fetch_json(issuer, request)

    async def get_json(self, url: str, bearer: str, *, issuer: Issuer) -> Object:
        """Gets a JSON object with an access token, such as userinfo. Raises ProviderError."""
        if not bearer.isascii() or not bearer.isprintable():
            raise ProviderError(Reason.RESPONSE_INVALID, "the provider's access token has invalid characters")
        request = Request("GET", url, {"authorization": f"Bearer {bearer}"}, max_bytes=MAX_RESPONSE_BYTES)
        return await self._fetcher.fetch_json(issuer, request)

    def _documents_of(self, issuer: Issuer) -> _Documents:
        documents = self._documents.get(issuer)
        if documents is None:
            documents = self._documents[issuer] = _Documents(
                CachedDocument(lambda: self._load_metadata(issuer), self._clock.monotonic, METADATA_LIFETIMES),
                CachedDocument(lambda: self._load_keys(issuer), self._clock.monotonic, KEY_LIFETIMES),
            )
        return documents

    async def _load_metadata(self, issuer: Issuer) -> Metadata:
        check_issuer_url(issuer.url)
        document = await self._fetcher.fetch_json(issuer, Request("GET", issuer.url.removesuffix("/") + WELL_KNOWN))
        return parse_metadata(document, issuer.url)

    async def _load_keys(self, issuer: Issuer) -> KeySet:
        metadata = await self.discover(issuer)
        return KeySet.parse(await self._fetcher.fetch_json(issuer, Request("GET", metadata.jwks_uri)))


def parse_metadata(document: Object, issuer: str) -> Metadata:
    """Checks the metadata of an issuer. Raises ProviderError."""
    if document.get("issuer") != issuer:
        message = "the issuer in the provider's metadata is not exactly the configured one; check the final slash"
        raise ProviderError(Reason.ISSUER_MISMATCH, message)
    jwks_uri = document.get("jwks_uri")
    endpoints = {name: document[name] for name in _ENDPOINTS if document.get(name) not in (None, "")}
    for url in (jwks_uri, *endpoints.values()):
        parse_url(url)
    sends_issuer = document.get("authorization_response_iss_parameter_supported") is True
    return Metadata(issuer, str(jwks_uri), **endpoints, sends_issuer=sends_issuer, raw=document)


def _basic_authorization(client_id: str, secret: str) -> str:
    """Both parts are form-encoded first (RFC 6749 section 2.3.1)."""
    pair = f"{quote_plus(client_id)}:{quote_plus(secret)}"
    return "Basic " + base64.b64encode(pair.encode()).decode()
