"""registry/selectors.py: which objects a labelSelector or fieldSelector matches, and which strings are rejected."""

import time
from collections.abc import Mapping
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.core.errors import BadRequest
from fairlead.registry import limits
from fairlead.registry.selectors import EVERYTHING, Selector, parse_fields, parse_labels, selected_name

FIELDS = ("metadata.name", "metadata.namespace", "status.phase")

LABELS: list[tuple[str, Mapping[str, str], bool]] = [
    ("", {}, True),
    ("  ", {"a": "1"}, True),
    ("a=1", {"a": "1"}, True),
    ("a=1", {"a": "2"}, False),
    ("a=1", {}, False),
    ("a==1", {"a": "1"}, True),
    ("a=", {"a": ""}, True),
    ("a=", {"a": "1"}, False),
    ("a=", {}, False),
    ("a!=1", {"a": "2"}, True),
    ("a!=1", {}, True),
    ("a!=1", {"a": "1"}, False),
    ("a!=", {"a": ""}, False),
    ("a", {"a": ""}, True),
    ("a", {}, False),
    ("!a", {}, True),
    ("!a", {"a": ""}, False),
    ("! a", {}, True),
    ("a in (1,2)", {"a": "2"}, True),
    ("a in (1,2)", {"a": "3"}, False),
    ("a in (1,2)", {}, False),
    ("a in ()", {"a": ""}, True),
    ("a in (,1)", {"a": ""}, True),
    ("a in (1,)", {"a": ""}, True),
    ("a notin (1,2)", {"a": "1"}, False),
    ("a notin (1,2)", {"a": "3"}, True),
    ("a notin (1,2)", {}, True),
    ("a>5", {"a": "6"}, True),
    ("a>5", {"a": "5"}, False),
    ("a>5", {"a": "x"}, False),
    ("a>5", {}, False),
    ("a<5", {"a": "4"}, True),
    ("a < 5", {"a": "5"}, False),
    ("a>1", {"a": "-5"}, False),
    (" a = 1 , b ", {"a": "1", "b": ""}, True),
    ("a=1,b", {"a": "1"}, False),
    ("a=1,a=2", {"a": "1"}, False),
    ("!a,b notin (c),d", {"d": "x"}, True),
    ("in in (in)", {"in": "in"}, True),
    ("notin", {"notin": ""}, True),
    ("example.com/a=b", {"example.com/a": "b"}, True),
    ("a in(1)", {"a": "1"}, True),
    ("a=1\t,\nb", {"a": "1", "b": "x"}, True),
]

INVALID_LABELS = [
    *(",", "a,", ",a", "a,,b", "a=1,", "=", "=1", "!", "!!a", "!a=1", "a=!b", "a=b=c", "a=1 b", "a b", "a in 1"),
    *("a in", "a in (", "a in (1", "a in 1)", "a in (1 2)", "a in (1))", "a in ((1))", "(a)", "a notin", "a in (1) b"),
    *("a>", "a>x", "a>1.5", "a<(1)", "a>>1", "a===b", "a!==b", "a==!b"),
    *("-a=1", "a/b/c", "/a=1", "a=-1", "a=b/c", "a=ä", f"a={'x' * 64}", "a in (-x)", "a!=-x", "a=1;b=2", "a&b"),
]


@pytest.mark.parametrize(("text", "labels", "accepted"), LABELS)
def test_a_label_selector_matches_labels(text: str, labels: Mapping[str, str], accepted: bool) -> None:
    assert Selector(parse_labels(text)).matches_values(labels, {}) is accepted


@pytest.mark.parametrize("text", INVALID_LABELS)
def test_an_invalid_label_selector_is_rejected(text: str) -> None:
    with pytest.raises(BadRequest):
        parse_labels(text)


@pytest.mark.parametrize("value", ["1_0", "0x9", "9.0", "9-"])
def test_only_plain_integers_are_compared(value: str) -> None:
    """A label may contain `1_0`, which only Python reads as ten."""
    assert not Selector(parse_labels("a>5")).matches_values({"a": value}, {})


def test_a_number_of_thousands_of_digits_is_compared_or_rejected() -> None:
    try:
        selector = Selector(parse_labels("a>" + "9" * 5_000))
    except BadRequest:
        return
    assert not selector.matches_values({"a": "5"}, {})


