"""Which URLs and addresses of OpenID providers may be fetched.

Providers are chosen by administrators and often have private addresses, so those are allowed. Link-local addresses and
the metadata services of clouds never are: no provider is there, and their responses contain credentials. Loopback
addresses are allowed only for issuers with `allow_loopback`.
"""

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network

from fairlead.authn.oidc.reasons import ProviderError, Reason
from fairlead.core.pinned_https import Target, parse_https_url

METADATA_NETWORKS = tuple(
    map(
        ip_network,
        (
            *("169.254.0.0/16", "fe80::/10"),
            *("168.63.129.16/32", "100.100.100.200/32", "192.0.0.192/32", "fd00:ec2::254/128", "fd20:ce::254/128"),
        ),
    )
)
"""Link-local networks and the metadata services of clouds."""
NAT64 = IPv6Network("64:ff9b::/96")
SIX_TO_FOUR = IPv6Network("2002::/16")
IPV4_COMPATIBLE = IPv6Network("::/96")

Address = IPv4Address | IPv6Address


def parse_url(url: object) -> Target:
    """Splits an https URL. Raises ProviderError for anything else: other schemes, user names, fragments, spaces."""
    target = parse_https_url(url)
    if target is None:
        message = "the URL must be an https URL without user name, fragment and white space"
        raise ProviderError(Reason.ISSUER_URL, message)
    return target


def check_issuer_url(url: str) -> None:
    """Raises ProviderError unless the URL can be that of an issuer: an https URL without query and fragment."""
    parse_url(url)
    if "?" in url:
        raise ProviderError(Reason.ISSUER_URL, "the issuer URL must not have a query")


def check_address(text: str, *, allow_loopback: bool) -> None:
    """Raises ProviderError if the address must not be fetched."""
    for address in _all_forms(ip_address(text)):
        if address.is_unspecified or address.is_multicast or _is_metadata(address):
            raise ProviderError(Reason.ADDRESS_BLOCKED, "the provider's address is link-local or not that of a host")
        if address.is_loopback and not allow_loopback:
            raise ProviderError(Reason.ADDRESS_BLOCKED, "the provider's address is a loopback address")


def _all_forms(address: Address) -> tuple[Address, ...]:
    """The address, and the IPv4 address in it: IPv4-mapped, IPv4-compatible, NAT64 or 6to4."""
    if isinstance(address, IPv4Address):
        return (address,)
    if address.ipv4_mapped is not None:
        return (address.ipv4_mapped,)
    if address in NAT64 or (address in IPV4_COMPATIBLE and int(address) > 1):
        return (address, IPv4Address(int(address) & 0xFFFFFFFF))
    embedded = address.sixtofour if address in SIX_TO_FOUR else None
    return (address,) if embedded is None else (address, embedded)


def _is_metadata(address: Address) -> bool:
    return address.is_link_local or any(address in network for network in METADATA_NETWORKS)
