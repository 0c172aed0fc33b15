"""registry/watch.py: batch sizes by count, by bytes, and by the cost of the selector."""

from fairlead.core.concurrency import MAX_SLICE_BYTES
from fairlead.registry.selectors import Selector, parse_labels
from fairlead.registry.watch import BATCH_SIZE
from tests.harness.registry import RegistryFixture
from tests.registry.watch_sessions import build_watch, poll_names, start_watch


async def test_pending_events_are_polled_in_batches(api: RegistryFixture) -> None:
    watch = await start_watch(api, queue=10 * BATCH_SIZE)
    for number in range(BATCH_SIZE + 3):
        await api.create("Gadget", f"g{number}")
    assert len(watch.poll()) == BATCH_SIZE
    assert watch.has_pending
    assert poll_names(watch) == [f"ADDED g{number}" for number in range(BATCH_SIZE, BATCH_SIZE + 3)]
    assert not watch.has_pending


async def test_initial_objects_come_in_batches_followed_by_live_events(api: RegistryFixture) -> None:
    for number in range(BATCH_SIZE + 3):
        await api.create("Gadget", f"g{number:04}")
    watch, sizes = build_watch(api), list[int]()
    async for events in watch.initial_objects():
        sizes.append(len(events))
        if len(sizes) == 1:
            await api.delete("Gadget", "g0000")
    assert sizes == [BATCH_SIZE, 3]
    assert poll_names(watch) == ["DELETED g0000"]


async def test_batches_of_initial_objects_shrink_with_the_number_of_requirements(api: RegistryFixture) -> None:
    for number in range(30):
        await api.create("Gadget", f"g{number:04}")
    few, many = parse_labels("a!=b"), parse_labels(",".join(f"label-{number}!=x" for number in range(64)))
    batch_sizes = []
    for labels in (few, many):
        batch_sizes.append([len(events) async for events in build_watch(api, Selector(labels)).initial_objects()])
    assert batch_sizes == [[30], [11, 11, 8]]


async def test_large_initial_objects_come_in_smaller_batches(api: RegistryFixture) -> None:
    for number in range(6):
        await api.create("Gadget", f"g{number}", metadata={"annotations": {"note": "x" * (MAX_SLICE_BYTES * 2 // 3)}})
    assert [len(bodies) async for bodies in build_watch(api).initial_objects()] == [1] * 6


async def test_large_events_are_polled_in_smaller_batches(api: RegistryFixture) -> None:
    watch = await start_watch(api)
    for number in range(4):
        await api.create("Gadget", f"g{number}", metadata={"annotations": {"note": "x" * (MAX_SLICE_BYTES // 3)}})
    await api.delete("Gadget", "g3")
    batches = []
    while watch.has_pending:
        batches.append(poll_names(watch))
    assert batches == [["ADDED g0", "ADDED g1"], ["ADDED g2", "ADDED g3"], ["DELETED g3"]]


async def test_an_event_larger_than_a_batch_is_polled_alone(api: RegistryFixture) -> None:
    watch = await start_watch(api)
    for number in range(2):
        await api.create("Gadget", f"g{number}", metadata={"annotations": {"note": "x" * (MAX_SLICE_BYTES - 1000)}})
    assert [poll_names(watch), poll_names(watch)] == [["ADDED g0"], ["ADDED g1"]]
