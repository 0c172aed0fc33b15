"""Opens connections to one cluster: resolves its name, connects to that very address, and does the TLS handshake.

`pool.py` and `websocket.py` call this. The name is resolved once per connection, and checked there (`address_policy.py`); the
certificate is still held against the name that the kubeconfig has.
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

# DOC-MERGED upstream/tls
# TLS to connected clusters: whom we trust, who we are, and what went wrong, in words. `dial.py` calls this.


_MENDED = "check certificate-authority-data and server in its kubeconfig"
_BAD_PEM = "certificates or key in the cluster's kubeconfig cannot be used; write it anew from the cluster"

_VERIFICATION = {
    10: "the certificate of the cluster has run out; renew it there",
    62: f"the certificate of the cluster is for another name; {_MENDED}, or set tls-server-name",
    64: f"the certificate of the cluster is for another address; {_MENDED}, or set tls-server-name",
}
"""By OpenSSL's numbers: X509_V_ERR_CERT_HAS_EXPIRED, _HOSTNAME_MISMATCH, _IP_ADDRESS_MISMATCH."""


def client_context(access: Access) -> ssl.SSLContext:
    """Takes milliseconds, so it is made once per cluster. Raises Untrusted where the kubeconfig holds no usable PEM."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Kubeconfigs may trust an intermediate authority, or the server's certificate itself. Go accepts that.
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
    """OpenSSL reads the pair from a file only; this one is never on a disk."""
    descriptor = os.memfd_create("pair")
    with os.fdopen(descriptor, "wb") as file:
        file.write(f"{access.certificate}\n{access.key}\n".encode())
        file.flush()
        # A passphrase that nobody is asked for: a sealed key fails rather than reading from the terminal.
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password="")


def untrusted(error: ssl.SSLError) -> Untrusted:
    """What a failed handshake means for whoever connected the cluster."""
    if isinstance(error, ssl.SSLCertVerificationError):
        code = error.verify_code
        return Untrusted(_VERIFICATION.get(code, f"the certificate of the cluster is not trusted; {_MENDED}"))
    return refusal(error) or Untrusted(
        "no TLS with the cluster; see that the server in its kubeconfig is a Kubernetes API server"
    )


def refusal(error: Exception | None) -> Untrusted | None:
    """Whether the other side ended the connection with an alert. Since TLS 1.3 that may come after the handshake."""
    reason = getattr(error, "reason", None) or ""  # an error that OpenSSL has not made has none
    if isinstance(error, ssl.SSLError) and "ALERT" in reason:
        return Untrusted("the cluster refused the TLS connection; check the client certificate in its kubeconfig")
    return None


Resolve = Callable[[str, int], Awaitable[str]]
"""A name and a port to one address that we may connect to. Raises UpstreamError."""

AnyReceiver = TypeVar("AnyReceiver", bound=Receiver)

_KEEPALIVE = {socket.TCP_KEEPIDLE: 30, socket.TCP_KEEPINTVL: 10, socket.TCP_KEEPCNT: 3}
"""A watch may be silent for hours. Only the kernel can tell that from a machine that is gone: within a minute."""


class Dialing:
    def __init__(self, access: Access, resolve: Resolve) -> None:
        self._access = access
        self._resolve = resolve
        self._context: ssl.SSLContext | None = None

    async def __call__(self, make: Callable[[], AnyReceiver], seconds: float) -> AnyReceiver:
        """A protocol that is connected. Raises UpstreamError."""
        try:
            async with asyncio.timeout(seconds):
                return await self._connected(make)
        except TimeoutError:
            raise TimedOut("the cluster could not be reached in time; see whether it runs, and its firewall") from None
        except ssl.SSLError as error:
            raise untrusted(error) from error
        except OSError as error:
            raise Unreachable("the cluster cannot be reached; see whether it runs, and its firewall") from error

    async def _connected(self, make: Callable[[], AnyReceiver]) -> AnyReceiver:
        access, loop = self._access, asyncio.get_running_loop()
        if self._context is None:
            self._context = client_context(access)
        address = await self._resolve(access.host, access.port)
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for option, value in _KEEPALIVE.items():
                sock.setsockopt(socket.IPPROTO_TCP, option, value)
            await loop.sock_connect(sock, (address, access.port))
            transport = TlsTransport(sock, self._context, access.server_name)
            await transport.shake_hands()
        except BaseException:
            sock.close()
            raise
        protocol = make()
        transport.start(protocol)
        return protocol
