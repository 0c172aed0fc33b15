"""storage/view/collection.py: index lookups find the same entries as a full scan, now and at old revisions."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.storage.contract import Key
from fairlead.storage.view import collection as index_module
from fairlead.storage.view.collection import Collection, Index, IndexQuery
from fairlead.storage.view.entry import Entry
from fairlead.storage.view.fan_out import Transition
from fairlead.storage.view.sorted_chunks import JoinedBytesCache
from tests.harness.properties import examples

LOW, HIGH = ("g", "things", "", ""), ("g", "things\x00", "", "")


def key_for(name: str) -> Key:
    return ("g", "things", "", name)


def build_entry(name: str, revision: int = 1, **labels: str) -> Entry:
    return Entry(key_for(name), revision, b"{}", labels, {"spec.x": labels.get("x", "")})


def write(collection: Collection, revision: int, name: str, new: Entry | None) -> None:
    """Applies a change as the view does."""
    previous = collection.entries.get(key_for(name))
    if new is None:
        collection.remove(key_for(name))
    else:
        collection.put(new)
    collection.history.append(Transition(key_for(name), revision, previous, new))


def matches(found: Entry, wanted: IndexQuery) -> bool:
    value = (found.labels if wanted.source == "labels" else found.selectable).get(wanted.name)
    return value is not None and (wanted.values is None or value in wanted.values)


STEPS = st.lists(
    st.tuples(
        st.sampled_from([f"{number:02d}" for number in range(30)]), st.sampled_from(["", "1", "2", "3", "deleted"])
    ),
    min_size=1,
    max_size=60,
)
WANTED = (
    IndexQuery("labels", "x", frozenset({"1"})),
    IndexQuery("labels", "x", frozenset({"1", "3", "none"})),
    IndexQuery("labels", "x", None),
    IndexQuery("labels", "never", None),
    IndexQuery("selectable", "spec.x", frozenset({"2"})),
)


@settings(max_examples=examples(100), deadline=None)
@given(steps=STEPS, early=st.booleans(), back=st.integers(0, 60), limit=st.integers(0, 5), low=st.integers(0, 30))
def test_index_lookups_and_old_snapshots_agree_with_a_full_scan(
    steps: list[tuple[str, str]], early: bool, back: int, limit: int, low: int
) -> None:
    collection, past = Collection(JoinedBytesCache()), [dict[str, Entry]()]
    if early:  # indexes built at the start and updated, or built at the end
        for each in WANTED:
            collection.index_scan(LOW, HIGH, [each], None)
    for revision, (name, label) in enumerate(steps, 1):
        now = dict(past[-1])
        now.pop(name, None)
        if label != "deleted":
            now[name] = build_entry(name, revision, **({"x": label} if label else {}))
        write(collection, revision, name, now.get(name))
        past.append(now)
    then = max(0, len(steps) - back)
    start = key_for(f"{low:02d}")
    for at, stood in ((None, past[-1]), (then, past[then])):
        expected = [stood[name] for name in sorted(stood) if key_for(name) >= start]
        for wanted in WANTED:
            found = collection.index_scan(start, HIGH, [wanted], at)
            assert [each for each in found if matches(each, wanted)] == [
                each for each in expected if matches(each, wanted)
            ]
    cut = expected[:limit] if limit else expected
    assert collection.at_revision(start, HIGH, limit, then) == (cut, len(expected) - len(cut))


def test_the_most_selective_condition_is_used() -> None:
    everything = [build_entry(f"{number:03d}", team="a", tier=str(number % 50)) for number in range(100)]
    collection = Collection(JoinedBytesCache(), everything)
    common, rare = IndexQuery("labels", "team", frozenset({"a"})), IndexQuery("labels", "tier", frozenset({"7"}))
    for conditions in ([common, rare], [rare, common]):
        assert [each.key[3] for each in collection.index_scan(LOW, HIGH, conditions, None)] == ["007", "057"]


def test_the_least_recently_used_index_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "MAX_INDEXED_NAMES", 2)
    index = Index(lambda each: each.labels)
    one = build_entry("a", x="1", y="1", z="1")
    index.lookup("x", None, [one])
    index.lookup("y", None, [one])
    index.lookup("x", None, [one])
    index.lookup("z", None, [one])
    assert index.lookup("x", None, []) == [{one.key}], "used twice, so it was kept"
    assert index.lookup("y", None, []) == [], "built again, from no entries"


def test_values_without_objects_are_removed() -> None:
    index = Index(lambda each: each.labels)
    one, other = build_entry("a", x="1"), build_entry("a", x="2")
    index.lookup("x", None, [one])
    index.update(one.key, one, other)
    assert index.lookup("x", None, []) == [{one.key}]
    index.update(one.key, other, None)
    assert index.lookup("x", None, []) == []
