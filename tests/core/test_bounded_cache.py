"""Tests of `core/bounded_cache.py`: the limits of a cache, which otherwise is a dict."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.core.bounded_cache import BoundedCache


def test_a_stored_value_is_found() -> None:
    cache: BoundedCache[str, int | None] = BoundedCache(2)
    cache["a"], cache["none"] = 1, None
    assert cache.get("a") == cache["a"] == 1
    assert cache["none"] is None and "none" in cache
    assert cache.get("b") is None and "b" not in cache
    with pytest.raises(KeyError):
        cache["b"]


def test_an_entry_over_the_count_limit_drops_all_others() -> None:
    cache: BoundedCache[str, int] = BoundedCache(2)
    cache["a"], cache["b"] = 1, 2
    assert cache == {"a": 1, "b": 2}
    cache["c"] = 3
    assert cache == {"c": 3}


def test_a_new_value_of_a_known_key_drops_nothing() -> None:
    cache: BoundedCache[str, int] = BoundedCache(2)
    cache["a"], cache["b"] = 1, 2
    cache["a"] = 3
    assert cache == {"a": 3, "b": 2}


def test_entries_over_the_weight_limit_are_dropped() -> None:
    cache: BoundedCache[str, str] = BoundedCache(10, 5, len)
    cache["a"], cache["b"] = "123", "12"
    assert len(cache) == 2
    cache["c"] = "1"
    assert cache == {"c": "1"}
    cache["d"] = "1234"
    assert len(cache) == 2, "what was dropped weighs nothing"


def test_a_value_that_is_replaced_weighs_nothing() -> None:
    cache: BoundedCache[str, str] = BoundedCache(10, 5, len)
    cache["a"] = "123"
    cache["a"] = "124"
    cache["b"] = "1"
    assert cache == {"a": "124", "b": "1"}


def test_a_single_value_over_the_weight_limit_stays_until_the_next_write() -> None:
    cache: BoundedCache[str, str] = BoundedCache(10, 5, len)
    cache["a"] = "1"
    cache["heavy"] = "1234567"
    assert cache == {"heavy": "1234567"}
    cache["b"] = ""
    assert cache == {"b": ""}


@given(st.lists(st.tuples(st.integers(0, 12), st.text(max_size=8))), st.integers(1, 5), st.integers(0, 20))
def test_no_sequence_of_writes_exceeds_the_bounds(
    writes: list[tuple[int, str]], max_entries: int, max_weight: int
) -> None:
    cache: BoundedCache[int, str] = BoundedCache(max_entries, max_weight, len)
    for key, value in writes:
        cache[key] = value
        assert cache[key] == value
        assert len(cache) <= max_entries
        assert sum(map(len, cache.values())) <= max_weight or len(cache) == 1
