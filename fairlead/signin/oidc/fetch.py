"""Bounded HTTPS requests to OpenID providers.

A request takes at most five seconds in all, from the DNS lookup to the last byte, and its response has a size limit.
Redirects are errors. The host name is resolved once, its addresses are checked, and the connection goes to one of
those addresses, with the certificate verified for the host name: DNS rebinding has no effect. Proxies, netrc and other
settings of the environment are not used.

A slow provider delays nothing else: each issuer has its own limit of concurrent requests, and a host name that does not
resolve occupies a single thread.

Providers are chosen by administrators and often have private addresses, so those are allowed. Link-local addresses and
the metadata services of clouds never are: no provider is there, and their responses contain credentials. Loopback
addresses are allowed only for issuers with `allow_loopback`.
"""

import asyncio
import contextlib
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any

import httpx

from fairlead.core import json
from fairlead.core.addresses import all_forms, is_no_host, is_protected
from fairlead.core.body_errors import Malformed
from fairlead.core.bounded_cache import BoundedCache
from fairlead.core.objects import Object
from fairlead.core.pinned_https import (
    Message,
    Target,
    build_ssl_context,
    find_tls_cause,
    iter_body,
    open_response,
    parse_https_url,
)
from fairlead.signin.oidc.errors import ProviderError, Reason
from fairlead.signin.oidc.issuer import Issuer

TIMEOUT_SECONDS = 5.0
MAX_DOCUMENT_BYTES = 256 * 1024
"""Limit for metadata and key sets."""
MAX_RESPONSE_BYTES = 1024 * 1024
"""Limit for responses of the token and userinfo endpoints, which may contain thousands of groups."""
MAX_CONCURRENT_REQUESTS = 16
"""Per issuer. Further requests wait, and their timeout runs."""
MAX_ISSUERS = 256
MAX_ADDRESSES = 3
"""How many addresses of a host are tried."""
RESOLVER_THREADS = 16

_OAUTH_ERROR = re.compile(r"[a-z_]{1,64}", re.ASCII)
# The whole request has one limit; this one leaves time for the next address.
_TIMEOUTS = httpx.Timeout(None, connect=2.0)

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Resolves host and port to addresses. Raises OSError."""


def parse_url(url: object) -> Target:
    """Splits an https URL. Raises ProviderError for anything else: other schemes, user names, fragments, spaces."""
    target = parse_https_url(url)
    if target is None:
        message = "the URL must be an https URL without user name, fragment and white space"
        raise ProviderError(Reason.ISSUER_URL, message)
    return target


def check_issuer_url(url: str) -> None:
    """Raises ProviderError unless the URL can be that of an issuer: an https URL without query and fragment."""
    parse_url(url)
    if "?" in url:
        raise ProviderError(Reason.ISSUER_URL, "the issuer URL must not have a query")


def check_address(text: str, *, allow_loopback: bool) -> None:
    """Raises ProviderError if the address must not be fetched."""
    for address in all_forms(ip_address(text)):
        if is_no_host(address) or is_protected(address):
            raise ProviderError(Reason.ADDRESS_BLOCKED, "the provider's address is link-local or not that of a host")
        if address.is_loopback and not allow_loopback:
            raise ProviderError(Reason.ADDRESS_BLOCKED, "the provider's address is a loopback address")


@dataclass(frozen=True, slots=True)
class Request:
    """A request to a URL of an issuer. Its headers and its body contain credentials."""

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes = field(default=b"", repr=False)
    max_bytes: int = MAX_DOCUMENT_BYTES


class Fetcher:
    """Sends requests. `resolve` replaces the DNS lookups."""

    def __init__(self, resolve: Resolve | None = None, *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._resolve = resolve or _Resolver()
        self._timeout = timeout_seconds
        self._contexts: BoundedCache[str, ssl.SSLContext] = BoundedCache(MAX_ISSUERS)
        self._limits: BoundedCache[str, asyncio.Semaphore] = BoundedCache(MAX_ISSUERS)

    async def fetch_json(self, issuer: Issuer, request: Request) -> Object:
        """Returns the JSON object of a response with status 200. Raises ProviderError."""
        status, body = await self.fetch(issuer, request)
        if status != httpx.codes.OK:
            raise _status_error(status, body)
        return _parse_object(body)

    async def fetch(self, issuer: Issuer, request: Request) -> tuple[int, bytes]:
        """Returns the status and the body. Redirects are errors. Raises ProviderError."""
        target = parse_url(request.url)
        try:
            async with asyncio.timeout(self._timeout), self._limit(issuer):
                return await self._send(issuer, target, request)
        except TimeoutError:
            raise ProviderError(Reason.PROVIDER_TIMEOUT, "the provider did not respond in time") from None

    def _limit(self, issuer: Issuer) -> asyncio.Semaphore:
        limit = self._limits.get(issuer.url)
        if limit is None:
            limit = self._limits[issuer.url] = asyncio.Semaphore(MAX_CONCURRENT_REQUESTS)
        return limit

    async def _send(self, issuer: Issuer, target: Target, request: Request) -> tuple[int, bytes]:
        context = await self._ssl_context(issuer)
        addresses = await self._find_addresses(issuer, target)
        failure = ProviderError(Reason.PROVIDER_UNREACHABLE, "the provider is unreachable")
        for address in addresses:
            try:
                return await _request(address, target, request, context)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                failure = _connect_error(error)
        raise failure

    async def _find_addresses(self, issuer: Issuer, target: Target) -> list[str]:
        try:
            found = await self._resolve(target.host, target.port)
        except (OSError, UnicodeError):
            found = ()
        if not found:
            raise ProviderError(Reason.PROVIDER_UNREACHABLE, "the provider's host name does not resolve")
        # One forbidden address is enough: a name of a provider does not point there by accident.
        for address in found:
            check_address(address, allow_loopback=issuer.allow_loopback)
        return list(found)[:MAX_ADDRESSES]

    async def _ssl_context(self, issuer: Issuer) -> ssl.SSLContext:
        context = self._contexts.get(issuer.ca_pem)
        if context is None:
            # In a thread: reading the certificate authorities of the system takes many milliseconds.
            context = await asyncio.to_thread(_build_ssl_context, issuer.ca_pem)
            self._contexts[issuer.ca_pem] = context
        return context


class _Resolver:
    """Resolves host names in threads of its own. Concurrent lookups of one host share a thread."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(RESOLVER_THREADS, "oidc-resolve")
        self._lookups: dict[tuple[str, int], asyncio.Future[list[str]]] = {}

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        key = (host, port)
        lookup = self._lookups.get(key)
        if lookup is None or lookup.get_loop() is not asyncio.get_running_loop():
            lookup = asyncio.get_running_loop().run_in_executor(self._executor, _getaddrinfo, host, port)
            self._lookups[key] = lookup
            lookup.add_done_callback(lambda done: self._forget(key, done))
        # A lookup that outlives the timeout of its request stays here, so that retries do not occupy more threads.
        return await asyncio.shield(lookup)

    def _forget(self, key: tuple[str, int], done: asyncio.Future[list[str]]) -> None:
        if self._lookups.get(key) is done:
            del self._lookups[key]
        if not done.cancelled():
            done.exception()  # the request may be gone


