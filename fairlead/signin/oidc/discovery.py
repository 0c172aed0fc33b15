"""The client for OpenID providers: their metadata (OpenID Connect Discovery 1.0), keys, and OAuth requests.

A document of a provider is fetched when needed, shared by all that wait for it, and kept while the provider is down. It
is fetched again when it is older than `max_age`. If that fails, the last good one is used for up to `keep` seconds, and
further attempts are `retry` seconds apart. `refresh` fetches a document that seems to be outdated; clients can provoke
that with forged tokens, so it happens at most `BURST` times, and then once in `refill` seconds.

Of the keys (JWKS, RFC 7517), only the public parameters are read, and a key is used with one algorithm only: the one
that the token names, if the key's type, curve, `alg`, `use` and `key_ops` allow it. Keys that cannot be used are
ignored, as the RFC demands, but a set that is too large is an error, so that the last good set stays in use.
"""

import asyncio
import base64
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar
from urllib.parse import quote_plus, urlencode

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from fairlead.core.bounded_cache import BoundedCache
from fairlead.core.clock import Clock, SystemClock
from fairlead.core.objects import Object
from fairlead.signin.oidc.errors import ProviderError, Reason, TokenRejected
from fairlead.signin.oidc.fetch import MAX_ISSUERS, MAX_RESPONSE_BYTES, Fetcher, Request, check_issuer_url, parse_url
from fairlead.signin.oidc.issuer import Issuer

T = TypeVar("T")
BURST = 3


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """Seconds."""

    max_age: float
    keep: float = 24 * 3600.0
    retry: float = 5.0
    refill: float = 30.0


