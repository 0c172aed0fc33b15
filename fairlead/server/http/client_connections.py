"""The connections that `tls_port.py` relays to the HTTP server, and what is known about their clients.

The HTTP server sees a Unix socket. Its peer has an address of its own for each connection, under which the connection
is found here. So nothing in the bytes of a request says whose it is, and nothing has to be parsed or inserted.
"""

from dataclasses import dataclass

from fairlead.core.tls_peer import TlsPeer


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
    """The open connections by the address of their Unix socket."""
