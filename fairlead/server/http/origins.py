"""Where a request comes from: its connection, the client certificate, and the client behind proxies."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from fairlead.core.call import FRONT_PROXY, Call, TlsPeer
from fairlead.server.http.forwarded import DIRECT, TrustedProxies
from fairlead.server.http.request import HeaderPairs, RequestHeaders

STANDARD_PREFIXES = ("x-remote-",)
"""Prefixes of the headers that Kubernetes' front proxies send: user, uid, groups and extra values."""


class IdentityHeaderFilter:
    """Removes the headers in which a front proxy names the user, from all requests that are not from a front proxy: the
    standard headers, and those that are configured instead. `names` may end in a dash, and are prefixes then, as extra
    headers are.

    Nothing reads them there. Removing them makes sure of it: also for the spelling with underscores, which some
    programs take for the same header.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        lowered = {name.lower() for name in (*STANDARD_PREFIXES, *names) if name}
        self._prefixes = tuple(sorted(_normalize(name.encode()) for name in lowered if name.endswith("-")))
        self._names = frozenset(_normalize(name.encode()) for name in lowered if not name.endswith("-"))
        # Every request is tested with these, and hardly any has one of them: the longest part without a dash.
        parts = (max(name.split("-"), key=len) for name in lowered)
        self._markers = tuple(sorted({part.encode() for part in parts}))

    def clean(self, headers: RequestHeaders) -> RequestHeaders:
        names = headers.joined_names()
        for marker in self._markers:
            if marker in names:
                return RequestHeaders(self._select(headers.pairs))
        return headers

    def _select(self, pairs: HeaderPairs) -> HeaderPairs:
        return [pair for pair in pairs if not self._is_identity(_normalize(pair[0]))]

    def _is_identity(self, name: bytes) -> bool:
        return name in self._names or name.startswith(self._prefixes)


def _normalize(name: bytes) -> bytes:
    return name.lower().replace(b"_", b"-")


@dataclass(frozen=True, slots=True)
class ClientConnection:
    """One connection. `host` and `port` are those of the TCP connection.

    `source` is the address of the client that a load balancer has named with the PROXY protocol: None if the port does
    not use it, and empty if the load balancer has named none. `peer` is the certificate of the client, None if it has
    none.
    """

    host: str
    port: int
    source: str | None = None
    peer: TlsPeer | None = None


class ClientConnections(dict[str, ClientConnection]):
    """The connections that `tls_port.py` relays to the HTTP server, by the address of their Unix socket.

    The HTTP server sees a Unix socket. Its peer has an address of its own for each connection, under which the
    connection is found here. So nothing in the bytes of a request says whose it is, and nothing has to be parsed or
    inserted.
    """


CONNECTION_CLOSED = "the connection of this request is closed"


@dataclass(frozen=True, slots=True)
class Origins:
    """`connections` are those of ports with client certificates. `filter` removes headers that name users."""

    proxies: TrustedProxies = field(default_factory=lambda: TrustedProxies(()))
    connections: ClientConnections = field(default_factory=ClientConnections)
    filter: IdentityHeaderFilter = field(default_factory=IdentityHeaderFilter)

    def read_headers(self, scope: dict[str, Any], connection: ClientConnection | None) -> RequestHeaders:
        headers, peer = RequestHeaders(scope["headers"]), connection.peer if connection is not None else None
        is_front_proxy = peer is not None and peer.purpose == FRONT_PROXY
        return headers if is_front_proxy else self.filter.clean(headers)

    def describe(self, call: Call, headers: RequestHeaders, host: str, connection: ClientConnection | None) -> None:
        """Sets the certificate of the connection, and the client behind proxies. `host` is the HTTP server's peer."""
        source, proxies = None, self.proxies
        if connection is not None:
            host, source, call.peer = connection.host, connection.source, connection.peer
        elif not host or host.startswith("/"):  # a Unix socket: the client has disconnected, or is not one of ours
            call.malformed_reason = CONNECTION_CLOSED
            return
        # A load balancer with the PROXY protocol passes bytes on: it does not write the headers, its client does.
        nearest = host if source is None else source
        client, passed = proxies.trace(nearest, headers) if proxies.networks and nearest else DIRECT
        if found := client or source:
            call.forwarded_for = format_address(found, 0)
            call.proxies = (*passed, host) if source else passed


def format_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
