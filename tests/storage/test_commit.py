"""storage/commit.py: packed keys sort like tuples, can be unpacked, and prefix ranges contain exactly their keys."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fairlead.storage.commit import pack_key, prefix_range, unpack_key
from fairlead.storage.contract import Key

# Few characters, with all special ones, so that keys often share prefixes.
PARTS = st.text(alphabet="\x00\x01ab\xff\u0100\U0010ffff", max_size=4) | st.text(max_size=8)
KEYS = st.lists(PARTS, max_size=4).map(tuple)


@given(KEYS)
def test_a_packed_key_can_be_unpacked(key: Key) -> None:
    assert unpack_key(pack_key(key)) == key


@given(KEYS, KEYS)
@example(("a",), ("a\x00",))
@example(("a", "b"), ("a\x00b",))
@example(("a", ""), ("a",))
@example(("\uffff",), ("\U00010000",))
def test_packed_keys_sort_like_the_keys(one: Key, other: Key) -> None:
    assert (pack_key(one) < pack_key(other)) == (one < other)
    assert (pack_key(one) == pack_key(other)) == (one == other)


@given(KEYS, KEYS)
@example((), ())
@example(("a",), ("ab",))
@example(("a",), ("a\x00",))
@example(("a",), ("a", "\x00"))
def test_a_prefix_range_contains_exactly_the_keys_with_the_prefix(prefix: Key, key: Key) -> None:
    low, high = prefix_range(prefix)
    assert (low <= pack_key(key) < high) == (key[: len(prefix)] == prefix)
    assert low <= pack_key(prefix + key) < high


@given(KEYS, KEYS, KEYS)
def test_a_range_after_a_key_starts_right_behind_it(prefix: Key, after: Key, key: Key) -> None:
    low, high = prefix_range(prefix, after)
    for candidate in (key, prefix + key, after, after + key, prefix):
        belongs = candidate[: len(prefix)] == prefix and candidate > after
        assert (low <= pack_key(candidate) < high) == belongs


def test_text_that_is_not_unicode_is_rejected() -> None:
    with pytest.raises(ValueError):
        pack_key(("\ud800",))
