"""The proxy that the environment names for downloads: HTTPS_PROXY and NO_PROXY, also in lower case, as Go programs read
them. Pure."""

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

from fairlead.core.addresses import is_loopback

_SCHEMES = ("http", "https")


class InvalidProxy(Exception):
    """The proxy in the environment is not an http or https URL."""


def find_proxy(environment: Mapping[str, str], host: str, port: int) -> str:
    """The URL of the proxy for an https request to a host; empty for none. Raises InvalidProxy."""
    proxy = environment.get("HTTPS_PROXY") or environment.get("https_proxy") or ""
    excluded = environment.get("NO_PROXY") or environment.get("no_proxy") or ""
    if not proxy or is_loopback(host) or any(_is_excluded(host, port, each.strip()) for each in excluded.split(",")):
        return ""
    url = proxy if "://" in proxy else f"http://{proxy}"
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in _SCHEMES and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_valid = False
    if not is_valid:
        raise InvalidProxy
    return url


def _is_excluded(host: str, port: int, entry: str) -> bool:
    """Whether an entry of NO_PROXY is about the host: `*`, a name with all below it, `.name` for all below it, an
    address or a network; a name or an address may have a port."""
    if entry == "*":
        return True
    address = _parse_address(host)
    if "/" in entry:
        try:
            return address is not None and address in ipaddress.ip_network(entry, strict=False)
        except ValueError:
            return False
    name, separator, entry_port = entry.rpartition(":")
    if separator and entry_port.isdigit() and (":" not in name or name.startswith("[")):
        if int(entry_port) != port:
            return False
        entry = name
    entry = entry.strip("[]").lower()
    if address is not None:
        return address == _parse_address(entry)
    name = entry.removeprefix("*").lstrip(".")
    return bool(name) and (host.endswith(f".{name}") or (host == name and not entry.startswith((".", "*"))))


def _parse_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
