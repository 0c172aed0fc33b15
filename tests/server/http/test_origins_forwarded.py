"""Tests of `fairlead.server.http.origins`: the client behind trusted proxies."""

import pytest

from fairlead.server.http.origins import MAX_HEADER_BYTES, MAX_PROXIES, Route, TrustedProxies
from fairlead.server.http.request import RequestHeaders

PROXIES = TrustedProxies(("10.0.0.0/8", "fd00::/8"))


def trace(peer: str, *values: str, **others: str) -> Route:
    pairs = [(b"x-forwarded-for", value.encode()) for value in values]
    return PROXIES.trace(peer, RequestHeaders([*pairs, *((name.encode(), v.encode()) for name, v in others.items())]))


@pytest.mark.parametrize(
    ("values", "client", "passed"),
    [
        (["192.0.2.1"], "192.0.2.1", ("10.1.1.1",)),
        (["192.0.2.1, 10.2.2.2"], "192.0.2.1", ("10.2.2.2", "10.1.1.1")),
        (["203.0.113.9, 192.0.2.1"], "192.0.2.1", ("10.1.1.1",)),
        (["127.0.0.1, 10.9.9.9, 192.0.2.1, 10.2.2.2"], "192.0.2.1", ("10.2.2.2", "10.1.1.1")),
        (["192.0.2.1", "10.2.2.2"], "192.0.2.1", ("10.2.2.2", "10.1.1.1")),
        (["192.0.2.1:4711"], "192.0.2.1", ("10.1.1.1",)),
        (["[2001:db8::1]:4711"], "2001:db8::1", ("10.1.1.1",)),
        (["2001:DB8:0::1"], "2001:db8::1", ("10.1.1.1",)),
        (["::ffff:192.0.2.1"], "192.0.2.1", ("10.1.1.1",)),
        (["10.3.3.3, 10.2.2.2"], "10.3.3.3", ("10.2.2.2", "10.1.1.1")),
    ],
)
def test_the_client_is_the_last_address_that_is_not_a_trusted_proxy(
    values: list[str], client: str, passed: tuple[str, ...]
) -> None:
    assert trace("10.1.1.1", *values) == (client, passed)


@pytest.mark.parametrize("peer", ["192.0.2.7", "11.0.0.1", "::1", "", "unix"])
def test_the_header_of_others_is_ignored(peer: str) -> None:
    assert trace(peer, "203.0.113.9") == ("", ())


@pytest.mark.parametrize(
    "value",
    [
        "",
        "unknown",
        "_hidden",
        "1.2.3",
        "1.2.3.4.5",
        "192.0.2.1:",
        "192.0.2.1:http",
        "[192.0.2.1",
        "fe80::1%eth0",
        "a,",
    ],
)
def test_a_malformed_address_ends_the_route_at_the_last_trusted_proxy(value: str) -> None:
    assert trace("10.1.1.1", f"203.0.113.9, {value}") == ("10.1.1.1", ())
    assert trace("10.1.1.1", f"203.0.113.9, {value}, 10.2.2.2") == ("10.2.2.2", ("10.1.1.1",))


def test_without_the_header_the_client_is_the_proxy() -> None:
    assert trace("10.1.1.1") == ("10.1.1.1", ())


def test_an_entry_that_is_not_ascii_ends_the_route_and_does_not_hide_the_client() -> None:
    def trace_raw(*values: bytes) -> Route:
        return PROXIES.trace("10.1.1.1", RequestHeaders([(b"x-forwarded-for", value) for value in values]))

    assert trace_raw(b"\xe9, 192.0.2.1") == trace_raw(b"\xe9", b"192.0.2.1") == ("192.0.2.1", ("10.1.1.1",))
    assert trace_raw(b"\xe9, 192.0.2.1, 10.2.2.2") == ("192.0.2.1", ("10.2.2.2", "10.1.1.1"))
    assert trace_raw(b"192.0.2.1", b"\xe9") == trace_raw(b"192.0.2.1\xa0") == ("10.1.1.1", ())
    assert trace_raw(b"192.0.2.\xb9") == ("10.1.1.1", ())  # a digit, but not one of an address


def test_the_header_counts_even_if_it_is_declared_as_hop_by_hop() -> None:
    assert trace("10.1.1.1", "192.0.2.1", connection="close, X-Forwarded-For") == ("192.0.2.1", ("10.1.1.1",))


def test_proxies_may_be_reached_by_ipv6() -> None:
    assert trace("fd00::1", "192.0.2.1") == ("192.0.2.1", ("fd00::1",))
    assert trace("::ffff:10.1.1.1", "192.0.2.1") == ("192.0.2.1", ("10.1.1.1",))


def test_only_the_end_of_a_huge_header_is_read() -> None:
    forged = "203.0.113.9, " * 10_000
    assert trace("10.1.1.1", forged + "192.0.2.1") == ("192.0.2.1", ("10.1.1.1",))
    # An address that is cut off is not used, even if what is left of it is one.
    text = "192.0.2.155," + "10.2.2.2".rjust(MAX_HEADER_BYTES - len("155,"))
    assert trace("10.1.1.1", text) == ("10.2.2.2", ("10.1.1.1",))


def test_the_number_of_proxies_is_bounded() -> None:
    client, passed = trace("10.1.1.1", "192.0.2.1" + ", 10.2.2.2" * 100)
    assert (client, len(passed)) == ("10.2.2.2", MAX_PROXIES)


def test_a_route_does_not_depend_on_earlier_requests() -> None:
    proxies = TrustedProxies(("10.0.0.0/8",))
    for peer, expected in (("10.1.1.1", "192.0.2.1"), ("192.0.2.7", ""), ("10.1.1.1", "192.0.2.1")):
        assert proxies.trace(peer, RequestHeaders([(b"x-forwarded-for", b"192.0.2.1")]))[0] == expected


def test_there_are_no_trusted_proxies_by_default() -> None:
    assert TrustedProxies(()).networks == ()
    assert TrustedProxies(()).trace("10.1.1.1", RequestHeaders([(b"x-forwarded-for", b"192.0.2.1")])) == ("", ())
