"""server.api.content: parsing of Accept headers, and the choice of a media type."""

import pytest

from fairlead.server.api.content import MediaRange, negotiate_media_type, parse_accept

JSON, YAML = "application/json", "application/yaml"
BOTH = (JSON, YAML)


def test_a_missing_header_accepts_anything() -> None:
    assert parse_accept("") == (MediaRange("*/*"),)


def test_parameters_request_a_view() -> None:
    (media_range,) = parse_accept("application/json;as=Table;v=v1;g=meta.k8s.io")
    assert media_range == MediaRange(JSON, "Table", "meta.k8s.io", "v1", 1.0)


def test_spaces_and_case_of_the_media_type_do_not_matter() -> None:
    assert parse_accept(" Application/JSON ; as=Table ; v=v1 ; g=meta.k8s.io ") == parse_accept(
        "application/json;as=Table;v=v1;g=meta.k8s.io"
    )


@pytest.mark.parametrize(
    ("header", "order"),
    [
        ("a/a;q=0.1,b/b;q=0.9,c/c;q=0.5", ["b/b", "c/c", "a/a"]),
        ("a/a;q=0.5,b/b", ["b/b", "a/a"]),
        ("a/a,b/b", ["a/a", "b/b"]),
        ("a/a;q=1.0,b/b;q=1", ["a/a", "b/b"]),
        ("a/a;as=Table;v=v1;g=meta.k8s.io;q=0.2,b/b;q=0.3", ["b/b", "a/a"]),
        ("*/*,a/*,a/a", ["a/a", "a/*", "*/*"]),
        ("*/*;q=0.9,a/a;q=0.1", ["*/*", "a/a"]),
    ],
)
def test_media_ranges_are_sorted_by_quality_and_the_order_is_stable(header: str, order: list[str]) -> None:
    assert [media_range.media_type for media_range in parse_accept(header)] == order


@pytest.mark.parametrize("quality", ["0", "0.0", "0.000", "-1", "nan", "much", ""])
def test_a_quality_of_zero_or_that_is_not_a_number_is_the_lowest(quality: str) -> None:
    header = f"application/json;q={quality},application/yaml;q=0.001"
    assert [media_range.media_type for media_range in parse_accept(header)] == [YAML, JSON]


@pytest.mark.parametrize(
    "header", ["application/json;;", "application/json;level", "application/json;=", ",application/json,"]
)
def test_malformed_parameters_are_ignored(header: str) -> None:
    assert [media_range.media_type for media_range in parse_accept(header)] == [JSON]


@pytest.mark.parametrize(
    ("media_type", "is_match"),
    [("*/*", True), ("application/*", True), (JSON, True), ("text/*", False), (YAML, False), ("*", True)],
)
def test_wildcards_match_media_types(media_type: str, is_match: bool) -> None:
    assert MediaRange(media_type).matches(JSON) is is_match


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("", JSON),
        ("*/*", JSON),
        ("application/*", JSON),
        (YAML, YAML),
        (f"{YAML};q=0.4,{JSON};q=0.5", JSON),
        (f"{YAML};q=0.6,{JSON};q=0.5", YAML),
        (f"text/html,{YAML};q=0.1", YAML),
        ("text/html", ""),
        ("text/*", ""),
        (f"{JSON};as=Table;v=v1;g=meta.k8s.io", ""),
        (f"{JSON};as=Table;v=v1;g=meta.k8s.io,{YAML}", YAML),
        (f"{JSON};q=0", JSON),
        (f"*/*,{YAML}", YAML),
        ("\x00,\xff", ""),
    ],
)
def test_the_first_offer_that_matches_the_preferred_media_range_is_chosen(header: str, expected: str) -> None:
    assert negotiate_media_type(header, BOTH) == expected


def test_the_number_of_parsed_media_ranges_is_limited() -> None:
    """Unauthenticated clients can send long headers, and the parsed result is cached."""
    assert len(parse_accept("a/b," * 15_000)) <= 100
