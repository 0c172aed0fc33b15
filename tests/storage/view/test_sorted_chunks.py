"""storage/view/sorted_chunks.py: sorted chunks compared with a plain sorted list under puts, deletes and slices."""

from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairlead.storage.contract import Key
from fairlead.storage.view import sorted_chunks as module
from fairlead.storage.view.sorted_chunks import ChunkedSortedList, Join, JoinedBytesCache
from fairlead.storage.view.view import Entry
from tests.harness.properties import examples

LOW, HIGH = ("g", "things", "", ""), ("g", "things\x00", "", "")


def key_for(name: str) -> Key:
    return ("g", "things", "", name)


def build_entry(name: str, body: bytes = b"") -> Entry:
    return Entry(key_for(name), 1, body or name.encode(), {}, {})


def join(entries: Sequence[Entry]) -> bytes:
    return b",".join([each.body for each in entries])


def join_slice(chunks: ChunkedSortedList, low: Key = LOW, high: Key = HIGH, limit: int = 0) -> bytes:
    return b",".join(chunks.slice(low, high, limit).iter_joined(join))


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CHUNK_ENTRIES", 4)


NAMES = st.sampled_from([f"{number:02d}" for number in range(40)])
STEPS = st.lists(st.tuples(NAMES, st.booleans(), st.booleans()), max_size=80)


@settings(max_examples=examples(100), suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(first=st.sets(NAMES), steps=STEPS, low=NAMES, high=NAMES, limit=st.integers(0, 12))
def test_chunks_behave_like_a_sorted_list(
    first: set[str], steps: list[tuple[str, bool, bool]], low: str, high: str, limit: int
) -> None:
    expected = {name: name.encode() for name in first}
    chunks = ChunkedSortedList(JoinedBytesCache(), [build_entry(name) for name in sorted(first)])
    for number, (name, deleted, check) in enumerate(steps):
        if deleted and name in expected:
            del expected[name]
            chunks.remove(key_for(name))
        elif not deleted:
            expected[name] = f"{name}-{number}".encode()
            chunks.put(build_entry(name, expected[name]))
        if check:
            assert join_slice(chunks) == b",".join([expected[each] for each in sorted(expected)])
    within = [name for name in sorted(expected) if low <= name < high]
    cut = within[:limit] if limit else within
    found = chunks.slice(key_for(low), key_for(high), limit)
    assert [each.key[3] for each in found] == cut
    assert len(found) == len(cut)
    assert not cut or found.last.key[3] == cut[-1]
    assert chunks.count(key_for(low), key_for(high)) == len(within)
    assert join_slice(chunks, key_for(low), key_for(high), limit) == b",".join([expected[each] for each in cut])


def test_a_slice_shows_the_state_when_it_was_taken() -> None:
    chunks = ChunkedSortedList(JoinedBytesCache(), [build_entry(name) for name in "abcdefgh"])
    before = chunks.slice(LOW, HIGH)
    chunks.put(build_entry("b", b"B"))
    chunks.put(build_entry("bb"))
    chunks.remove(key_for("g"))
    chunks.put(build_entry("i"))
    assert b",".join(before.iter_joined(join)) == b"a,b,c,d,e,f,g,h"
    assert [each.body for each in before] == [each.encode() for each in "abcdefgh"]
    assert join_slice(chunks) == b"a,B,bb,c,d,e,f,h,i"


def counting_join() -> tuple[list[int], Join]:
    lengths: list[int] = []

    def count_and_join(entries: Sequence[Entry]) -> bytes:
        lengths.append(len(entries))
        return join(entries)

    return lengths, count_and_join


def test_only_changed_chunks_are_joined_again() -> None:
    chunks = ChunkedSortedList(JoinedBytesCache(), [build_entry(name) for name in "abcdefghijkl"])
    lengths, count_and_join = counting_join()
    list(chunks.slice(LOW, HIGH).iter_joined(count_and_join))
    assert lengths == [4, 4, 4]
    chunks.put(build_entry("f", b"F"))
    list(chunks.slice(LOW, HIGH).iter_joined(count_and_join))
    assert lengths == [4, 4, 4, 4]


def test_the_cache_of_joined_bytes_is_limited_and_drops_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "JOINED_CACHE_BYTES", 15)
    cache = JoinedBytesCache()
    chunks = ChunkedSortedList(cache, [build_entry(name) for name in "abcdefghijkl"])
    assert join_slice(chunks) == b"a,b,c,d,e,f,g,h,i,j,k,l"
    lengths, count_and_join = counting_join()
    list(chunks.slice(key_for("e"), HIGH).iter_joined(count_and_join))
    assert lengths == []
    list(chunks.slice(LOW, key_for("e")).iter_joined(count_and_join))
    assert lengths == [4]
    assert cache.size <= 15


def test_joined_bytes_of_replaced_chunks_are_dropped() -> None:
    cache = JoinedBytesCache()
    chunks = ChunkedSortedList(cache, [build_entry(name) for name in "abcd"])
    before = chunks.slice(LOW, HIGH)
    list(before.iter_joined(join))
    assert cache.size == 7
    chunks.put(build_entry("a", b"A"))
    assert cache.size == 0
    assert list(before.iter_joined(join)) == [b"a,b,c,d"]
    assert cache.size == 0


def test_large_objects_are_joined_in_parts_and_not_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chunk has up to 256 objects of up to a megabyte: nothing may copy all of it at once."""
    monkeypatch.setattr(module, "MAX_JOIN_BYTES", 3_000)
    cache = JoinedBytesCache()
    chunks = ChunkedSortedList(cache, [build_entry(name, name.encode() * 800) for name in "abcd"])
    lengths, count_and_join = counting_join()
    pieces = list(chunks.slice(LOW, HIGH).iter_joined(count_and_join))
    assert lengths == [2, 2]
    assert b",".join(pieces) == b",".join([name.encode() * 800 for name in "abcd"])
    assert cache.size == 0


def test_pieces_show_the_state_of_the_slice_despite_changes_between_them() -> None:
    chunks = ChunkedSortedList(JoinedBytesCache(), [build_entry(name) for name in "abcdefgh"])
    pieces = chunks.slice(LOW, HIGH).iter_joined(join)
    first = next(pieces)
    chunks.put(build_entry("f", b"F"))
    chunks.remove(key_for("h"))
    assert [first, *pieces] == [b"a,b,c,d", b"e,f,g,h"]
    assert join_slice(chunks) == b"a,b,c,d,e,F,g"


@pytest.mark.parametrize("most", [1, 3, 4, 10_000])
def test_a_slice_is_iterated_in_parts_of_its_state(most: int) -> None:
    chunks = ChunkedSortedList(JoinedBytesCache(), [build_entry(f"{number:05}") for number in range(17)])
    chunk_slice = chunks.slice(key_for("00002"), key_for("99999"))
    parts = chunk_slice.batches(most)
    found = list(next(parts))
    for number in range(17):
        chunks.remove(key_for(f"{number:05}"))
    for part in parts:
        assert 0 < len(part) <= most
        found += part
    assert [each.key[3] for each in found] == [f"{number:05}" for number in range(2, 17)]
