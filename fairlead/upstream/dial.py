"""Opens TLS connections to one cluster: a socket from its dialer, then the TLS handshake.

`pool.py` and `websocket.py` call this. `DirectDialer` resolves the host name once, checks the address
(`address_policy.py`) and connects to that same address; `tunnel.py` has the other dialer, for virtual clusters that
only the cluster around them reaches. Whatever the socket leads to, the server certificate is verified against the host
name or the `tls-server-name` of the kubeconfig, and nothing is sent before that.
"""

import asyncio
import os
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeVar
from weakref import WeakValueDictionary

from fairlead.core.validators import check_ip_address
from fairlead.upstream.access import ClusterEndpoint
from fairlead.upstream.errors import TimedOut, TlsError, Unreachable
from fairlead.upstream.http_proxy import ProxyError, connect_through
from fairlead.upstream.transport import TlsTransport, TransportProtocol

_CHECK_KUBECONFIG = "check certificate-authority-data and server in its kubeconfig"
_BAD_PEM = (
    "certificates or key in the cluster's kubeconfig cannot be used; export the kubeconfig from the cluster again"
)

_VERIFY_MESSAGES = {
    10: "the cluster's certificate has expired; renew it in the cluster",
    62: f"the cluster's certificate is for another host name; {_CHECK_KUBECONFIG}, or set tls-server-name",
    64: f"the cluster's certificate is for another IP address; {_CHECK_KUBECONFIG}, or set tls-server-name",
}
"""By OpenSSL verify code: X509_V_ERR_CERT_HAS_EXPIRED, _HOSTNAME_MISMATCH, _IP_ADDRESS_MISMATCH."""
Resolve = Callable[[str, int], Awaitable[str]]
"""Resolves host and port to one allowed address. Raises UpstreamError."""
AnyProtocol = TypeVar("AnyProtocol", bound=TransportProtocol)
_KEEPALIVE = {socket.TCP_KEEPIDLE: 30, socket.TCP_KEEPINTVL: 10, socket.TCP_KEEPCNT: 3}
"""A watch may be silent for hours. TCP keepalive detects a dead peer within a minute."""
HANDSHAKE_RETRY_SECONDS = 0.2
"""Before a handshake through a tunnel is repeated that broke off."""


_contexts: WeakValueDictionary[tuple[str, str, str], ssl.SSLContext] = WeakValueDictionary()
"""Those in use, by what they are made of: a cluster has several pools of connections, and clusters whose certificates
are signed by a public authority have one context together."""


async def share_ssl_context(endpoint: ClusterEndpoint) -> ssl.SSLContext:
    """Builds the TLS context in a thread, unless there is one: 2 ms with the cluster's own authority, 50 ms with those
    of the system. Raises TlsError for unusable PEM."""
    content = (endpoint.ca_data, endpoint.client_certificate, endpoint.client_key)
    context = _contexts.get(content)
    if context is None:
        context = _contexts[content] = await asyncio.to_thread(build_ssl_context, endpoint)
    return context


