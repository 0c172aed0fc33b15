"""Tests of `core/json`: invalid JSON, limits, exact values and duplicate keys."""

from __future__ import annotations

import json as stdlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.core import json
from fairlead.core.body_errors import MAX_DEPTH, MAX_DUPLICATE_KEYS, MAX_PATH_CHARS

BODY_LIMIT = 3 * 2**20

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5), max_leaves=30
)


def fill_body(piece: bytes, start: bytes = b"", end: bytes = b"") -> bytes:
    """Repeats the piece up to the size limit."""
    return start + piece * ((BODY_LIMIT - len(start) - len(end)) // len(piece)) + end


@given(values)
def test_a_value_round_trips_in_both_forms(value: Any) -> None:
    assert json.decode(json.encode(value)) == value
    assert json.decode(json.encode_pretty(value)) == value


def test_pretty_output_has_two_spaces_and_a_newline() -> None:
    assert json.encode_pretty({"a": [1], "b": {}}) == b'{\n  "a": [\n    1\n  ],\n  "b": {}\n}\n'


def test_compact_output_has_no_spaces() -> None:
    assert json.encode({"a": [1, "é"]}) == '{"a":[1,"é"]}'.encode()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "unexpected end of JSON input"),
        (b" \n", "unexpected end of JSON input"),
        (b'{"kind":"App",', "unexpected end of JSON input"),
        ('{"é":"éé'.encode(), "unexpected end of JSON input"),
        (b'{"a":1,}', "line 1 column 7"),
        (b'{\n"a": 1 "b"}', "line 2 column"),
        (b'{"a":1} extra', "line 1 column 9"),
        (b"kind: App", "line 1 column 1"),
        (b"not json", "line 1 column 1"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        (b'"caf\xe9"', "byte 4 is not UTF-8"),
        (b"NaN", "invalid JSON"),
        (b"[Infinity]", "invalid JSON"),
        (b"-Infinity", "invalid JSON"),
        (b"1e400", "invalid JSON"),
        (b'"\\ud800"', "invalid JSON"),
        (b"01", "invalid JSON"),
        (b"'a'", "invalid JSON"),
    ],
)
def test_invalid_json_is_rejected_with_its_position(data: bytes, message: str) -> None:
    with pytest.raises(json.Malformed, match=message):
        json.decode(data)


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 2**64 - 1, 2**64, 10**30, -(10**300)])
def test_an_integer_beyond_64_bits_becomes_a_float(number: int) -> None:
    (value,) = json.decode(b'{"a":[%d]}' % number)["a"]
    assert type(value) is float
    assert value == float(number)


def test_an_integer_beyond_all_floats_is_rejected() -> None:
    with pytest.raises(json.Malformed, match="infinity"):
        json.decode(b'{"a":[%d]}' % 10**400)


@pytest.mark.parametrize(
    "text",
    [
        "9223372036854775807",
        "-9223372036854775808",
        "0.12345678901234567890123",
        "1234567890123456789012.5",
        "1e0000000000000000000001",
        "1E-0000000000000000000001",
        "12345678901234567890123e2",
        '"99999999999999999999"',
        r'"a \" 99999999999999999999"',
        '{"99999999999999999999":1}',
    ],
)
def test_long_digit_runs_that_are_no_large_integers_are_accepted(text: str) -> None:
    assert json.decode(text.encode()) == stdlib.loads(text)


@pytest.mark.parametrize(("start", "end"), [(b"[", b"]"), (b'{"a":', b"}"), (b'[{"a":', b"}]")])
def test_nesting_is_limited(start: bytes, end: bytes) -> None:
    levels = start.count(b"[") + start.count(b"{")
    allowed = MAX_DEPTH // levels
    assert json.decode(start * allowed + b"1" + end * allowed)
    with pytest.raises(json.Malformed, match=f"deeper than {MAX_DEPTH}"):
        json.decode(start * (allowed + 1) + b"1" + end * (allowed + 1))


def test_brackets_side_by_side_or_in_text_do_not_count_as_nesting() -> None:
    value: list[Any] = [[[]] for _ in range(1000)] + ["[[{" * 1000, r"\"[[[" * 1000, "\\"]
    assert json.decode(json.encode(value)) == value


