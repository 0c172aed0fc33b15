"""Where clusters may be (T-22): public addresses, and elsewhere only where the operator has said so."""

import socket
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Any

import pytest

from fairlead.upstream.address_policy import AddressPolicy
from fairlead.upstream.errors import AddressBlocked, Unreachable

PUBLIC = "93.184.215.14"
UP = ("127.0.0.0/8", "::1/128", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")


def policy(*networks: str, own: Sequence[tuple[str, int]] = ()) -> AddressPolicy:
    return AddressPolicy(networks, lambda: own)


def named(monkeypatch: pytest.MonkeyPatch, *answers: Sequence[str]) -> list[str]:
    """DNS that gives these answers, one after the other; what it was asked."""
    asked: list[str] = []
    left = list(answers)

    def look_up(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        asked.append(host)
        found = left.pop(0)
        if not found:
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in found]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return asked


@pytest.mark.parametrize("host", [PUBLIC, "2606:4700::1111", "64:ff9b::5db8:d70e", "2002:5db8:d70e::1"])
@pytest.mark.parametrize("port", [443, 1024, 6443, 65535])
async def test_public_addresses_are_reached(host: str, port: int) -> None:
    assert await policy().resolve(host, port) == host


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
    with pytest.raises(AddressBlocked) as raised:
        await policy().resolve(host, 443)
    assert host not in raised.value.message


@pytest.mark.parametrize("host", ["127.1", "0x7f000001", "2130706433", "0177.0.0.1"])
async def test_t22_odd_ways_to_write_loopback_are_blocked(host: str) -> None:
    with pytest.raises((AddressBlocked, Unreachable)):
        await policy().resolve(host, 443)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "10.1.2.3", "192.168.7.7", "fd12::1", PUBLIC])
async def test_what_is_listed_is_reached_beside_what_is_public(host: str) -> None:
    assert await policy(*UP).resolve(host, 6443) == host


async def test_an_address_in_ipv6_clothes_counts_as_what_it_is() -> None:
    assert await policy("127.0.0.0/8").resolve("::ffff:127.0.0.1", 6443) == "127.0.0.1"
    assert await policy("10.0.0.0/8").resolve("64:ff9b::a00:1", 6443) == "64:ff9b::a00:1"
    with pytest.raises(AddressBlocked):
        await policy("::/0").resolve("::ffff:127.0.0.1", 6443)


@pytest.mark.parametrize(
    "host", ["169.254.169.254", "fe80::1", "fd00:ec2::254", "100.100.100.200", "::ffff:169.254.169.254"]
)
async def test_t22_metadata_and_link_local_take_more_than_a_wide_network(host: str) -> None:
    with pytest.raises(AddressBlocked, match="metadata"):
        await policy("0.0.0.0/0", "::/0", *UP).resolve(host, 443)


async def test_link_local_is_reached_where_it_is_listed_as_such() -> None:
    assert await policy("169.254.7.0/24").resolve("169.254.7.1", 6443) == "169.254.7.1"
    assert await policy("fe80::/10").resolve("fe80::1", 6443) == "fe80::1"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "224.0.0.1", "ff02::1"])
async def test_t22_what_is_no_servers_address_is_blocked_whatever_is_listed(host: str) -> None:
    with pytest.raises(AddressBlocked):
        await policy("0.0.0.0/0", "::/0", f"{host}/{ip_address(host).max_prefixlen}").resolve(host, 443)


async def test_t22_ports_of_other_services_are_reached_only_where_listed() -> None:
    for port in (22, 25, 80, 1023):
        with pytest.raises(AddressBlocked, match="port"):
            await policy().resolve(PUBLIC, port)
    assert await policy("10.0.0.0/8").resolve("10.0.0.1", 80) == "10.0.0.1"


@pytest.mark.parametrize("listener", ["127.0.0.1", "0.0.0.0", "::ffff:127.0.0.1"])
async def test_t22_our_own_listener_is_blocked_even_if_listed(listener: str) -> None:
    here = policy(*UP, own=[(listener, 8443)])
    for host in ("127.0.0.1", "::ffff:127.0.0.1"):
        with pytest.raises(AddressBlocked, match="that of this server"):
            await here.resolve(host, 8443)
    assert await here.resolve("127.0.0.1", 8444) == "127.0.0.1"


async def test_a_listener_on_all_addresses_does_not_block_other_machines() -> None:
    assert await policy(*UP, own=[("0.0.0.0", 8443)]).resolve("192.168.255.254", 8443) == "192.168.255.254"


async def test_t22_a_name_is_resolved_once_and_its_address_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = named(monkeypatch, [PUBLIC], ["127.0.0.1"])
    assert await policy().resolve("rebind.example", 443) == PUBLIC
    assert asked == ["rebind.example"]
    with pytest.raises(AddressBlocked) as raised:
        await policy().resolve("rebind.example", 443)
    assert "127.0.0.1" not in raised.value.message
    assert "rebind" not in raised.value.message


async def test_t22_of_several_addresses_only_one_that_is_allowed_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    named(monkeypatch, ["10.0.0.1", PUBLIC], ["169.254.169.254", "10.0.0.1"])
    assert await policy().resolve("two.example", 443) == PUBLIC
    with pytest.raises(AddressBlocked):
        await policy().resolve("two.example", 443)


async def test_an_unknown_name_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    named(monkeypatch, [])
    with pytest.raises(Unreachable, match="does not resolve"):
        await policy().resolve("nowhere.example", 443)


async def test_what_can_be_no_name_is_unreachable() -> None:
    with pytest.raises(Unreachable, match="does not resolve"):
        await policy().resolve("a" * 70 + ".example", 443)