class CachedDocument(Generic[T]):
    """One document. `load` fetches and checks it, and raises ProviderError."""

    def __init__(self, load: Callable[[], Awaitable[T]], monotonic: Callable[[], float], lifetimes: Lifetimes) -> None:
        self._load = load
        self._monotonic = monotonic
        self._lifetimes = lifetimes
        self._value: T | None = None
        self._loaded_at = 0.0
        self._error: ProviderError | None = None
        self._failed_at = 0.0
        self._task: asyncio.Task[T] | None = None
        self._allowance = float(BURST)
        self._allowance_at = monotonic()

    async def get(self) -> T:
        """Returns the document. Raises ProviderError if there is none."""
        now = self._monotonic()
        value, age = self._value, now - self._loaded_at
        if value is not None and age < self._lifetimes.max_age:
            return value
        if self._error is not None and now - self._failed_at < self._lifetimes.retry:
            return self._last_good(self._error)
        try:
            return await self._fetch()
        except ProviderError as error:
            return self._last_good(error)

    async def get_recent(self, seconds: float) -> T:
        """Returns a document of at most that age. Raises ProviderError if there is only an older one."""
        now = self._monotonic()
        if self._value is not None and now - self._loaded_at < seconds:
            return self._value
        if self._error is not None and now - self._failed_at < self._lifetimes.retry:
            raise _copy(self._error)
        return await self._fetch()

    async def refresh(self) -> T:
        """Returns a document that was just fetched, or the last good one if that failed or would be too often."""
        if self._task is None and not self._take_allowance():
            return await self.get()
        try:
            return await self._fetch()
        except ProviderError as error:
            return self._last_good(error)

    def _take_allowance(self) -> bool:
        now = self._monotonic()
        gained = (now - self._allowance_at) / self._lifetimes.refill
        self._allowance, self._allowance_at = min(float(BURST), self._allowance + gained), now
        if self._allowance < 1:
            return False
        self._allowance -= 1
        return True

    def _last_good(self, error: ProviderError) -> T:
        if self._value is None or self._monotonic() - self._loaded_at >= self._lifetimes.keep:
            raise _copy(error)
        return self._value

    async def _fetch(self) -> T:
        """Joins the running fetch, or starts one. It goes on if this caller is cancelled."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
            self._task.add_done_callback(_mark_retrieved)
        return await asyncio.shield(self._task)

    async def _run(self) -> T:
        try:
            self._value = await self._load()
            self._loaded_at, self._error = self._monotonic(), None
            return self._value
        except ProviderError as error:
            self._error, self._failed_at = error, self._monotonic()
            raise
        finally:
            self._task = None


def _copy(error: ProviderError) -> ProviderError:
    """A new exception for each caller: a traceback grows with each raise."""
    return ProviderError(error.reason, str(error), status=error.status, oauth_error=error.oauth_error)


def _mark_retrieved(task: "asyncio.Task[T]") -> None:
    if not task.cancelled():
        task.exception()


MAX_KEYS = 100
MAX_KEY_ID_LENGTH = 1_024
MAX_PARAMETER_LENGTH = 4_096
"""Of one parameter of a key, in base64url: enough for RSA keys of 16,384 bits, which are then rejected by size."""
RSA_BITS = range(2_048, 8_193)
"""Short keys can be broken; verifying with longer ones takes long."""
MAX_RSA_EXPONENT_BITS = 33
_CURVES = {"ES256": ("P-256",), "ES384": ("P-384",), "ES512": ("P-521",), "EdDSA": ("Ed25519", "Ed448")}
_PUBLIC_PARAMETERS = {"RSA": ("n", "e"), "EC": ("crv", "x", "y"), "OKP": ("crv", "x")}


@dataclass(frozen=True, slots=True)
class VerificationKey:
    """A public key, bound to one algorithm. `curve` is empty for RSA."""

    jwk: jwt.PyJWK
    algorithm: str
    curve: str


@dataclass(frozen=True, slots=True)
class KeySet:
    """The keys of an issuer, as published. Keys are parsed when they are used first."""

    published: tuple[Object, ...]
    parsed: dict[tuple[int, str], VerificationKey] = field(default_factory=dict, compare=False, repr=False)

    @staticmethod
    def parse(document: Object) -> "KeySet":
        """Raises ProviderError unless the document is a key set of an acceptable size."""
        keys = document.get("keys")
        if not isinstance(keys, list) or len(keys) > MAX_KEYS:
            message = f"the key set of the provider must be a list of at most {MAX_KEYS} keys"
            raise ProviderError(Reason.JWKS_INVALID, message)
        usable = tuple(each for each in keys if isinstance(each, dict) and _is_plain(each))
        if not usable:
            raise ProviderError(Reason.JWKS_INVALID, "the key set of the provider has no usable key")
        return KeySet(usable)

    def has_key_id(self, kid: str) -> bool:
        return any(each.get("kid") == kid for each in self.published)

    def find(self, kid: str | None, algorithm: str) -> VerificationKey:
        """Returns the key for a token. Without a key id, it must be the only one for that algorithm."""
        named = [place for place, each in enumerate(self.published) if kid is None or each.get("kid") == kid]
        if not named:
            raise TokenRejected(Reason.UNKNOWN_KEY, "the provider has no key with the token's key id")
        fitting = [place for place in named if _fits(self.published[place], algorithm)]
        if len(fitting) != 1:
            message = "the provider has no key, or several, for the token's key id and algorithm"
            raise TokenRejected(Reason.UNKNOWN_KEY, message)
        place = fitting[0]
        key = self.parsed.get((place, algorithm))
        if key is None:
            key = self.parsed[(place, algorithm)] = _parse_key(self.published[place], algorithm)
        return key


def _is_plain(key: Object) -> bool:
    """Whether the key has a known type, and all its public parameters as strings of an acceptable length."""
    names = _PUBLIC_PARAMETERS.get(key["kty"]) if isinstance(key.get("kty"), str) else None
    if names is None:
        return False
    kid = key.get("kid")
    if kid is not None and not (isinstance(kid, str) and len(kid) <= MAX_KEY_ID_LENGTH):
        return False
    return all(isinstance(key.get(name), str) and 0 < len(key[name]) <= MAX_PARAMETER_LENGTH for name in names)


def _fits(key: Mapping[str, object], algorithm: str) -> bool:
    """Whether the key may verify signatures with this algorithm."""
    if key.get("use") not in (None, "sig") or key.get("alg") not in (None, *_names_of(algorithm, key)):
        return False
    operations = key.get("key_ops")
    if operations is not None and not (isinstance(operations, list) and "verify" in operations):
        return False
    if algorithm.startswith(("RS", "PS")):
        return key["kty"] == "RSA"
    kind = "OKP" if algorithm == "EdDSA" else "EC"
    return key["kty"] == kind and key.get("crv") in _CURVES.get(algorithm, ())


def _names_of(algorithm: str, key: Mapping[str, object]) -> tuple[str, ...]:
    """How a key may name the algorithm: RFC 9864 has names for EdDSA with a curve."""
    return (algorithm, str(key.get("crv"))) if algorithm == "EdDSA" else (algorithm,)


def _parse_key(key: Object, algorithm: str) -> VerificationKey:
    public = {name: key[name] for name in ("kty", *_PUBLIC_PARAMETERS[key["kty"]])}
    try:
        parsed = jwt.PyJWK(public, algorithm)
    except (jwt.PyJWTError, ValueError, TypeError, OverflowError):
        raise TokenRejected(Reason.UNUSABLE_KEY, "the provider's key cannot be parsed") from None
    if isinstance(parsed.key, RSAPublicKey):
        exponent = parsed.key.public_numbers().e
        if parsed.key.key_size not in RSA_BITS or exponent.bit_length() > MAX_RSA_EXPONENT_BITS:
            raise TokenRejected(Reason.UNUSABLE_KEY, "the provider's RSA key is too short or too long")
    return VerificationKey(parsed, algorithm, public.get("crv", ""))


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
