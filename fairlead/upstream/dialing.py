"""Opens connections to one cluster: resolves its name, connects to that very address, and does the TLS handshake.

`pool.py` and `sockets.py` call this. The name is resolved once per connection, and checked there (`addresses.py`); the
certificate is still held against the name that the kubeconfig has.
"""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import TypeVar

from fairlead.upstream.access import Access
from fairlead.upstream.errors import TimedOut, Unreachable
from fairlead.upstream.tls import client_context, untrusted
from fairlead.upstream.transport import Receiver, TlsTransport

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
