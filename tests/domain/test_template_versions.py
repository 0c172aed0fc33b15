"""Tests of template versions in `fairlead.domain.template_resolution`: versions, patterns and the newest match."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.domain.template_versions import best_match, newest_version, parse_pattern, parse_version


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1.4.0", (1, 4, 0)),
        ("0.0.0", (0, 0, 0)),
        ("10.20.30", (10, 20, 30)),
        ("1.4", None),
        ("1.4.0.0", None),
        ("v1.4.0", None),
        ("1.4.x", None),
        ("1.4.0-rc1", None),
        ("1.4.0\n", None),
        ("1.4.\u0663", None),
        ("1.4." + "9" * 5_000, None),
        ("", None),
    ],
)
def test_a_version_is_three_numbers(text: str, expected: object) -> None:
    assert parse_version(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1.2.x", (1, 2, None)),
        ("x.x.x", (None, None, None)),
        ("x.2.0", (None, 2, 0)),
        ("1.2.3", (1, 2, 3)),
        ("1.2.X", None),
        ("1.x", None),
        ("latest", None),
    ],
)
def test_each_part_of_a_pattern_can_be_a_wildcard(text: str, expected: object) -> None:
    assert parse_pattern(text) == expected


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("x.x.x", "2.0.0"),
        ("1.x.x", "1.10.1"),
        ("1.2.x", "1.2.9"),
        ("1.2.3", "1.2.3"),
        ("3.x.x", None),
        ("x.2.x", "1.2.9"),
    ],
)
def test_the_newest_matching_version_is_chosen_by_number(pattern: str, expected: str | None) -> None:
    parsed = parse_pattern(pattern)
    assert parsed is not None
    versions = ["1.2.3", "1.10.1", "1.2.9", "1.9.0", "2.0.0", "not-a-version"]
    assert best_match(parsed, versions) == expected


def test_without_versions_there_is_no_newest_version() -> None:
    assert newest_version([]) is None
    assert newest_version(["latest"]) is None


numbers = st.tuples(*(st.integers(0, 999),) * 3)


@given(st.lists(numbers, min_size=1))
def test_the_newest_version_is_the_largest(versions: list[tuple[int, int, int]]) -> None:
    assert newest_version(".".join(map(str, version)) for version in versions) == ".".join(map(str, max(versions)))
