"""storage/view/collection.py: building an index over many entries while they change."""

import asyncio
from operator import attrgetter

from fairlead.storage.contract import Key
from fairlead.storage.view.collection import MAX_ENTRIES_PER_STEP, Index
from fairlead.storage.view.entry import Entry

MANY = 3 * MAX_ENTRIES_PER_STEP


def build_entry(number: int, value: str | None) -> Entry:
    key: Key = ("", "things", "", f"t{number:06}")
    return Entry(key, 1, b"{}", {"on": value} if value is not None else {}, {})


def test_an_index_of_few_entries_is_built_at_once() -> None:
    entries = {each.key: each for each in (build_entry(number, str(number % 2)) for number in range(10))}
    found = Index(attrgetter("labels")).lookup("on", {"1"}, entries.values())
    assert found is not None and [len(each) for each in found] == [5]


async def test_an_index_of_many_entries_is_unavailable_until_built() -> None:
    entries = {each.key: each for each in (build_entry(number, str(number % 2)) for number in range(MANY))}
    index = Index(attrgetter("labels"))
    assert index.lookup("on", {"1"}, entries.values()) is None
    await index.build("on", entries)
    found = index.lookup("on", {"1"}, entries.values())
    assert found is not None and [len(each) for each in found] == [MANY // 2]


async def test_changes_during_the_build_are_applied() -> None:
    entries = {each.key: each for each in (build_entry(number, "a") for number in range(MANY))}
    index = Index(attrgetter("labels"))
    building = asyncio.create_task(index.build("on", entries))
    await asyncio.sleep(0)  # the first entries are indexed

    def change(number: int, value: str | None) -> None:
        after = build_entry(number, value)
        index.update(after.key, entries.get(after.key), after)
        entries[after.key] = after

    def remove(number: int) -> None:
        removed = entries.pop(build_entry(number, None).key)
        index.update(removed.key, removed, None)

    for early, late in ((0, MANY - 1), (2, MANY - 3)):
        change(early, "b")
        change(late, "b")
    change(MANY + 1, "b")
    remove(4)
    remove(MANY - 5)
    await building
    sets = index.lookup("on", None, entries.values())
    assert sets is not None
    assert sorted(key for each in sets for key in each) == sorted(entries)
    (others,) = index.lookup("on", {"b"}, entries.values()) or []
    assert others == {key for key, each in entries.items() if each.labels["on"] == "b"}


async def test_a_lookup_during_the_build_gets_none_and_a_cancelled_build_leaves_nothing() -> None:
    entries = {each.key: each for each in (build_entry(number, "a") for number in range(MANY))}
    index = Index(attrgetter("labels"))
    building = asyncio.create_task(index.build("on", entries))
    await asyncio.sleep(0)
    await index.build("on", entries)
    assert index.lookup("on", {"a"}, entries.values()) is None
    building.cancel()
    await asyncio.gather(building, return_exceptions=True)
    await index.build("on", entries)
    assert index.lookup("on", {"a"}, entries.values()) == [set(entries)]
