"""Long work on the event loop gives others their turns, and nothing of it is lost or changes places."""

import pytest

from fairlead.core.concurrency import PER_ITEM, cut, in_slices
from tests.turns import Turns


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
def test_items_are_grouped_in_order_by_what_they_cost(items: list[int], groups: list[list[int]]) -> None:
    assert list(cut(items, lambda item: item, 2 * PER_ITEM + 100)) == groups


async def test_others_get_a_turn_between_two_slices() -> None:
    async with Turns() as turns:
        found = [len(some) async for some in in_slices(range(100), lambda item: 0, 10 * PER_ITEM)]
    assert found == [10] * 10
    assert turns.count >= 9
