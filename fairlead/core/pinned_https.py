"""HTTPS requests whose host name was resolved and checked before: the connection goes to that address, and the
certificate is verified for the host name. So DNS rebinding has no effect.

Neither redirects nor settings of the environment are followed here: callers decide about each hop and proxy. The body
is read as it is sent, without decompression.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import urlsplit

import httpx

MAX_URL_LENGTH = 2_048
HTTPS_PORT = 443
CHUNKS_AT_ONCE = 32
"""Chunks of a response that are read before other tasks get a turn: some two milliseconds."""
_CONNECTED = "connection.connect_tcp.complete"
"""The event of httpcore after a connection is open, and before its TLS handshake."""


@dataclass(frozen=True, slots=True)
class Target:
    """The parts of an https URL that a request needs."""

    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        """Host and port for the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == HTTPS_PORT else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        return f"https://{self.authority}{self.path}"


def parse_https_url(url: object, max_length: int = MAX_URL_LENGTH) -> Target | None:
    """Splits an https URL. None for anything else: other schemes, user names, fragments, spaces."""
    if not isinstance(url, str) or not 0 < len(url) <= max_length or not url.isascii() or not url.isprintable():
        return None
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    if parts.scheme != "https" or not url.startswith("https://") or not parts.hostname or "@" in parts.netloc:
        return None
    if "#" in url or " " in url or "\\" in url or "%" in parts.netloc or port == 0:
        return None
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(parts.hostname, HTTPS_PORT if port is None else port, path)


@dataclass(frozen=True, slots=True)
class Message:
    """A request. Its headers and its body contain credentials. `timeouts` are those between two parts of the exchange;
    callers limit the time of the whole."""

    target: Target
    timeouts: httpx.Timeout
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes = field(default=b"", repr=False)


class _Closable(Protocol):
    async def aclose(self) -> None: ...


@asynccontextmanager
async def open_response(
    message: Message, address: str, context: ssl.SSLContext, proxy: str = ""
) -> AsyncIterator[httpx.Response]:
    """Sends the request to that address, and yields the response before its body is read. With a `proxy`, which is an
    http or https URL, the proxy gets the host name in place of the address. Raises what httpx raises."""
    target = message.target
    host = target.host if proxy else address
    headers = {
        "accept-encoding": "identity",
        "user-agent": "fairlead",
        **message.headers,
        "host": target.authority,
    }
    opened: list[_Closable] = []

    async def remember(event: str, info: dict[str, Any]) -> None:
        if event == _CONNECTED:
            opened.append(info["return_value"])

    request = httpx.Request(
        message.method,
        httpx.URL(f"https://{f'[{host}]' if ':' in host else host}:{target.port}{target.path}"),
        headers=headers,
        content=message.body or None,
        extensions={"sni_hostname": target.host, "timeout": message.timeouts.as_dict(), "trace": remember},
    )
    through = httpx.Proxy(proxy, ssl_context=context if proxy.startswith("https:") else None) if proxy else None
    async with httpx.AsyncHTTPTransport(verify=context, trust_env=False, proxy=through) as transport:
        try:
            response = await transport.handle_async_request(request)
        except asyncio.CancelledError:
            # httpcore closes a connection whose TLS handshake fails, but not one whose handshake is cancelled.
            for each in opened:
                await each.aclose()
            raise
        try:
            yield response
        finally:
            await response.aclose()


async def iter_body(response: httpx.Response) -> AsyncIterator[bytes]:
    """The body as it was sent. httpx does not yield to the event loop between parts that have arrived together: one
    packet may have ten thousand chunks of one byte, which take most of a second."""
    assert isinstance(response.stream, httpx.AsyncByteStream)
    count = 0
    async for chunk in response.stream:
        count += 1
        if count % CHUNKS_AT_ONCE == 0:
            await asyncio.sleep(0)
        yield chunk


def build_ssl_context(ca_pem: str = "") -> ssl.SSLContext:
    """`ca_pem` replaces the certificate authorities of the system, which take many milliseconds to read. Raises
    ssl.SSLError or ValueError if it has no certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if ca_pem:
        context.load_verify_locations(cadata=ca_pem)
    else:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    return context


def find_tls_cause(error: BaseException | None) -> ssl.SSLError | None:
    """The error of OpenSSL that an error of httpx was raised for, if any."""
    while error is not None:
        if isinstance(error, ssl.SSLError):
            return error
        error = error.__cause__ or error.__context__
    return None
