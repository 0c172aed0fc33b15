"""How much a watch takes and shows at a time: by count, by bytes, and by what testing each object costs."""

from fairlead.core.concurrency import MAX_SLICE_BYTES
from fairlead.registry.selectors import Selector, parse_labels
from fairlead.registry.watch import BATCH_SIZE
from tests.harness.registry import RegistryFixture
from tests.registry.test_watch import begun, feed_of, types


async def test_much_that_waits_is_taken_some_at_a_time(api: RegistryFixture) -> None:
    feed = await begun(api, queue=10 * BATCH_SIZE)
    for number in range(BATCH_SIZE + 3):
        await api.create("Gadget", f"g{number}")
    assert len(feed.poll()) == BATCH_SIZE
    assert feed.has_pending
    assert types(feed) == [f"ADDED g{number}" for number in range(BATCH_SIZE, BATCH_SIZE + 3)]
    assert not feed.has_pending


async def test_much_that_exists_comes_some_at_a_time_and_what_happens_meanwhile_after_it(api: RegistryFixture) -> None:
    for number in range(BATCH_SIZE + 3):
        await api.create("Gadget", f"g{number:04}")
    feed, sizes = feed_of(api), list[int]()
    async for events in feed.initial_objects():
        sizes.append(len(events))
        if len(sizes) == 1:
            await api.delete("Gadget", "g0000")
    assert sizes == [BATCH_SIZE, 3]
    assert types(feed) == ["DELETED g0000"]


async def test_what_exists_comes_in_smaller_parts_the_more_conditions_it_is_tested_with(api: RegistryFixture) -> None:
    for number in range(30):
        await api.create("Gadget", f"g{number:04}")
    few, many = parse_labels("a!=b"), parse_labels(",".join(f"label-{number}!=x" for number in range(64)))
    parts = []
    for labels in (few, many):
        parts.append([len(events) async for events in feed_of(api, Selector(labels)).initial_objects()])
    assert parts == [[30], [11, 11, 8]]


async def test_large_objects_come_fewer_at_a_time(api: RegistryFixture) -> None:
    for number in range(6):
        await api.create("Gadget", f"g{number}", metadata={"annotations": {"note": "x" * (MAX_SLICE_BYTES * 2 // 3)}})
    assert [len(bodies) async for bodies in feed_of(api).initial_objects()] == [1] * 6


async def test_large_events_are_taken_fewer_at_a_time(api: RegistryFixture) -> None:
    feed = await begun(api)
    for number in range(4):
        await api.create("Gadget", f"g{number}", metadata={"annotations": {"note": "x" * (MAX_SLICE_BYTES // 3)}})
    await api.delete("Gadget", "g3")
    taken_at_once = []
    while feed.has_pending:
        taken_at_once.append(types(feed))
    assert taken_at_once == [["ADDED g0", "ADDED g1"], ["ADDED g2", "ADDED g3"], ["DELETED g3"]]


async def test_an_event_larger_than_what_is_taken_at_once_is_taken_alone(api: RegistryFixture) -> None:
    feed = await begun(api)
    for number in range(2):
        await api.create("Gadget", f"g{number}", metadata={"annotations": {"note": "x" * (MAX_SLICE_BYTES - 1000)}})
    assert [types(feed), types(feed)] == [["ADDED g0"], ["ADDED g1"]]
