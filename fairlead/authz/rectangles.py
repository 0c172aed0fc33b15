"""Whether one of many rectangles has a point in it: pairs of sets, such as namespaces and names, or verbs and
subresources. Asked for each object of a list, so the answer must not depend on how many there are.
"""

from collections.abc import Iterable, Sequence

WORD = 64
"""Rectangles that a bit mask compares at once."""

Rectangle = tuple[frozenset[str], frozenset[str]]
Posting = tuple[int, ...] | int
"""The rectangles that have a text: their numbers where they are few, a bit mask where they are many."""


class Rectangles:
    """For each text of each side, there are the rectangles that have it. At most one in `WORD` is looked at, and memory
    stays in proportion to what was given."""

    __slots__ = ("_columns", "_rectangles", "_rows", "weight")

    def __init__(self, rectangles: Sequence[Rectangle]) -> None:
        few = max(4, len(rectangles) // WORD)
        self._rectangles = rectangles
        self._rows = _postings((row for row, _ in rectangles), few)
        self._columns = _postings((column for _, column in rectangles), few)
        self.weight = sum(len(row) + len(column) for row, column in rectangles)

    def hold(self, row: str, column: str) -> bool:
        some, others = self._rows.get(row), self._columns.get(column)
        if some is None or others is None:
            return False
        if isinstance(others, int):
            if isinstance(some, int):
                return bool(some & others)
            return any(column in self._rectangles[index][1] for index in some)
        if isinstance(some, int) or len(others) < len(some):
            return any(row in self._rectangles[index][0] for index in others)
        return any(column in self._rectangles[index][1] for index in some)


def _postings(sets: Iterable[frozenset[str]], few: int) -> dict[str, Posting]:
    found: dict[str, list[int]] = {}
    for index, each in enumerate(sets):
        for text in each:
            found.setdefault(text, []).append(index)
    return {text: tuple(indexes) if len(indexes) <= few else _mask(indexes) for text, indexes in found.items()}


def _mask(indexes: Sequence[int]) -> int:
    octets = bytearray(indexes[-1] // 8 + 1)
    for index in indexes:
        octets[index // 8] |= 1 << index % 8
    return int.from_bytes(octets, "little")
