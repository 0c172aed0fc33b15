"""Tests of `fairlead.upstream.address_policy` (T-22): public addresses are allowed, others only if they are listed."""

import socket
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Any

import pytest

from fairlead.upstream.address_policy import AddressPolicy
from fairlead.upstream.errors import AddressBlocked, Unreachable

PUBLIC = "93.184.215.14"
PRIVATE_NETWORKS = ("127.0.0.0/8", "::1/128", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")


def build_policy(*networks: str, own_addresses: Sequence[tuple[str, int]] = ()) -> AddressPolicy:
    return AddressPolicy(networks, lambda: own_addresses)


def fake_dns(monkeypatch: pytest.MonkeyPatch, *answers: Sequence[str]) -> list[str]:
    """Makes DNS return these answers, one per lookup. Returns the list of the names that were looked up."""
    lookups: list[str] = []
    remaining = list(answers)

    def look_up(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        lookups.append(host)
        addresses = remaining.pop(0)
        if not addresses:
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return lookups


@pytest.mark.parametrize("host", [PUBLIC, "2606:4700::1111", "64:ff9b::5db8:d70e", "2002:5db8:d70e::1"])
@pytest.mark.parametrize("port", [443, 1024, 6443, 65535])
async def test_public_addresses_are_allowed(host: str, port: int) -> None:
    assert await build_policy().resolve(host, port) == host


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "127.8.9.1", "::1", "0.0.0.0", "::", "10.1.2.3", "172.16.0.1", "192.168.1.1", "fd12::1"),
        *("100.64.0.1", "100.127.255.254", "169.254.169.254", "169.254.1.1", "fe80::1", "fec0::1", "fd00:ec2::254"),
        *("100.100.100.200", "168.63.129.16", "192.0.0.192", "224.0.0.1", "ff02::1", "255.255.255.255", "240.0.0.1"),
        *("198.18.0.1", "192.0.2.1", "2001:db8::1", "2001::1", "64:ff9b:1::1"),
        *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "::10.0.0.1"),
        *("64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b::a00:1", "2002:7f00:1::1", "2002:a00:1::"),
    ],
)
async def test_t22_addresses_that_are_not_public_are_blocked(host: str) -> None:
    with pytest.raises(AddressBlocked) as caught:
        await build_policy().resolve(host, 443)
    assert host not in caught.value.message


@pytest.mark.parametrize("host", ["127.1", "0x7f000001", "2130706433", "0177.0.0.1"])
async def test_t22_unusual_notations_of_loopback_are_blocked(host: str) -> None:
    with pytest.raises((AddressBlocked, Unreachable)):
        await build_policy().resolve(host, 443)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "10.1.2.3", "192.168.7.7", "fd12::1", PUBLIC])
async def test_listed_networks_are_allowed_in_addition_to_public_addresses(host: str) -> None:
    assert await build_policy(*PRIVATE_NETWORKS).resolve(host, 6443) == host


async def test_an_ipv4_address_embedded_in_ipv6_counts_as_the_ipv4_address() -> None:
    assert await build_policy("127.0.0.0/8").resolve("::ffff:127.0.0.1", 6443) == "127.0.0.1"
    assert await build_policy("10.0.0.0/8").resolve("64:ff9b::a00:1", 6443) == "64:ff9b::a00:1"
    with pytest.raises(AddressBlocked):
        await build_policy("::/0").resolve("::ffff:127.0.0.1", 6443)


@pytest.mark.parametrize(
    "host", ["169.254.169.254", "fe80::1", "fd00:ec2::254", "100.100.100.200", "::ffff:169.254.169.254"]
)
async def test_t22_metadata_and_link_local_addresses_are_not_allowed_by_a_wide_network(host: str) -> None:
    with pytest.raises(AddressBlocked, match="metadata"):
        await build_policy("0.0.0.0/0", "::/0", *PRIVATE_NETWORKS).resolve(host, 443)


async def test_link_local_addresses_are_allowed_if_listed_explicitly() -> None:
    assert await build_policy("169.254.7.0/24").resolve("169.254.7.1", 6443) == "169.254.7.1"
    assert await build_policy("fe80::/10").resolve("fe80::1", 6443) == "fe80::1"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "224.0.0.1", "ff02::1"])
async def test_t22_unspecified_and_multicast_addresses_are_blocked_even_if_listed(host: str) -> None:
    with pytest.raises(AddressBlocked):
        await build_policy("0.0.0.0/0", "::/0", f"{host}/{ip_address(host).max_prefixlen}").resolve(host, 443)


async def test_t22_ports_of_other_services_are_allowed_only_in_listed_networks() -> None:
    for port in (22, 25, 80, 1023):
        with pytest.raises(AddressBlocked, match="port"):
            await build_policy().resolve(PUBLIC, port)
    assert await build_policy("10.0.0.0/8").resolve("10.0.0.1", 80) == "10.0.0.1"


@pytest.mark.parametrize("listener", ["127.0.0.1", "0.0.0.0", "::ffff:127.0.0.1"])
async def test_t22_the_servers_own_listener_is_blocked_even_if_listed(listener: str) -> None:
    policy = build_policy(*PRIVATE_NETWORKS, own_addresses=[(listener, 8443)])
    for host in ("127.0.0.1", "::ffff:127.0.0.1"):
        with pytest.raises(AddressBlocked, match="that of this server"):
            await policy.resolve(host, 8443)
    assert await policy.resolve("127.0.0.1", 8444) == "127.0.0.1"


async def test_a_listener_on_all_addresses_does_not_block_other_machines() -> None:
    assert (
        await build_policy(*PRIVATE_NETWORKS, own_addresses=[("0.0.0.0", 8443)]).resolve("192.168.255.254", 8443)
        == "192.168.255.254"
    )


async def test_t22_a_name_is_resolved_once_and_its_address_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    lookups = fake_dns(monkeypatch, [PUBLIC], ["127.0.0.1"])
    assert await build_policy().resolve("rebind.example", 443) == PUBLIC
    assert lookups == ["rebind.example"]
    with pytest.raises(AddressBlocked) as caught:
        await build_policy().resolve("rebind.example", 443)
    assert "127.0.0.1" not in caught.value.message
    assert "rebind" not in caught.value.message


async def test_t22_the_first_allowed_address_of_a_name_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_dns(monkeypatch, ["10.0.0.1", PUBLIC], ["169.254.169.254", "10.0.0.1"])
    assert await build_policy().resolve("two.example", 443) == PUBLIC
    with pytest.raises(AddressBlocked):
        await build_policy().resolve("two.example", 443)


async def test_an_unknown_name_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_dns(monkeypatch, [])
    with pytest.raises(Unreachable, match="does not resolve"):
        await build_policy().resolve("nowhere.example", 443)


async def test_an_invalid_name_is_unreachable() -> None:
    with pytest.raises(Unreachable, match="does not resolve"):
        await build_policy().resolve("a" * 70 + ".example", 443)
