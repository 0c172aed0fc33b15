"""Objects in order, in runs: against a plain sorted list, whatever is put, dropped and cut out of it."""

from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairlead.storage.contract import Key
from fairlead.storage.view import sorted_chunks as module
from fairlead.storage.view.sorted_chunks import ChunkedSortedList, Join, JoinedBytesCache
from fairlead.storage.view.view import Entry

LOW, HIGH = ("g", "things", "", ""), ("g", "things\x00", "", "")


def key(name: str) -> Key:
    return ("g", "things", "", name)


def entry(name: str, body: bytes = b"") -> Entry:
    return Entry(key(name), 1, body or name.encode(), {}, {})


def join(entries: Sequence[Entry]) -> bytes:
    return b",".join([each.body for each in entries])


def together(runs: ChunkedSortedList, low: Key = LOW, high: Key = HIGH, limit: int = 0) -> bytes:
    return b",".join(runs.slice(low, high, limit).iter_joined(join))


@pytest.fixture(autouse=True)
def short_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CHUNK_ENTRIES", 4)


NAMES = st.sampled_from([f"{number:02d}" for number in range(40)])
STEPS = st.lists(st.tuples(NAMES, st.booleans(), st.booleans()), max_size=80)


@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(first=st.sets(NAMES), steps=STEPS, low=NAMES, high=NAMES, limit=st.integers(0, 12))
def test_runs_are_like_a_sorted_list_at_every_step(
    first: set[str], steps: list[tuple[str, bool, bool]], low: str, high: str, limit: int
) -> None:
    there = {name: name.encode() for name in first}
    runs = ChunkedSortedList(JoinedBytesCache(), [entry(name) for name in sorted(first)])
    for number, (name, gone, looked_at) in enumerate(steps):
        if gone and name in there:
            del there[name]
            runs.remove(key(name))
        elif not gone:
            there[name] = f"{name}-{number}".encode()
            runs.put(entry(name, there[name]))
        if looked_at:
            assert together(runs) == b",".join([there[each] for each in sorted(there)])
    within = [name for name in sorted(there) if low <= name < high]
    cut = within[:limit] if limit else within
    found = runs.slice(key(low), key(high), limit)
    assert [each.key[3] for each in found] == cut
    assert len(found) == len(cut)
    assert not cut or found.last.key[3] == cut[-1]
    assert runs.count(key(low), key(high)) == len(within)
    assert together(runs, key(low), key(high), limit) == b",".join([there[each] for each in cut])


def test_a_stretch_shows_what_was_there_when_it_was_cut() -> None:
    runs = ChunkedSortedList(JoinedBytesCache(), [entry(name) for name in "abcdefgh"])
    before = runs.slice(LOW, HIGH)
    runs.put(entry("b", b"B"))
    runs.put(entry("bb"))
    runs.remove(key("g"))
    runs.put(entry("i"))
    assert b",".join(before.iter_joined(join)) == b"a,b,c,d,e,f,g,h"
    assert [each.body for each in before] == [each.encode() for each in "abcdefgh"]
    assert together(runs) == b"a,B,bb,c,d,e,f,h,i"


def counting() -> tuple[list[int], Join]:
    lengths: list[int] = []

    def counted(entries: Sequence[Entry]) -> bytes:
        lengths.append(len(entries))
        return join(entries)

    return lengths, counted


def test_only_runs_with_changes_are_joined_again() -> None:
    runs = ChunkedSortedList(JoinedBytesCache(), [entry(name) for name in "abcdefghijkl"])
    lengths, counted = counting()
    list(runs.slice(LOW, HIGH).iter_joined(counted))
    assert lengths == [4, 4, 4]
    runs.put(entry("f", b"F"))
    list(runs.slice(LOW, HIGH).iter_joined(counted))
    assert lengths == [4, 4, 4, 4]


def test_what_is_kept_joined_is_bounded_and_the_oldest_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "JOINED_CACHE_BYTES", 15)
    kept = JoinedBytesCache()
    runs = ChunkedSortedList(kept, [entry(name) for name in "abcdefghijkl"])
    assert together(runs) == b"a,b,c,d,e,f,g,h,i,j,k,l"
    lengths, counted = counting()
    list(runs.slice(key("e"), HIGH).iter_joined(counted))
    assert lengths == []
    list(runs.slice(LOW, key("e")).iter_joined(counted))
    assert lengths == [4]
    assert kept.size <= 15


def test_bytes_of_runs_that_have_been_replaced_are_not_kept() -> None:
    kept = JoinedBytesCache()
    runs = ChunkedSortedList(kept, [entry(name) for name in "abcd"])
    before = runs.slice(LOW, HIGH)
    list(before.iter_joined(join))
    assert kept.size == 7
    runs.put(entry("a", b"A"))
    assert kept.size == 0
    assert list(before.iter_joined(join)) == [b"a,b,c,d"]
    assert kept.size == 0


def test_large_objects_are_joined_some_at_a_time_and_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """One run has up to 256 objects, and each may have a megabyte: nothing may copy all of it in one go."""
    monkeypatch.setattr(module, "MAX_JOIN_BYTES", 3_000)
    kept = JoinedBytesCache()
    runs = ChunkedSortedList(kept, [entry(name, name.encode() * 800) for name in "abcd"])
    lengths, counted = counting()
    pieces = list(runs.slice(LOW, HIGH).iter_joined(counted))
    assert lengths == [2, 2]
    assert b",".join(pieces) == b",".join([name.encode() * 800 for name in "abcd"])
    assert kept.size == 0


def test_pieces_show_what_was_there_however_much_happens_between_them() -> None:
    runs = ChunkedSortedList(JoinedBytesCache(), [entry(name) for name in "abcdefgh"])
    pieces = runs.slice(LOW, HIGH).iter_joined(join)
    first = next(pieces)
    runs.put(entry("f", b"F"))
    runs.remove(key("h"))
    assert [first, *pieces] == [b"a,b,c,d", b"e,f,g,h"]
    assert together(runs) == b"a,b,c,d,e,F,g"


@pytest.mark.parametrize("most", [1, 3, 4, 10_000])
def test_a_stretch_comes_in_parts_and_shows_what_was_there_when_it_was_cut(most: int) -> None:
    runs = ChunkedSortedList(JoinedBytesCache(), [entry(f"{number:05}") for number in range(17)])
    stretch = runs.slice(key("00002"), key("99999"))
    parts = stretch.batches(most)
    found = list(next(parts))
    for number in range(17):
        runs.remove(key(f"{number:05}"))
    for part in parts:
        assert 0 < len(part) <= most
        found += part
    assert [each.key[3] for each in found] == [f"{number:05}" for number in range(2, 17)]