@given(st.text(alphabet="ab=!(),<> in/.-_\n\\", max_size=25))
def test_any_string_is_a_valid_label_selector_or_a_bad_request(text: str) -> None:
    with suppress(BadRequest):
        Selector(parse_labels(text)).matches_values({"a": "b"}, {})


@given(
    st.dictionaries(st.sampled_from("abc"), st.sampled_from(["", "1", "x"])),
    st.lists(st.tuples(st.sampled_from("abc"), st.sets(st.sampled_from(["", "1", "x"]), min_size=1)), max_size=3),
)
def test_notin_is_the_opposite_of_in_and_requirements_are_combined_with_and(
    labels: dict[str, str], terms: list[tuple[str, set[str]]]
) -> None:
    for key, values in terms:
        listed = ",".join(sorted(values))
        inside = Selector(parse_labels(f"{key} in ({listed})")).matches_values(labels, {})
        outside = Selector(parse_labels(f"{key} notin ({listed})")).matches_values(labels, {})
        assert inside is (labels.get(key) in values)
        assert outside is not inside
    text = ",".join(f"{key} in ({','.join(sorted(values))})" for key, values in terms)
    assert Selector(parse_labels(text)).matches_values(labels, {}) is all(
        labels.get(key) in values for key, values in terms
    )


FIELD_CASES: list[tuple[str, str, bool]] = [
    ("", "x", True),
    ("metadata.name=x", "x", True),
    ("metadata.name=x", "y", False),
    ("metadata.name==x", "x", True),
    ("metadata.name!=x", "x", False),
    ("metadata.name!=x", "y", True),
    ("metadata.name=x,metadata.name!=x", "x", False),
    ("metadata.name=x,,metadata.name=x", "x", True),
    ("metadata.name=", "x", False),
    ("metadata.name!=", "x", True),
    (r"metadata.name=a\,b", "a,b", True),
    (r"metadata.name=a\=b", "a=b", True),
    (r"metadata.name=a\\b", r"a\b", True),
    (r"metadata.name=a\\,metadata.name=b", "a\\", False),
    (r"metadata.name=a\\,metadata.name!=b", "a\\", True),
    (r"metadata.name=a\\\,b", "a\\,b", True),
    ("metadata.name=a!b", "a!b", True),
    ("metadata.name=a b", "a b", True),
]

INVALID_FIELDS = [
    *("metadata.name", "=x", "metadata.name=a=b", "spec.secret=x", "metadata.uid=x", "metadata.labels.a=x", "!x"),
    *(r"metadata.name=a\b", "metadata.name=a\\", r"metadata.name=a\\=b", "metadata.name>x", "metadata.name in (a)"),
]


@pytest.mark.parametrize(("text", "name", "accepted"), FIELD_CASES)
def test_a_field_selector_matches_fields(text: str, name: str, accepted: bool) -> None:
    assert Selector((), parse_fields(text, FIELDS)).matches_values({}, {"metadata.name": name}) is accepted


@pytest.mark.parametrize("text", INVALID_FIELDS)
def test_an_invalid_field_selector_is_rejected(text: str) -> None:
    with pytest.raises(BadRequest):
        parse_fields(text, FIELDS)


def test_an_error_names_the_unsupported_field() -> None:
    with pytest.raises(BadRequest, match=r"field label not supported: spec\.secret"):
        parse_fields("metadata.name=a,spec.secret=x", FIELDS)


@given(st.text(alphabet="ab=!\\, ", max_size=20))
def test_an_escaped_value_matches_exactly_itself(value: str) -> None:
    escaped = value.replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=")
    (requirement,) = parse_fields(f"metadata.name={escaped}", FIELDS)
    assert requirement.values == {value}


def test_labels_and_fields_must_both_match() -> None:
    selector = Selector(parse_labels("a=1"), parse_fields("status.phase=Ready", FIELDS))
    assert selector.matches_values({"a": "1"}, {"status.phase": "Ready"})
    assert not selector.matches_values({"a": "2"}, {"status.phase": "Ready"})
    assert not selector.matches_values({"a": "1"}, {"status.phase": ""})


def test_selected_name_finds_a_single_metadata_name() -> None:
    assert selected_name("status.phase=a,metadata.name=x") == "x"
    assert selected_name("metadata.name==x") == "x"
    assert selected_name("metadata.name!=x") == ""
    assert selected_name("metadata.namex=x,metadata.name=x\\,y") == ""
    assert selected_name("") == ""


