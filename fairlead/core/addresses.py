"""Addresses that matter for security, in one table. Who may connect where:

clusters, runners, repositories    public addresses, and networks in `cluster_networks`. A protected one only if a
(`upstream/address_policy.py`)     listed network is part of the protected network
OpenID providers                   all but protected ones: providers are often private. Loopback only for issuers
(`signin/oidc/fetch.py`)        that say so
workspaces in Pods                 all but metadata services: clusters may have DNS at a link-local address
workspaces in containers           all but link-local addresses and metadata services, unless the operator says
                                   otherwise. IPv4 only: they have no other addresses
"""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

LINK_LOCAL_IPV4 = "169.254.0.0/16"
LINK_LOCAL_IPV6 = "fe80::/10"
LINK_LOCAL_METADATA_SERVICE = "169.254.169.254/32"
METADATA_SERVICES_IPV4 = ("100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32")
METADATA_SERVICES_IPV6 = ("fd00:ec2::254/128", "fd20:ce::254/128")
"""Where clouds offer credentials of a machine to every process on it, apart from the link-local address."""
PROTECTED_NETWORKS: tuple[Network, ...] = tuple(
    map(ip_network, (LINK_LOCAL_IPV4, LINK_LOCAL_IPV6, *METADATA_SERVICES_IPV4, *METADATA_SERVICES_IPV6))
)

_EXTRA_PRIVATE_NETWORKS = tuple(
    map(ip_network, ("100.64.0.0/10", "192.0.0.0/24", "64:ff9b:1::/48", "fec0::/10", "2001::/23"))
)
"""In addition to the networks for which Python's `is_global` is false, which vary between Python versions."""
_NAT64 = IPv6Network("64:ff9b::/96")
_SIX_TO_FOUR = IPv6Network("2002::/16")
_IPV4_COMPATIBLE = IPv6Network("::/96")


def all_forms(address: Address) -> tuple[Address, ...]:
    """The address, as IPv4 if it is IPv4-mapped, and the IPv4 address that a NAT64 or 6to4 gateway would translate it
    to. Each of them has to be allowed."""
    if isinstance(address, IPv4Address):
        return (address,)
    if address.ipv4_mapped is not None:
        return (address.ipv4_mapped,)
    if address in _NAT64 or (address in _IPV4_COMPATIBLE and int(address) > 1):
        return (address, IPv4Address(int(address) & 0xFFFFFFFF))
    embedded = address.sixtofour if address in _SIX_TO_FOUR else None
    return (address,) if embedded is None else (address, embedded)


def is_no_host(address: Address) -> bool:
    return address.is_unspecified or address.is_multicast


def is_protected(address: Address) -> bool:
    """Whether the address is link-local or that of a metadata service."""
    return any(address in network for network in PROTECTED_NETWORKS)


def is_private(address: Address) -> bool:
    """Whether the address is loopback or private. Translated addresses are not: their IPv4 form may be."""
    if address in _NAT64 or address in _SIX_TO_FOUR:
        return False
    return not address.is_global or any(address in network for network in _EXTRA_PRIVATE_NETWORKS)


def is_loopback(host: str) -> bool:
    """Whether the host is a loopback address or localhost."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
