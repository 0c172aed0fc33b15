"""Names, label keys and label values: what is one, what is none, and that hostile texts are refused quickly."""

from collections.abc import Callable, Iterator

import pytest

from fairlead.registry.names import (
    label_faults,
    path_segment_faults,
    qualified_faults,
    subdomain_faults,
    value_faults,
)

Faults = Callable[[str], Iterator[str]]

FINE: list[tuple[Faults, str]] = [
    (subdomain_faults, "a"),
    (subdomain_faults, "0"),
    (subdomain_faults, "a.b-c.0"),
    (subdomain_faults, "a" * 253),
    (label_faults, "a-b"),
    (label_faults, "0" * 63),
    (qualified_faults, "a"),
    (qualified_faults, "A_b.c-9"),
    (qualified_faults, "example.com/Name"),
    (qualified_faults, f"{'a' * 253}/{'b' * 63}"),
    (value_faults, ""),
    (value_faults, "A_b.c-9"),
    (value_faults, "a" * 63),
    (path_segment_faults, "anything: goes!"),
    (path_segment_faults, "..."),
]

BAD: list[tuple[Faults, str, str]] = [
    (subdomain_faults, "", "lowercase RFC 1123 subdomain"),
    (subdomain_faults, "A", "lowercase RFC 1123 subdomain"),
    (subdomain_faults, "a_b", "lowercase RFC 1123 subdomain"),
    (subdomain_faults, "-a", "lowercase RFC 1123 subdomain"),
    (subdomain_faults, "a-", "lowercase RFC 1123 subdomain"),
    (subdomain_faults, "a..b", "lowercase RFC 1123 subdomain"),
    (subdomain_faults, ".a", "lowercase RFC 1123 subdomain"),
    (subdomain_faults, "a\n", "lowercase RFC 1123 subdomain"),
    (subdomain_faults, "ä", "lowercase RFC 1123 subdomain"),
    (subdomain_faults, "٣", "lowercase RFC 1123 subdomain"),
    (subdomain_faults, "a" * 254, "no more than 253"),
    (label_faults, "a.b", "lowercase RFC 1123 label"),
    (label_faults, "a" * 64, "no more than 63"),
    (label_faults, "a\n", "lowercase RFC 1123 label"),
    (qualified_faults, "", "name part must be non-empty"),
    (qualified_faults, "/a", "prefix part must be non-empty"),
    (qualified_faults, "a/", "name part must be non-empty"),
    (qualified_faults, "a/b/c", "a valid label key must consist of"),
    (qualified_faults, "Example.com/a", "prefix part a lowercase RFC 1123 subdomain"),
    (qualified_faults, "-a", "name part must consist of"),
    (qualified_faults, "a b", "name part must consist of"),
    (qualified_faults, "a" * 64, "name part must be no more than 63"),
    (qualified_faults, f"{'a' * 254}/b", "prefix part must be no more than 253"),
    (value_faults, "a-", "a valid label must be an empty string or consist of"),
    (value_faults, " ", "a valid label must be an empty string or consist of"),
    (value_faults, "a\n", "a valid label must be an empty string or consist of"),
    (value_faults, "ä", "a valid label must be an empty string or consist of"),
    (value_faults, "a" * 64, "no more than 63"),
    (path_segment_faults, ".", "may not be '.'"),
    (path_segment_faults, "..", "may not be '..'"),
    (path_segment_faults, "a/b", "may not contain '/'"),
    (path_segment_faults, "a%2f", "may not contain '%'"),
]


@pytest.mark.parametrize(("faults", "text"), FINE)
def test_what_is_a_name_has_no_faults(faults: Faults, text: str) -> None:
    assert list(faults(text)) == []


@pytest.mark.parametrize(("faults", "text", "why"), BAD)
def test_what_is_none_is_told_why(faults: Faults, text: str, why: str) -> None:
    assert any(why in fault for fault in faults(text))


@pytest.mark.parametrize("faults", [subdomain_faults, label_faults, qualified_faults, value_faults])
@pytest.mark.parametrize("text", ["a-" * 500_000, "a" * 1_000_000 + "!", "a." * 500_000 + "!", "a/" * 500_000])
def test_a_text_of_a_megabyte_is_refused_without_long_thought(faults: Faults, text: str) -> None:
    """A pattern that went back and forth over it would keep this test from ever ending."""
    assert list(faults(text))


def test_every_fault_of_a_name_is_told_at_once() -> None:
    assert len(list(subdomain_faults("A" * 300))) == 2
    assert len(list(qualified_faults(f"{'A' * 300}/{'!' * 64}"))) == 4
