"""Tests of `core/json/slices.py`: the result is that of the parser, and the parser gets one group at a time."""

from __future__ import annotations

import asyncio
import json as stdlib
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.core import json
from fairlead.core.body_errors import MAX_DUPLICATE_KEYS, MAX_VALUES
from fairlead.core.json import slices
from fairlead.core.json.slices import GROUP_BYTES, GROUP_VALUES, decode_in_slices

words = st.text('ab:,[]{}"\\ \né', max_size=4)
values = st.recursive(
    words | st.integers(-9, 9) | st.floats(allow_nan=False, allow_infinity=False) | st.none() | st.booleans(),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(words, inner, max_size=6),
    max_leaves=40,
)
marks = st.sampled_from([b"", b",", b"[", b"]", b"{", b"}", b'"', b":", b" ", b"1", b"\\", b"null"])


class Parser:
    """Counts the texts that orjson gets, and their values."""

    def __init__(self) -> None:
        self.texts: list[bytes] = []
        self._loads = orjson.loads

    def loads(self, text: bytes) -> Any:
        self.texts.append(text)
        return self._loads(text)


@pytest.fixture
def parser(monkeypatch: pytest.MonkeyPatch) -> Parser:
    parser = Parser()
    monkeypatch.setattr(orjson, "loads", parser.loads)
    return parser


def decode_in_groups(text: bytes, group_values: int) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slices, "GROUP_VALUES", group_values)
        return decode_in_slices(text)


@given(values, st.integers(1, 9), st.sampled_from([None, 1]))
def test_the_value_is_that_of_the_parser(value: Any, group_values: int, indent: int | None) -> None:
    text = stdlib.dumps(value, indent=indent).encode()
    assert orjson.dumps(decode_in_groups(text, group_values)) == orjson.dumps(orjson.loads(text))


@given(values, st.integers(0, 200), st.integers(0, 1), marks, st.integers(1, 5))
def test_what_the_parser_rejects_is_rejected(
    value: Any, position: int, removed: int, inserted: bytes, group_values: int
) -> None:
    text = stdlib.dumps(value).encode()
    at = position % (len(text) + 1)
    text = text[:at] + inserted + text[at + removed :]
    try:
        expected = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        with pytest.raises(orjson.JSONDecodeError) as raised:
            decode_in_groups(text, group_values)
        assert str(raised.value) == str(error)
    else:
        assert orjson.dumps(decode_in_groups(text, group_values)) == orjson.dumps(expected)


@pytest.mark.parametrize(
    "text",
    [
        b"{" + b",".join(b'"k%d":"v"' % number for number in range(90_000)) + b"}",
        b'{"a":{"b":[' + b"1," * 90_000 + b'1]},"c":[{}],"d":2}',
        b"[" + b'{"a":[1,{"b":2}],"c":{}},' * 14_000 + b"[]]",
        b"[" + b"{}," * 45_000 + b"[]]",
    ],
    ids=["keys", "numbers", "objects", "empty objects"],
)
def test_the_parser_gets_one_group_at_a_time(text: bytes, parser: Parser) -> None:
    value, duplicates = json.parse_body(text)
    assert stdlib.loads(text) == value and duplicates == []
    assert len(parser.texts) >= text.count(b",") // GROUP_VALUES
    for part in parser.texts:
        assert len(part) <= GROUP_BYTES + 100 and part.count(b",") <= GROUP_VALUES


def test_duplicate_keys_in_different_groups_are_found_and_the_last_value_wins() -> None:
    middle = b",".join(b'"k%d":{"a":%d}' % (number, number) for number in range(10_000))
    value, duplicates = json.parse_body(b'{"x":[1],' + middle + b',"x":[2],"k5":{"a":0,"a":1}}')
    assert value["x"] == [2] and value["k5"] == {"a": 1}
    assert duplicates == ["x", "k5", "k5.a"]


def test_the_duplicate_keys_of_a_large_body_are_bounded() -> None:
    text = b"{" + b",".join(b'"k%d":1,"k%d":2' % (number, number) for number in range(40_000)) + b"}"
    value, duplicates = json.parse_body(text)
    assert len(value) == 40_000 and set(value.values()) == {2}
    assert len(duplicates) == MAX_DUPLICATE_KEYS


@pytest.mark.parametrize("piece", [b"1,", b'"",', b"[],", b"{},", b"[[],[]],"])
def test_too_many_values_are_rejected_before_they_are_parsed(piece: bytes, parser: Parser) -> None:
    with pytest.raises(json.TooManyValues, match="more than 100000 values; split it into several objects"):
        json.parse_body(b"[" + piece * MAX_VALUES + b"1]")
    assert parser.texts == []


@pytest.mark.parametrize("count", [1, 10_000])
def test_integers_beyond_64_bits_become_floats_in_bodies_of_every_size(count: int) -> None:
    numbers = b"[9223372036854775807,9223372036854775808,-9223372036854775809,18446744073709551616]"
    value = json.parse_body(b'{"a":[' + (numbers + b",") * count + b"1]}")[0]
    assert value["a"][-2] == [2**63 - 1, 2.0**63, -(2.0**63), 2.0**64]
    assert [type(each) for each in value["a"][-2]] == [int, float, float, float]


async def test_stored_texts_are_decoded_in_slices_in_threads_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the event loop, slices would only block it for longer."""
    sliced: list[bytes] = []

    def decode(data: bytes) -> Any:
        sliced.append(data)
        return orjson.loads(data)

    monkeypatch.setattr(slices, "decode_in_slices", decode)
    large = orjson.dumps(["x" * 100] * 1000)
    assert len(slices.decode_stored(large)) == 1000
    assert sliced == []
    assert len(await asyncio.to_thread(slices.decode_stored, large)) == 1000
    assert sliced == [large]
