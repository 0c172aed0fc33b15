"""The HTTP client for chart repositories and registries.

Their URLs come from users, and so does everything that they answer: redirects, URLs in an index, token servers. So each
request, and each hop of a redirect, goes to an https URL whose host is resolved once, to an address that the address
policy allows (`upstream/address_policy.py`), and the connection goes to that address. Credentials are sent to one
origin only, never to the target of a redirect elsewhere. The number of redirects, the size of each response, and the
time without a byte are limited; `fetch.py` limits the time of a whole download.

Error messages are shown in conditions. They say what has failed and what to do, without addresses and without anything
that a server has sent.
"""

import hashlib
import os
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NoReturn
from urllib.parse import urljoin

import httpx

from fairlead.controllers.helm.proxies import InvalidProxy, find_proxy
from fairlead.controllers.instances.remote_errors import ERROR, WARNING, InstanceError
from fairlead.core.pinned_https import Message, Target, find_tls_cause, iter_body, open_response, parse_https_url
from fairlead.upstream.errors import AddressBlocked, TimedOut, UpstreamError

MAX_REDIRECTS = 5
MAX_URL_LENGTH = 8 * 1024
"""Of redirects, too: storage services sign their URLs, which makes them long."""
CONNECT_SECONDS, STALL_SECONDS = 10.0, 30.0
"""Seconds to connect, and seconds without a byte."""

OK, UNAUTHORIZED, FORBIDDEN, NOT_FOUND, GONE = 200, 401, 403, 404, 410
REDIRECTS = frozenset({301, 302, 303, 307, 308})
REPOSITORY_NOT_RESOLVED, ADDRESS_BLOCKED = "RepositoryNotResolved", "RepositoryAddressBlocked"
CERTIFICATE_NOT_TRUSTED, TLS_FAILED = "RepositoryNotTrusted", "RepositoryTlsFailed"
REPOSITORY_UNREACHABLE, INVALID_REPOSITORY = "RepositoryUnreachable", "InvalidRepository"
LOGIN_FAILED, REPOSITORY_NOT_FOUND = "RepositoryLoginFailed", "RepositoryNotFound"
CHART_NOT_FOUND, INVALID_CHART = "ChartNotFound", "InvalidChart"

Resolve = Callable[[str, int], Awaitable[str]]
"""Resolves host and port to an address that the address policy allows. Raises UpstreamError."""

_TIMEOUTS = httpx.Timeout(STALL_SECONDS, connect=CONNECT_SECONDS)
_CERTIFICATE_PROBLEMS = {
    10: "has expired; have it renewed",
    62: "is for another host name; correct the URL",
    64: "is for another address; correct the URL",
}
"""By OpenSSL verify code: X509_V_ERR_CERT_HAS_EXPIRED, _HOSTNAME_MISMATCH, _IP_ADDRESS_MISMATCH."""
_NOT_TRUSTED = (
    "is not signed by a certificate authority that this server trusts; have it replaced, or name a file with its "
    "authority in the variable SSL_CERT_FILE of the server"
)


@dataclass(frozen=True, slots=True)
class Credential:
    username: str = field(repr=False)
    password: str = field(repr=False)

    @property
    def basic(self) -> str:
        """The value of an Authorization header."""
        return f"Basic {b64encode(f'{self.username}:{self.password}'.encode()).decode()}"


@dataclass(frozen=True, slots=True)
class Download:
    """What to request. `place` names the server in messages: "the repository". `authorization` is the header for the
    origin of `url`, and for no other."""

    url: str
    place: str
    max_bytes: int
    accept: str = "*/*"
    authorization: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Answer:
    """A response. `is_redirected` if it came from another server than the one that was asked, or through one."""

    status: int
    headers: Mapping[str, str]
    is_redirected: bool
    _response: httpx.Response
    _download: Download

    async def read(self) -> bytes:
        """The body. Raises InstanceError."""
        body = bytearray()
        async for chunk in self._chunks():
            body += chunk
        return bytes(body)

    async def save(self, path: Path, algorithm: str = "sha256") -> str:
        """Writes the body to a file, and returns its hexadecimal digest. Raises InstanceError."""
        digest = hashlib.new(algorithm)
        with path.open("wb") as file:
            async for chunk in self._chunks():
                digest.update(chunk)
                file.write(chunk)
        return digest.hexdigest()

    async def _chunks(self) -> AsyncIterator[bytes]:
        left = self._download.max_bytes
        with _translated(self._download.place):
            async for chunk in iter_body(self._response):
                left -= len(chunk)
                if left < 0:
                    message = f"{self._download.place} sent more than {self._download.max_bytes >> 10} KiB"
                    raise InstanceError(INVALID_REPOSITORY, f"{message}; use a smaller chart or index", ERROR)
                yield chunk


