"""storage/etcd/address.py: the URL of the etcd store."""

import pytest

from fairlead.storage.etcd.address import EtcdAddress, parse_address


def test_a_host_is_a_valid_url() -> None:
    assert parse_address("//db", {}) == EtcdAddress(("db:2379",), "/fairlead/")


def test_all_parts_of_a_url_are_parsed() -> None:
    address = parse_address("//ann:p%40ss@a:1,[::1],b/some/prefix/?ca=/ca.pem&cert=c.pem&key=k.pem", {})
    assert address == EtcdAddress(
        ("a:1", "[::1]:2379", "b:2379"), "/some/prefix/", True, "/ca.pem", "c.pem", "k.pem", "ann", "p@ss"
    )


@pytest.mark.parametrize(("query", "tls"), [("", False), ("?tls=false", False), ("?tls=true", True), ("?ca=x", True)])
def test_tls_is_used_if_requested(query: str, tls: bool) -> None:
    assert parse_address(f"//db/{query}", {}).tls is tls


def test_the_password_can_come_from_the_environment_and_is_never_shown() -> None:
    address = parse_address("//ann@db", {"FAIRLEAD_ETCD_PASSWORD": "hunter2"})
    assert address.password == "hunter2"
    assert "hunter2" not in f"{address} {address!r}"


@pytest.mark.parametrize(
    ("rest", "problem"),
    [
        ("", "two slashes"),
        ("db:2379", "two slashes"),
        ("//", "host"),
        ("//a,,b", "host"),
        ("//db:port", "host"),
        ("//db:99999", "host"),
        ("//ann@db", "FAIRLEAD_ETCD_PASSWORD"),
        ("//db?sslmode=require", "sslmode"),
        ("//db?cert=c.pem", "key="),
        ("//db?tls=maybe", "tls="),
        ("//db?tls=false&ca=x", "tls=false"),
    ],
)
def test_an_invalid_url_is_rejected_with_the_reason(rest: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_address(rest, {})
