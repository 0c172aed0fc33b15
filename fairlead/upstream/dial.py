"""Opens TLS connections to one cluster: DNS lookup, address check, TCP connect, TLS handshake.

`pool.py` and `websocket.py` call this. Each connection resolves the host name once, checks the address
(`address_policy.py`) and connects to that same address. The server certificate is verified against the host name or
the `tls-server-name` of the kubeconfig.
"""

import asyncio
import os
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import TypeVar

from fairlead.upstream.access import Access
from fairlead.upstream.errors import TimedOut, Unreachable, Untrusted
from fairlead.upstream.transport import Receiver, TlsTransport

_MENDED = "check certificate-authority-data and server in its kubeconfig"
_BAD_PEM = (
    "certificates or key in the cluster's kubeconfig cannot be used; export the kubeconfig from the cluster again"
)

_VERIFICATION = {
    10: "the cluster's certificate has expired; renew it in the cluster",
    62: f"the cluster's certificate is for another host name; {_MENDED}, or set tls-server-name",
    64: f"the cluster's certificate is for another IP address; {_MENDED}, or set tls-server-name",
}
"""By OpenSSL verify code: X509_V_ERR_CERT_HAS_EXPIRED, _HOSTNAME_MISMATCH, _IP_ADDRESS_MISMATCH."""
Resolve = Callable[[str, int], Awaitable[str]]
"""Resolves host and port to one allowed address. Raises UpstreamError."""
AnyReceiver = TypeVar("AnyReceiver", bound=Receiver)
_KEEPALIVE = {socket.TCP_KEEPIDLE: 30, socket.TCP_KEEPINTVL: 10, socket.TCP_KEEPCNT: 3}
"""A watch may be silent for hours. TCP keepalive detects a dead peer within a minute."""


def client_context(access: Access) -> ssl.SSLContext:
    """Builds the TLS context. Takes milliseconds, so it is built once per cluster. Raises TlsError for unusable PEM."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A kubeconfig may trust an intermediate CA or the server certificate itself. Go accepts that.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.set_alpn_protocols(["http/1.1"])
    try:
        if access.authority:
            context.load_verify_locations(cadata=access.authority)
        else:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        if access.certificate:
            _load_pair(context, access)
    except (ssl.SSLError, ValueError) as error:
        raise Untrusted(_BAD_PEM) from error
    return context


def _load_pair(context: ssl.SSLContext, access: Access) -> None:
    """Loads the client certificate and key. OpenSSL reads them from a file only; a memfd is never on disk."""
    descriptor = os.memfd_create("pair")
    with os.fdopen(descriptor, "wb") as file:
        file.write(f"{access.certificate}\n{access.key}\n".encode())
        file.flush()
        # With an empty passphrase, an encrypted key fails instead of prompting on the terminal.
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password="")


def untrusted(error: ssl.SSLError) -> Untrusted:
    """The error for a failed TLS handshake, with advice for the owner of the kubeconfig."""
    if isinstance(error, ssl.SSLCertVerificationError):
        code = error.verify_code
        return Untrusted(_VERIFICATION.get(code, f"the cluster's certificate is not trusted; {_MENDED}"))
    return refusal(error) or Untrusted(
        "the TLS handshake with the cluster failed; check that the server in its kubeconfig is a Kubernetes API server"
    )


def refusal(error: Exception | None) -> Untrusted | None:
    """The error for a TLS alert from the peer, else None. With TLS 1.3 an alert may follow the handshake."""
    reason = getattr(error, "reason", None) or ""  # only errors of OpenSSL have a reason
    if isinstance(error, ssl.SSLError) and "ALERT" in reason:
        return Untrusted("the cluster rejected the TLS connection; check the client certificate in its kubeconfig")
    return None


class Dialing:
    """Opens connections to one endpoint."""

    def __init__(self, access: Access, resolve: Resolve) -> None:
        self._access = access
        self._resolve = resolve
        self._context: ssl.SSLContext | None = None

    async def __call__(self, make: Callable[[], AnyReceiver], seconds: float) -> AnyReceiver:
        """Returns a connected protocol. Raises UpstreamError."""
        try:
            async with asyncio.timeout(seconds):
                return await self._connected(make)
        except TimeoutError:
            raise TimedOut("connecting to the cluster timed out; check that it is running, and its firewall") from None
        except ssl.SSLError as error:
            raise untrusted(error) from error
        except OSError as error:
            raise Unreachable("the cluster is unreachable; check that it is running, and its firewall") from error

    async def _connected(self, make: Callable[[], AnyReceiver]) -> AnyReceiver:
        endpoint, loop = self._access, asyncio.get_running_loop()
        if self._context is None:
            self._context = client_context(endpoint)
        address = await self._resolve(endpoint.host, endpoint.port)
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for option, value in _KEEPALIVE.items():
                sock.setsockopt(socket.IPPROTO_TCP, option, value)
            await loop.sock_connect(sock, (address, endpoint.port))
            transport = TlsTransport(sock, self._context, endpoint.server_name)
            await transport.shake_hands()
        except BaseException:
            sock.close()
            raise
        protocol = make()
        transport.start(protocol)
        return protocol