def test_a_selector_with_requirements_is_truthy() -> None:
    assert not EVERYTHING
    assert not Selector(parse_labels(" "), parse_fields(",", FIELDS))
    assert Selector(parse_labels("a"))
    assert Selector((), parse_fields("status.phase=", FIELDS))


def test_trailing_spaces_are_parsed_in_linear_time() -> None:
    start = time.thread_time()
    assert parse_labels("a=b" + " " * 30_000) == parse_labels("a=b")
    assert time.thread_time() - start < 1.0  # quadratic parsing takes seconds


def measure_cpu(selector: str) -> float:
    """Returns the CPU seconds of this thread."""
    start = time.thread_time()
    with suppress(BadRequest):
        parse_labels(selector)
    with suppress(BadRequest):
        parse_fields(selector, FIELDS)
    return time.thread_time() - start


MAX_LENGTH = limits.SELECTOR_LENGTH


@pytest.mark.parametrize(
    "selector",
    [
        "a" + " " * (MAX_LENGTH - 1),
        " " * (MAX_LENGTH - 1) + "a",
        "a=" + "\\" * (MAX_LENGTH - 2),
        "!" * MAX_LENGTH,
        "," * MAX_LENGTH,
        "a" * MAX_LENGTH,
        "a.b/" * (MAX_LENGTH // 4),
        "a in (" + "," * (MAX_LENGTH - 7) + ")",
    ],
    ids=lambda selector: selector[:6],
)
def test_a_selector_is_parsed_in_linear_time(selector: str) -> None:
    """A backtracking pattern needs seconds for these."""
    assert measure_cpu(selector) < 0.5


def test_a_selector_that_is_too_long_is_rejected() -> None:
    parse_labels("a in (" + " " * (MAX_LENGTH - 8) + "b)")
    with pytest.raises(BadRequest, match="labelSelector is too long: 32769 characters; 32768 is the limit"):
        parse_labels("a" + " " * MAX_LENGTH)
    with pytest.raises(BadRequest, match="fieldSelector is too long"):
        parse_fields("metadata.name=" + "a" * MAX_LENGTH, FIELDS)


def test_a_selector_with_too_many_terms_is_rejected() -> None:
    terms = [f"!l{number}" for number in range(limits.SELECTOR_TERMS)]
    assert len(parse_labels(",".join(terms))) == limits.SELECTOR_TERMS
    with pytest.raises(BadRequest, match="labelSelector has too many terms: 64 is the limit"):
        parse_labels(",".join([*terms, "more"]))
    names = [f"metadata.name!=n{number}" for number in range(limits.SELECTOR_TERMS + 1)]
    with pytest.raises(BadRequest, match="fieldSelector has too many terms"):
        parse_fields(",".join(names), FIELDS)


def test_repeated_terms_are_merged() -> None:
    assert len(parse_labels(",".join(["a=1"] * 1_000))) == 1
    assert len(parse_fields(",".join(["metadata.name=a"] * 1_000), FIELDS)) == 1


def test_a_term_with_too_many_values_is_rejected() -> None:
    values = [str(number) for number in range(limits.SELECTOR_VALUES)]
    [term] = parse_labels(f"a in ({','.join(values)})")
    assert len(term.values) == limits.SELECTOR_VALUES
    with pytest.raises(BadRequest, match="too many values in one term; 2000 is the limit"):
        parse_labels(f"a notin ({','.join([*values, 'x'])})")


@pytest.mark.parametrize("selector", ["x" * 30_000, "a=" + "x" * 30_000, "a>" + "x" * 30_000])
def test_errors_quote_a_truncated_selector(selector: str) -> None:
    for parse in (parse_labels, lambda text: parse_fields(text, FIELDS)):
        with pytest.raises(BadRequest) as caught:
            parse(selector)
        assert len(caught.value.message) < 3_000


def test_the_batch_size_shrinks_with_the_number_of_requirements() -> None:
    few, many = parse_labels("a=b,c=d"), parse_labels(",".join(f"label-{number}!=x" for number in range(64)))
    assert Selector().batch_size(2_000) == Selector(few).batch_size(2_000) == 2_000
    assert 64 * Selector(many).batch_size(2_000) <= 4 * 2_000
    assert Selector(many, many).batch_size(1) == 1
