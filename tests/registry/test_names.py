"""registry/names.py: validation of names, label keys and label values."""

from collections.abc import Callable, Iterator

import pytest

from fairlead.registry.names import (
    dns_label_errors,
    dns_subdomain_errors,
    label_value_errors,
    path_segment_errors,
    qualified_name_errors,
)

ErrorIterator = Callable[[str], Iterator[str]]

VALID: list[tuple[ErrorIterator, str]] = [
    (dns_subdomain_errors, "a"),
    (dns_subdomain_errors, "0"),
    (dns_subdomain_errors, "a.b-c.0"),
    (dns_subdomain_errors, "a" * 253),
    (dns_label_errors, "a-b"),
    (dns_label_errors, "0" * 63),
    (qualified_name_errors, "a"),
    (qualified_name_errors, "A_b.c-9"),
    (qualified_name_errors, "example.com/Name"),
    (qualified_name_errors, f"{'a' * 253}/{'b' * 63}"),
    (label_value_errors, ""),
    (label_value_errors, "A_b.c-9"),
    (label_value_errors, "a" * 63),
    (path_segment_errors, "anything: goes!"),
    (path_segment_errors, "..."),
]

INVALID: list[tuple[ErrorIterator, str, str]] = [
    (dns_subdomain_errors, "", "lowercase RFC 1123 subdomain"),
    (dns_subdomain_errors, "A", "lowercase RFC 1123 subdomain"),
    (dns_subdomain_errors, "a_b", "lowercase RFC 1123 subdomain"),
    (dns_subdomain_errors, "-a", "lowercase RFC 1123 subdomain"),
    (dns_subdomain_errors, "a-", "lowercase RFC 1123 subdomain"),
    (dns_subdomain_errors, "a..b", "lowercase RFC 1123 subdomain"),
    (dns_subdomain_errors, ".a", "lowercase RFC 1123 subdomain"),
    (dns_subdomain_errors, "a\n", "lowercase RFC 1123 subdomain"),
    (dns_subdomain_errors, "ä", "lowercase RFC 1123 subdomain"),
    (dns_subdomain_errors, "٣", "lowercase RFC 1123 subdomain"),
    (dns_subdomain_errors, "a" * 254, "no more than 253"),
    (dns_label_errors, "a.b", "lowercase RFC 1123 label"),
    (dns_label_errors, "a" * 64, "no more than 63"),
    (dns_label_errors, "a\n", "lowercase RFC 1123 label"),
    (qualified_name_errors, "", "name part must be non-empty"),
    (qualified_name_errors, "/a", "prefix part must be non-empty"),
    (qualified_name_errors, "a/", "name part must be non-empty"),
    (qualified_name_errors, "a/b/c", "a valid label key must consist of"),
    (qualified_name_errors, "Example.com/a", "prefix part a lowercase RFC 1123 subdomain"),
    (qualified_name_errors, "-a", "name part must consist of"),
    (qualified_name_errors, "a b", "name part must consist of"),
    (qualified_name_errors, "a" * 64, "name part must be no more than 63"),
    (qualified_name_errors, f"{'a' * 254}/b", "prefix part must be no more than 253"),
    (label_value_errors, "a-", "a valid label must be an empty string or consist of"),
    (label_value_errors, " ", "a valid label must be an empty string or consist of"),
    (label_value_errors, "a\n", "a valid label must be an empty string or consist of"),
    (label_value_errors, "ä", "a valid label must be an empty string or consist of"),
    (label_value_errors, "a" * 64, "no more than 63"),
    (path_segment_errors, ".", "may not be '.'"),
    (path_segment_errors, "..", "may not be '..'"),
    (path_segment_errors, "a/b", "may not contain '/'"),
    (path_segment_errors, "a%2f", "may not contain '%'"),
]


@pytest.mark.parametrize(("find_errors", "text"), VALID)
def test_a_valid_name_has_no_errors(find_errors: ErrorIterator, text: str) -> None:
    assert list(find_errors(text)) == []


@pytest.mark.parametrize(("find_errors", "text", "message"), INVALID)
def test_an_invalid_name_is_rejected_with_a_reason(find_errors: ErrorIterator, text: str, message: str) -> None:
    assert any(message in error for error in find_errors(text))


@pytest.mark.parametrize(
    "find_errors", [dns_subdomain_errors, dns_label_errors, qualified_name_errors, label_value_errors]
)
@pytest.mark.parametrize("text", ["a-" * 500_000, "a" * 1_000_000 + "!", "a." * 500_000 + "!", "a/" * 500_000])
def test_a_string_of_a_megabyte_is_rejected_in_linear_time(find_errors: ErrorIterator, text: str) -> None:
    """With a backtracking pattern this test would never end."""
    assert list(find_errors(text))


def test_all_errors_of_a_name_are_reported_together() -> None:
    assert len(list(dns_subdomain_errors("A" * 300))) == 2
    assert len(list(qualified_name_errors(f"{'A' * 300}/{'!' * 64}"))) == 4
