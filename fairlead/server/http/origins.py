"""Where a request comes from: its connection, the client certificate, and the client behind proxies.

The client behind trusted proxies comes from the header `X-Forwarded-For`.

A proxy appends the address of its client to the header, so the header is read from the right: each address up to the
first one that is not a trusted proxy was written by a trusted proxy. Everything to the left of it was sent by the
client and is ignored. The result is for the audit log, login throttling and fairness. It never decides about access,
and no other forwarding header is read.

An entry that is not ASCII is one that cannot be parsed: it hides nothing that a proxy has appended to it.

The header counts even if `Connection` lists it: otherwise, a client could have its address replaced by the proxy's.
"""

import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from fairlead.core.bounded_cache import BoundedCache
from fairlead.core.call import FRONT_PROXY, Call, TlsPeer
from fairlead.server.http.request import HeaderPairs, RequestHeaders

HEADER = "x-forwarded-for"
MAX_PROXIES = 32
"""Trusted proxies that a request may have passed. Addresses beyond that are ignored."""
MAX_HEADER_BYTES = 4 * 1024
"""The end of the header that is read, at most. More is only sent by clients that forge it."""
CACHE_SIZE, MAX_CACHED_LENGTH = 4_096, 256

_PORT = re.compile(r":[0-9]{1,5}")
Route = tuple[str, tuple[str, ...]]
"""The client, and the trusted proxies between it and this server, nearest to the client first. Addresses only."""

DIRECT: Route = ("", ())
"""The route of a request whose connection does not come from a trusted proxy."""


class TrustedProxies:
    """The proxies whose `X-Forwarded-For` is believed, as networks (CIDRs)."""

    def __init__(self, networks: Iterable[str]) -> None:
        self.networks = tuple(map(ipaddress.ip_network, networks))
        self._cache = BoundedCache[tuple[str, str], Route](CACHE_SIZE)

    def is_trusted(self, address: str) -> bool:
        """Whether an address is that of a trusted proxy. An IPv4 address may be written as an IPv6 address."""
        parsed = parse_address(address)
        return parsed is not None and self._contains(parsed)

    def trace(self, peer: str, headers: RequestHeaders) -> Route:
        """The route of a request that has arrived from the address `peer`."""
        sent = ",".join(headers.get_all_raw(HEADER))
        key = peer, sent
        found = self._cache.get(key)
        if found is None:
            found = self._trace(peer, sent)
            if len(sent) <= MAX_CACHED_LENGTH:
                self._cache[key] = found
        return found

    def _trace(self, peer: str, sent: str) -> Route:
        nearest = parse_address(peer)
        if nearest is None or not self._contains(nearest):
            return DIRECT
        passed = [str(nearest)]
        for text in reversed(_last_entries(sent)):
            address = parse_address(text)
            if address is None:  # what a trusted proxy has written does not look like this, so this is the client's
                break
            passed.append(str(address))
            if not self._contains(address) or len(passed) > MAX_PROXIES:
                break
        client = passed.pop()
        return client, tuple(reversed(passed))

    def _contains(self, address: "ipaddress.IPv4Address | ipaddress.IPv6Address") -> bool:
        return any(address in network for network in self.networks)


def _last_entries(sent: str) -> Sequence[str]:
    if not sent:
        return ()
    entries = sent[-MAX_HEADER_BYTES:].split(",")
    return entries if len(sent) <= MAX_HEADER_BYTES else entries[1:]  # the first one may be incomplete


def parse_address(text: str) -> "ipaddress.IPv4Address | ipaddress.IPv6Address | None":
    """An IP address, possibly with a port, as proxies write it. None for anything else."""
    host = text.strip(" \t")
    if host.startswith("["):
        host, bracket, port = host[1:].partition("]")
        if not bracket or (port and not _PORT.fullmatch(port)):
            return None
    elif host.count(":") == 1:
        host, _, port = host.partition(":")
        if not _PORT.fullmatch(f":{port}"):
            return None
    if "%" in host:  # the zone of an IPv6 address means nothing on another machine
        return None
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


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
