"""The client behind trusted proxies, from the header `X-Forwarded-For`. `asgi.py` calls it for every request.

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

from fairlead.core.bounded_cache import BoundedCache
from fairlead.server.http.request import RequestHeaders

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
