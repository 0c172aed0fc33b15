"""Tests of `core/json/outlines.py`: what it counts, that numbers are bounded, and that it reads in slices."""

from __future__ import annotations

import json as stdlib
from contextlib import suppress
from typing import Any, SupportsIndex, cast

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.core import json
from fairlead.core.body_errors import MAX_NUMBER_CHARS, NumberTooLong
from fairlead.core.json import outlines
from fairlead.core.json.outlines import SLICE_BYTES, Outline, outline
from tests.requests.large_json import JSON_TEXTS

LONG = b"1" * (MAX_NUMBER_CHARS + 1)
words = st.text('a1:,[]{}"\\ \n', max_size=6)
values = st.recursive(
    words | st.integers(-9, 9) | st.none(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(words, inner, max_size=5),
    max_leaves=30,
)


class SlicedBytes(bytes):
    """A text that can only be read in slices. `longest` is the length of the longest one."""

    longest = 0

    def __getitem__(self, key: SupportsIndex | slice) -> Any:
        found = super().__getitem__(key)
        self.longest = max(self.longest, len(cast(bytes, found)))
        return found


def _fail(*arguments: Any) -> None:
    raise AssertionError("a call reads the whole text")


for _name in ("count", "translate", "split", "replace", "find", "index", "rstrip", "strip", "decode", "__contains__"):
    setattr(SlicedBytes, _name, _fail)


@pytest.mark.parametrize("name", [name for name in JSON_TEXTS if name not in ("many managers", "random bytes")])
def test_no_call_reads_more_than_a_slice(name: str) -> None:
    text = SlicedBytes(JSON_TEXTS[name]())
    with suppress(NumberTooLong):
        outline(text)
    assert 0 < text.longest <= SLICE_BYTES + 1


def count(value: Any) -> Outline:
    """The outline of a value."""
    if not isinstance(value, dict | list):
        return Outline()
    parts = [count(each) for each in (value.values() if isinstance(value, dict) else value)]
    return Outline(
        values=sum(part.values for part in parts) + max(1, len(parts)),
        keys=sum(part.keys for part in parts) + (len(value) if isinstance(value, dict) else 0),
        depth=1 + max((part.depth for part in parts), default=0),
    )


@given(values, st.integers(1, 40), st.booleans())
def test_the_outline_is_that_of_the_value(value: Any, size: int, is_pretty: bool) -> None:
    text = stdlib.dumps(value, indent=1 if is_pretty else None).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outlines, "SLICE_BYTES", size)
        assert outline(text) == count(value)


@pytest.mark.parametrize(
    "number",
    [LONG, b"-" + LONG, b"0." + LONG, b"1e" + LONG, LONG + b".5", b"9" * 3_000_000],
    ids=["integer", "negative", "fraction", "exponent", "integral part", "megabytes"],
)
@pytest.mark.parametrize("before", [0, SLICE_BYTES - 10, 5 * SLICE_BYTES])
def test_a_long_number_is_rejected_before_it_is_parsed(
    number: bytes, before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orjson, "loads", pytest.fail)
    for decode in (json.decode, json.decode_body, json.parse_body):
        with pytest.raises(json.Malformed, match=f"a number has more than {MAX_NUMBER_CHARS} characters; write it"):
            decode(b'{"a":' + b" " * before + number + b"}")


@pytest.mark.parametrize("before", [0, SLICE_BYTES - 10, 5 * SLICE_BYTES])
def test_numbers_up_to_the_limit_and_digits_in_strings_are_accepted(before: int) -> None:
    number = b"0." + b"3" * (MAX_NUMBER_CHARS - 2)
    text = b'{"a":' + b" " * before + number + b',"b":"' + LONG + b'","' + LONG + b'":1}'
    assert json.decode(text) == json.parse_body(text)[0] == {"a": 1 / 3, "b": LONG.decode(), LONG.decode(): 1}


@pytest.mark.parametrize("size", range(1, 12))
def test_escapes_are_not_separated_between_slices(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outlines, "SLICE_BYTES", size)
    value = {'"[\\': ['\\"', "\\\\", '\\"[[', "[{,:", ""], "\\": "\\\\\\"}
    assert outline(stdlib.dumps(value).encode()) == count(value)
