"""Tests of `core/validators.py`: texts that must be an address or a name."""

from collections.abc import Callable

import pytest

from fairlead.core.validators import (
    check_api_group,
    check_base_url,
    check_host_name,
    check_ip_address,
    check_namespace_prefix,
)

Check = Callable[[str], str | None]


@pytest.mark.parametrize(
    ("check", "value"),
    [
        (check_ip_address, "0.0.0.0"),
        (check_ip_address, "::1"),
        (check_host_name, "localhost"),
        (check_host_name, "*.example.com"),
        (check_host_name, "192.0.2.7"),
        (check_base_url, "https://fairlead.example.com"),
        (check_base_url, "https://192.0.2.7:8443"),
        (check_base_url, "https://[2001:db8::1]:8443"),
        (check_api_group, "management.service.sh"),
        (check_namespace_prefix, "service-p-"),
    ],
)
def test_a_valid_text_is_accepted(check: Check, value: str) -> None:
    assert check(value) is None


@pytest.mark.parametrize(
    ("check", "value"),
    [
        (check_ip_address, "localhost"),
        (check_ip_address, ""),
        (check_host_name, "Example.com"),
        (check_host_name, "a..b"),
        (check_host_name, "-a"),
        (check_host_name, "a b"),
        (check_base_url, "http://fairlead.example.com"),
        (check_base_url, "fairlead.example.com"),
        (check_base_url, "https://"),
        (check_base_url, "https://host/"),
        (check_base_url, "https://host/path"),
        (check_base_url, "https://host?query"),
        (check_base_url, "https://user@host"),
        (check_base_url, "https://host:0"),
        (check_base_url, "https://host:99999"),
        (check_base_url, "https://*.host"),
        (check_base_url, "https://[::1"),
        (check_api_group, "apps"),
        (check_api_group, "*.service.sh"),
        (check_api_group, ""),
        (check_namespace_prefix, "-p"),
        (check_namespace_prefix, "Service-"),
        (check_namespace_prefix, "p" * 33),
    ],
)
def test_an_invalid_text_is_rejected_with_the_expected_form(check: Check, value: str) -> None:
    assert (check(value) or "").startswith("must ")