def _getaddrinfo(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def _build_ssl_context(ca_pem: str) -> ssl.SSLContext:
    try:
        return build_ssl_context(ca_pem)
    except (ssl.SSLError, ValueError):
        raise ProviderError(Reason.PROVIDER_TLS, "the CA of the provider is not a PEM certificate") from None


async def _request(address: str, target: Target, request: Request, context: ssl.SSLContext) -> tuple[int, bytes]:
    """Sends the request to that address. Raises ProviderError, or httpx' errors if there is no connection yet."""
    headers = {"accept": "application/json", **request.headers}
    message = Message(target, _TIMEOUTS, request.method, headers, request.body)
    try:
        async with open_response(message, address, context) as response:
            return response.status_code, await _read_body(response, request.max_bytes)
    except (httpx.ConnectError, httpx.ConnectTimeout):
        raise
    except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, ssl.SSLError, OSError):
        raise ProviderError(Reason.PROVIDER_UNREACHABLE, "the connection to the provider failed") from None


async def _read_body(response: httpx.Response, max_bytes: int) -> bytes:
    if 300 <= response.status_code < 400:
        raise ProviderError(
            Reason.PROVIDER_REDIRECT, "the provider redirects, which is not followed", status=response.status_code
        )
    if response.headers.get("content-encoding", "identity") != "identity":
        raise ProviderError(Reason.RESPONSE_INVALID, "the provider compressed its response, unasked")
    body = bytearray()
    async for chunk in iter_body(response):
        body += chunk
        if len(body) > max_bytes:
            raise ProviderError(Reason.RESPONSE_TOO_LARGE, f"the provider's response is over {max_bytes} bytes")
    return bytes(body)


def _connect_error(error: httpx.ConnectError | httpx.ConnectTimeout) -> ProviderError:
    if isinstance(error, httpx.ConnectTimeout):
        return ProviderError(Reason.PROVIDER_TIMEOUT, "the provider did not respond in time")
    cause = find_tls_cause(error)
    if cause is None:
        return ProviderError(Reason.PROVIDER_UNREACHABLE, "the provider is unreachable")
    if isinstance(cause, ssl.SSLCertVerificationError):
        return ProviderError(Reason.PROVIDER_TLS, f"the provider's certificate is not valid: {cause.verify_message}")
    return ProviderError(Reason.PROVIDER_TLS, "the TLS handshake with the provider failed")


def _status_error(status: int, body: bytes) -> ProviderError:
    oauth_error: Any = ""
    with contextlib.suppress(ProviderError):
        oauth_error = _parse_object(body).get("error")
    code = oauth_error if isinstance(oauth_error, str) and _OAUTH_ERROR.fullmatch(oauth_error) else ""
    message = f"the provider responded with status {status}" + (f" ({code})" if code else "")
    return ProviderError(Reason.PROVIDER_STATUS, message, status=status, oauth_error=code)


def _parse_object(body: bytes) -> Object:
    try:
        value = json.decode(body)
    except Malformed:
        value = None
    if not isinstance(value, dict):
        raise ProviderError(Reason.RESPONSE_INVALID, "the provider's response is not a JSON object")
    return value
