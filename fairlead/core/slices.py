"""Long work on the event loop, cut into slices: others get their turn in between.

For work that has to be done on the loop, because it looks at what the loop changes. What can be done elsewhere goes to
`workers.py`. Slices are measured by what is to be done, not by the clock, so that tests can count them.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

PER_ITEM = 512
"""What an item costs beside its bytes, in bytes: a slice of tiny ones ends, too."""
SLICE_BYTES = 256 * 1024
"""What is decoded, copied or compared in one slice: some milliseconds at worst, or five hundred small objects."""


def cut(items: Iterable[T], size: Callable[[T], int], most: int = SLICE_BYTES) -> Iterator[list[T]]:
    """The items in order, in groups of at most so many bytes, or single where one alone has more."""
    some: list[T] = []
    room = most
    for item in items:
        cost = size(item) + PER_ITEM
        if cost > room and some:
            yield some
            some, room = [], most
        some.append(item)
        room -= cost
    if some:
        yield some


async def in_slices(items: Iterable[T], size: Callable[[T], int], most: int = SLICE_BYTES) -> AsyncIterator[list[T]]:
    """The same groups, and a turn for others before each but the first."""
    is_first = True
    for some in cut(items, size, most):
        if not is_first:
            await asyncio.sleep(0)
        is_first = False
        yield some
