"""The Accept header: what it says, and what becomes of one that says nonsense."""

import pytest

from fairlead.server.api.content import MediaRange, negotiate_media_type, parse_accept

JSON, YAML = "application/json", "application/yaml"
BOTH = (JSON, YAML)


def test_no_header_means_anything() -> None:
    assert parse_accept("") == (MediaRange("*/*"),)


def test_parameters_ask_for_a_view() -> None:
    (wish,) = parse_accept("application/json;as=Table;v=v1;g=meta.k8s.io")
    assert wish == MediaRange(JSON, "Table", "meta.k8s.io", "v1", 1.0)


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
    ],
)
def test_the_best_comes_first_and_equals_keep_their_order(header: str, order: list[str]) -> None:
    assert [wish.media_type for wish in parse_accept(header)] == order


@pytest.mark.parametrize("quality", ["0", "0.0", "0.000", "-1", "nan", "much", ""])
def test_a_quality_of_nothing_or_of_no_number_is_no_wish(quality: str) -> None:
    assert parse_accept(f"application/json;q={quality}") == ()


@pytest.mark.parametrize(
    "header", ["application/json;;", "application/json;level", "application/json;=", ",application/json,"]
)
def test_what_cannot_be_read_is_passed_over(header: str) -> None:
    assert [wish.media_type for wish in parse_accept(header)] == [JSON]


@pytest.mark.parametrize(
    ("media_type", "covered"),
    [("*/*", True), ("application/*", True), (JSON, True), ("text/*", False), (YAML, False), ("*", False)],
)
def test_wildcards_cover_what_they_say(media_type: str, covered: bool) -> None:
    assert MediaRange(media_type).matches(JSON) is covered


@pytest.mark.parametrize(
    ("header", "chosen"),
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
        (f"{JSON};q=0", ""),
        ("\x00,\xff", ""),
    ],
)
def test_the_first_offer_that_the_best_wish_covers_is_taken(header: str, chosen: str) -> None:
    assert negotiate_media_type(header, BOTH) == chosen


def test_a_header_of_thousands_of_entries_is_not_kept_in_memory_as_such() -> None:
    """Anybody can send one, without a credential, and what is made of it is remembered."""
    assert len(parse_accept("a/b," * 15_000)) <= 100