def build_ssl_context(endpoint: ClusterEndpoint) -> ssl.SSLContext:
    """Raises TlsError for unusable PEM."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A kubeconfig may trust an intermediate CA or the server certificate itself. Go accepts that.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.set_alpn_protocols(["http/1.1"])
    try:
        if endpoint.ca_data:
            context.load_verify_locations(cadata=endpoint.ca_data)
        else:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        if endpoint.client_certificate:
            _load_client_certificate(context, endpoint)
    except (ssl.SSLError, ValueError) as error:
        raise TlsError(_BAD_PEM) from error
    return context


def _load_client_certificate(context: ssl.SSLContext, endpoint: ClusterEndpoint) -> None:
    """Loads the client certificate and key. OpenSSL reads them from a file only; a memfd is never on disk."""
    descriptor = os.memfd_create("pair")
    with os.fdopen(descriptor, "wb") as file:
        file.write(f"{endpoint.client_certificate}\n{endpoint.client_key}\n".encode())
        file.flush()
        # With an empty passphrase, an encrypted key fails instead of prompting on the terminal.
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password="")


def tls_error(error: ssl.SSLError) -> TlsError:
    """The error for a failed TLS handshake, with advice for the owner of the kubeconfig."""
    if isinstance(error, ssl.SSLCertVerificationError):
        code = error.verify_code
        return TlsError(_VERIFY_MESSAGES.get(code, f"the cluster's certificate is not trusted; {_CHECK_KUBECONFIG}"))
    return tls_alert_error(error) or TlsError(
        "the TLS handshake with the cluster failed; check that the server in its kubeconfig is a Kubernetes API server"
    )


def tls_alert_error(error: Exception | None) -> TlsError | None:
    """The error for a TLS alert from the peer, else None. With TLS 1.3 an alert may follow the handshake."""
    reason = getattr(error, "reason", None) or ""  # only errors of OpenSSL have a reason
    if isinstance(error, ssl.SSLError) and "ALERT" in reason:
        return TlsError("the cluster rejected the TLS connection; check the client certificate in its kubeconfig")
    return None


class Dialer(Protocol):
    """Connects to an API server, without TLS."""

    @property
    def is_tunnel(self) -> bool:
        """Whether its sockets are streams of a few connections that they share. Then a response without a defined end
        needs `is_exclusive`, and a handshake that breaks off is repeated: what is behind the tunnel may be replaced."""

    async def __call__(self, is_exclusive: bool) -> socket.socket:
        """Returns a connected, non-blocking socket. With `is_exclusive`, it shares no connection with others. Raises
        UpstreamError and OSError."""

    def reject(self) -> None:
        """What the last sockets led to did not complete the TLS handshake, so it may be the wrong one."""


@dataclass(frozen=True, slots=True)
class DirectDialer:
    """Connects to host and port of the kubeconfig, or through its proxy."""

    endpoint: ClusterEndpoint
    resolve: Resolve
    """Not for the names of proxies, which the operator has allowed, and of clusters behind one, which it resolves."""
    is_tunnel: ClassVar[bool] = False

    async def __call__(self, is_exclusive: bool) -> socket.socket:
        endpoint, proxy = self.endpoint, self.endpoint.proxy
        if proxy is None:
            return await _connect(await self.resolve(endpoint.host, endpoint.port), endpoint.port)
        is_address = check_ip_address(endpoint.host) is None
        host = await self.resolve(endpoint.host, endpoint.port) if is_address else endpoint.host
        try:
            sock = await _connect(await resolve_host(proxy.host, proxy.port), proxy.port)
        except (OSError, Unreachable) as error:
            raise ProxyError("the proxy in the kubeconfig is unreachable; check it, and proxy-url") from error
        try:
            await connect_through(sock, proxy, host, endpoint.port)
        except BaseException:
            sock.close()
            raise
        return sock

    def reject(self) -> None:
        """There is only one place to connect to."""


async def _connect(address: str, port: int) -> socket.socket:
    """Raises OSError."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for option, value in _KEEPALIVE.items():
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
        await asyncio.get_running_loop().sock_connect(sock, (address, port))
    except BaseException:
        sock.close()
        raise
    return sock


async def resolve_host(host: str, port: int) -> str:
    """Resolves a host name to its first address. Raises Unreachable."""
    with suppress(OSError, UnicodeError):
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        if found:
            return str(found[0][4][0])
    raise Unreachable("the cluster's host name does not resolve; check the kubeconfig and DNS")


class ProtocolConnector(Protocol):
    """Opens connections to one server."""

    async def __call__(
        self, protocol_factory: Callable[[], AnyProtocol], seconds: float, is_exclusive: bool = False
    ) -> AnyProtocol:
        """Returns a connected protocol. Raises UpstreamError."""


class Connector:
    """Opens connections to one endpoint."""

    def __init__(self, endpoint: ClusterEndpoint, dialer: Dialer) -> None:
        self._endpoint = endpoint
        self._dialer = dialer
        self._context: ssl.SSLContext | None = None

    async def __call__(
        self, protocol_factory: Callable[[], AnyProtocol], seconds: float, is_exclusive: bool = False
    ) -> AnyProtocol:
        """Returns a connected protocol. Raises UpstreamError."""
        try:
            async with asyncio.timeout(seconds):
                transport = await self._connect(is_exclusive)
        except TimeoutError:
            self._dialer.reject()
            raise TimedOut("connecting to the cluster timed out; check that it is running, and its firewall") from None
        except ssl.SSLError as error:
            self._dialer.reject()
            raise tls_error(error) from error
        except OSError as error:
            raise Unreachable("the cluster is unreachable; check that it is running, and its firewall") from error
        protocol = protocol_factory()
        transport.start(protocol)
        return protocol

    async def _connect(self, is_exclusive: bool) -> TlsTransport:
        """Returns a transport after the handshake."""
        if self._context is None:
            self._context = await share_ssl_context(self._endpoint)
        while True:
            sock = await self._dialer(is_exclusive)
            try:
                transport = TlsTransport(sock, self._context, self._endpoint.tls_server_name)
                await transport.do_handshake(signs=bool(self._endpoint.client_certificate))
                return transport
            except ConnectionError:
                sock.close()
                if not self._dialer.is_tunnel:
                    raise
                self._dialer.reject()
                await asyncio.sleep(HANDSHAKE_RETRY_SECONDS)
            except BaseException:
                sock.close()
                raise
