"""Tests of slices in `core/concurrency.py`: long work yields to the event loop and keeps its order."""

import pytest

from fairlead.core.concurrency import ITEM_OVERHEAD_BYTES, iter_slices, split_by_size
from tests.harness.event_loop_turns import TurnCounter


@pytest.mark.parametrize(
    ("items", "groups"),
    [
        ([], []),
        ([5], [[5]]),
        ([1, 2, 3, 4], [[1, 2], [3, 4]]),
        ([1, 9_000, 2, 3], [[1], [9_000], [2, 3]]),
        ([0, 0, 0, 0, 0], [[0, 0], [0, 0], [0]]),
    ],
)
def test_items_are_grouped_in_order_by_cost(items: list[int], groups: list[list[int]]) -> None:
    assert list(split_by_size(items, lambda item: item, 2 * ITEM_OVERHEAD_BYTES + 100)) == groups


async def test_other_tasks_run_between_two_slices() -> None:
    async with TurnCounter() as turns:
        sizes = [len(some) async for some in iter_slices(range(100), lambda item: 0, 10 * ITEM_OVERHEAD_BYTES)]
    assert sizes == [10] * 10
    assert turns.count >= 9
