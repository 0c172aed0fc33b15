"""Reaches the API server of a cluster through an HTTP proxy: the `proxy-url` of a kubeconfig, and the CONNECT request.

`DirectDialer` (`dial.py`) calls this. TLS is with the cluster itself, through the proxy, which sees the name and the
port of the cluster, and nothing else. Only proxies that speak plain HTTP to us are supported.
"""

import asyncio
import re
import socket
from base64 import b64encode
from typing import Any
from urllib.parse import unquote, urlsplit

from fairlead.core.validators import check_host_name, format_host
from fairlead.upstream.access import HttpProxy
from fairlead.upstream.errors import Unreachable

MAX_HEAD_BYTES = 16 * 1024
DEFAULT_PORT = 80
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([0-9]{3})[ \r]")
_EXAMPLE = "it must look like http://proxy.example.com:3128"


class ProxyError(Unreachable):
    """The proxy of the kubeconfig does not lead to the cluster."""

    reason = "ProxyFailed"


def parse_proxy_url(value: Any) -> tuple[HttpProxy | None, str | None]:
    """Returns the proxy, None without one, and a problem, or None. A problem never quotes the URL, which may contain a
    password."""
    if value in (None, ""):
        return None, None
    if not isinstance(value, str) or not value.isascii() or any(each <= " " or each in "\\\x7f" for each in value):
        return None, f"cluster: proxy-url is not a URL; {_EXAMPLE}"
    try:
        parts = urlsplit(value)
        host, port = (parts.hostname or "").lower(), parts.port
    except ValueError:
        return None, f"cluster: proxy-url is not a URL; {_EXAMPLE}"
    if parts.scheme != "http":
        return None, f"cluster: proxy-url must be an http URL; other proxies are not supported; {_EXAMPLE}"
    if check_host_name(host) is not None or "*" in host or port == 0 or parts.path not in ("", "/"):
        return None, f"cluster: proxy-url must have a host, and no path; {_EXAMPLE}"
    if parts.query or parts.fragment:
        return None, f"cluster: proxy-url has a query or a fragment; {_EXAMPLE}"
    authorization = ""
    if parts.username or parts.password:
        login = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
        authorization = f"Basic {b64encode(login.encode()).decode()}"
    return HttpProxy(host, port or DEFAULT_PORT, authorization), None


async def connect_through(sock: socket.socket, proxy: HttpProxy, host: str, port: int) -> None:
    """Has the proxy at the other end of the socket connect to the host. Raises ProxyError and OSError."""
    target = f"{format_host(host)}:{port}"
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
    if proxy.authorization:
        lines.append(f"Proxy-Authorization: {proxy.authorization}")
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(sock, "\r\n".join([*lines, "", ""]).encode())
    head = b""
    # The cluster sends nothing before our TLS handshake, so nothing follows the head.
    while b"\r\n\r\n" not in head:
        data = await loop.sock_recv(sock, MAX_HEAD_BYTES)
        head += data
        if not data or len(head) > MAX_HEAD_BYTES:
            raise ProxyError("the proxy in the kubeconfig does not answer as an HTTP proxy; check proxy-url")
    match = _STATUS_LINE.match(head)
    status = int(match[1]) if match else 0
    if not 200 <= status < 300:
        raise ProxyError(_refusal(status))


def _refusal(status: int) -> str:
    if status == 407:
        return "the proxy in the kubeconfig requires a user and a password; put them into proxy-url"
    if status:
        return f"the proxy in the kubeconfig does not connect to the cluster (HTTP status {status}); see its log"
    return "the proxy in the kubeconfig does not answer as an HTTP proxy; check proxy-url"
