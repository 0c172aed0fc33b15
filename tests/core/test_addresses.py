"""The table of protected and private addresses, in every form in which an address can be written."""

from ipaddress import ip_address

import pytest

from fairlead.core.addresses import all_forms, is_loopback, is_no_host, is_private, is_protected


@pytest.mark.parametrize(
    "text",
    [
        *("169.254.169.254", "169.254.20.10", "100.100.100.200", "168.63.129.16", "192.0.0.192"),
        *("fe80::1", "fd00:ec2::254", "fd20:ce::254"),
        *("::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1", "::169.254.169.254"),
    ],
)
def test_metadata_services_are_protected_in_every_form(text: str) -> None:
    assert any(map(is_protected, all_forms(ip_address(text))))


@pytest.mark.parametrize("text", ["127.0.0.1", "10.1.2.3", "100.64.0.1", "fd00::1", "::1", "64:ff9b::7f00:1"])
def test_private_addresses_are_private_in_every_form_and_not_protected(text: str) -> None:
    assert any(map(is_private, all_forms(ip_address(text))))
    assert not any(map(is_protected, all_forms(ip_address(text))))


@pytest.mark.parametrize("text", ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_public_addresses_are_neither(text: str) -> None:
    forms = all_forms(ip_address(text))
    assert not any(is_private(each) or is_protected(each) or is_no_host(each) for each in forms)


@pytest.mark.parametrize(("host", "expected"), [("localhost", True), ("127.9.9.9", True), ("::1", True), ("a", False)])
def test_loopback_is_known_by_name_and_by_address(host: str, expected: bool) -> None:
    assert is_loopback(host) == expected
