"""Whether a text begins with one of many beginnings, without trying each of them."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence


def outermost(beginnings: Iterable[str]) -> list[str]:
    """In order, without those that begin with another one of them."""
    found: list[str] = []
    for each in sorted(beginnings):
        if not found or not each.startswith(found[-1]):
            found.append(each)
    return found


def begins_with_one(text: str, beginnings: Sequence[str]) -> bool:
    """Whether a text begins with one of the `outermost` beginnings. As none of these begins with another one, the last
    that sorts before the text is the only candidate."""
    index = bisect_right(beginnings, text) - 1
    return index >= 0 and text.startswith(beginnings[index])