class HttpClient:
    """`context` has the certificate authorities. `environment` names proxies."""

    def __init__(self, resolve: Resolve, context: ssl.SSLContext, environment: Mapping[str, str] | None = None) -> None:
        self._resolve = resolve
        self._context = context
        self._environment = os.environ if environment is None else environment

    @asynccontextmanager
    async def open(self, download: Download) -> AsyncIterator[Answer]:
        """Yields the response that is no redirect, with any status. Raises InstanceError."""
        origin = _parse_target(download.url, download.place)
        target = origin
        is_own = True
        for _ in range(MAX_REDIRECTS + 1):
            # Once elsewhere, also a redirect back is without the login: another server has chosen what it requests.
            is_own = is_own and (target.host, target.port) == (origin.host, origin.port)
            hop = download if is_own else _redirected(download)
            async with self._send(target, hop) as response:
                if response.status_code not in REDIRECTS:
                    yield Answer(response.status_code, response.headers, not is_own, response, hop)
                    return
                location = response.headers.get("location", "")
            target = _parse_target(_join(target, location), f"the address that {download.place} redirects to")
        message = f"{download.place} redirects more than {MAX_REDIRECTS} times; correct the URL"
        raise InstanceError(REPOSITORY_UNREACHABLE, message, ERROR)

    @asynccontextmanager
    async def _send(self, target: Target, download: Download) -> AsyncIterator[httpx.Response]:
        address = await self._find_address(target, download.place)
        headers = {"accept": download.accept}
        if download.authorization:
            headers["authorization"] = download.authorization
        message = Message(target, _TIMEOUTS, headers=headers)
        proxy = self._find_proxy(target)
        async with AsyncExitStack() as stack:
            with _translated(download.place):  # not around the caller's block, whose errors are its own
                response = await stack.enter_async_context(open_response(message, address, self._context, proxy))
            yield response

    async def _find_address(self, target: Target, place: str) -> str:
        try:
            return await self._resolve(target.host, target.port)
        except AddressBlocked as error:
            message = (
                f"{place} has an address that is not allowed: one of this server, loopback, private or link-local, or "
                "a privileged port other than 443; use a public one, or have an administrator add its network to the "
                "setting cluster_networks"
            )
            raise InstanceError(ADDRESS_BLOCKED, message, ERROR) from error
        except TimedOut as error:
            message = f"the DNS lookup of the host name of {place} timed out; check the DNS of this server"
            raise InstanceError(REPOSITORY_NOT_RESOLVED, message, WARNING) from error
        except UpstreamError as error:
            message = f"the host name of {place} does not resolve; check the URL, and the DNS of this server"
            raise InstanceError(REPOSITORY_NOT_RESOLVED, message, WARNING) from error

    def _find_proxy(self, target: Target) -> str:
        try:
            return find_proxy(self._environment, target.host, target.port)
        except InvalidProxy:
            message = "the variable HTTPS_PROXY of this server is not an http:// or https:// URL; correct it"
            raise InstanceError(REPOSITORY_UNREACHABLE, message, ERROR) from None


def _redirected(download: Download) -> Download:
    return replace(download, authorization="", place=f"the address that {download.place} redirects to")


def _join(base: Target, location: str) -> str:
    """The URL that a redirect leads to. Fragments are for browsers."""
    try:
        return urljoin(base.url, location).partition("#")[0]
    except ValueError:
        return ""


def _parse_target(url: str, place: str) -> Target:
    target = parse_https_url(url, MAX_URL_LENGTH)
    if target is None:
        message = f"{place} is not an https:// URL without a user in it; have it corrected"
        raise InstanceError(INVALID_REPOSITORY, message, ERROR)
    return target


def reject_status(status: int, place: str, missing: InstanceError) -> NoReturn:
    """Raises the error for a status other than 200. `missing` is the one for something that does not exist."""
    if status in (UNAUTHORIZED, FORBIDDEN):
        message = f"{place} rejected the login with status {status}; correct the username and password of the chart"
        raise InstanceError(LOGIN_FAILED, message, ERROR)
    if status in (NOT_FOUND, GONE):
        raise missing
    message = f"{place} answered with status {status}; check it, or try again later"
    raise InstanceError(REPOSITORY_UNREACHABLE, message, WARNING)


@contextmanager
def _translated(place: str) -> Iterator[None]:
    """Raises errors of the connection as InstanceError."""
    try:
        yield
    except httpx.ProxyError as error:
        message = f"the proxy in HTTPS_PROXY did not connect to {place}; check the proxy"
        raise InstanceError(REPOSITORY_UNREACHABLE, message, WARNING) from error
    except httpx.TimeoutException as error:
        message = f"{place} did not answer in time; check that it is running, and its firewall"
        raise InstanceError(REPOSITORY_UNREACHABLE, message, WARNING) from error
    except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, ssl.SSLError, OSError) as error:
        raise _connection_error(error, place) from error


def _connection_error(error: Exception, place: str) -> InstanceError:
    cause = find_tls_cause(error)
    if isinstance(cause, ssl.SSLCertVerificationError):
        problem = _CERTIFICATE_PROBLEMS.get(cause.verify_code, _NOT_TRUSTED)
        return InstanceError(CERTIFICATE_NOT_TRUSTED, f"the certificate of {place} {problem}", ERROR)
    if cause is not None:
        message = f"the TLS handshake with {place} failed; check that its URL is that of an HTTPS server"
        return InstanceError(TLS_FAILED, message, WARNING)
    if isinstance(error, httpx.ConnectError):
        message = f"{place} cannot be reached; check that it is running, and its firewall"
        return InstanceError(REPOSITORY_UNREACHABLE, message, WARNING)
    message = f"the connection to {place} broke, or its response is not valid; try again later"
    return InstanceError(REPOSITORY_UNREACHABLE, message, WARNING)