@pytest.mark.parametrize(
    "data",
    [
        fill_body(b"["),
        fill_body(b'{"a":'),
        b"[" * 300 + fill_body(b'\\"'),
        b"[" * 300 + fill_body(b'"a'),
        b"[" * 300 + b'"' + fill_body(b"\\"),
        fill_body(b"1"),
        fill_body(b"[]"),
    ],
    ids=lambda data: data[:10].decode(),
)
def test_hostile_bodies_are_rejected(data: bytes) -> None:
    with pytest.raises(json.Malformed):
        json.decode(data)


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ('{"spec":{"displayName":"one","displayName":"two"}}', ["spec.displayName"]),
        ('{"spec":{"access":[{},{"users":[],"users":["*"]}]}}', ["spec.access[1].users"]),
        ('{"a":1,"a":2,"a":3}', ["a"]),
        ('{"a":{"b":1,"b":2},"a":{"b":1,"b":2}}', ["a.b", "a"]),
        ('{"a":[{"b":1,"b":2}],"c":{"d":1,"d":1}}', ["a[0].b", "c.d"]),
        ('[[{"a":1,"a":2}]]', ["[0][0].a"]),
        ('{"a":1,"\\u0061":2}', ["a"]),
        ('{"a.b":{"c":1,"c":2}}', ["a.b.c"]),
        ('{"a" : 1 , "a"\n:\t2}', ["a"]),
        ('{"a":":","a":"::"}', ["a"]),
        ('{"a":"\\u003a\\u003a\\u003a","b":1,"b":2}', ["b"]),
        ('{"a":"\\u003A","a":""}', ["a"]),
        ('{"":1,"":2}', [""]),
        ('{"a":1,"b":2}', []),
        ('{"a":"x:y","b":"\\":","c":": :"}', []),
        ('{"a":{"x":1},"b":{"x":1},"c":[{"x":1},{"x":1}]}', []),
        ('{"a":"\\u003a","b":{"c":[1,{"d":2}]}}', []),
        ("null", []),
        ("[1,1]", []),
        ('"a:a"', []),
    ],
)
def test_duplicate_keys_are_reported_with_their_paths(text: str, paths: list[str]) -> None:
    data = text.encode()
    assert json.find_duplicate_keys(data) == paths
    assert json.find_duplicate_keys(data, json.decode(data)) == paths


def test_the_last_value_of_a_duplicate_key_wins() -> None:
    assert json.decode(b'{"a":1,"b":2,"a":3}') == {"a": 3, "b": 2}


def test_the_report_of_duplicate_keys_is_bounded() -> None:
    pairs = b",".join(b'"%d":1,"%d":1' % (number, number) for number in range(1000))
    assert len(json.find_duplicate_keys(b"{" + pairs + b"}")) == MAX_DUPLICATE_KEYS
    long = b"k" * 10_000
    (path,) = json.find_duplicate_keys(b'{"' + long + b'":{' + pairs + b"}}")
    assert len(path) <= MAX_PATH_CHARS + 3 and path.endswith("...")


def test_finding_duplicates_in_invalid_json_raises_an_error() -> None:
    with pytest.raises(json.Malformed):
        json.find_duplicate_keys(b'{"a":1,"a":')


def encode_pairs(value: Any, colon: str) -> str:
    """Encodes JSON with objects given as lists of pairs, so that keys can be duplicate. `colon` is used in strings."""
    if isinstance(value, list):
        return "[" + ",".join(encode_pairs(each, colon) for each in value) + "]"
    if isinstance(value, tuple):
        return "{" + ", ".join(f"{encode_pairs(key, colon)} : {encode_pairs(each, colon)}" for key, each in value) + "}"
    assert isinstance(value, str)
    return stdlib.dumps(value, ensure_ascii=False).replace(":", colon)


def has_duplicates(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(has_duplicates, value))
    if isinstance(value, tuple):
        return len(dict(value)) < len(value) or any(has_duplicates(each) for _, each in value)
    return False


words = st.text('a: "\\\n', max_size=3)
trees: st.SearchStrategy[Any] = st.recursive(
    words,
    lambda inner: st.lists(inner, max_size=3) | st.lists(st.tuples(words, inner), max_size=3).map(tuple),
    max_leaves=12,
)


@given(trees, st.sampled_from([":", "\\u003a", "\\u003A"]))
def test_duplicates_are_found_if_and_only_if_they_exist(tree: Any, colon: str) -> None:
    assert bool(json.find_duplicate_keys(encode_pairs(tree, colon).encode())) == has_duplicates(tree)
