"""Where a request comes from: its connection, the client certificate, and the client behind proxies."""

from dataclasses import dataclass, field
from typing import Any

from fairlead.core.call import Call
from fairlead.core.tls_peer import FRONT_PROXY
from fairlead.server.http.client_connections import ClientConnection, ClientConnections
from fairlead.server.http.forwarded import DIRECT, TrustedProxies
from fairlead.server.http.identity_headers import IdentityHeaderFilter
from fairlead.server.http.request import RequestHeaders

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
