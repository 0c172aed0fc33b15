"""The order of a list after a strategic merge patch: as the patch has it, with the others in between.

Both have an order of their own that stays: the entries that the patch names, and the rest. Where the list as it was
tells which of two comes first, that decides; otherwise the patch's entries come first.
"""

from collections.abc import Sequence
from typing import Any

Entry = tuple[str | None, Any]
"""An entry of a list with the step that leads to it."""


def interleaved(entries: Sequence[Entry], named: Sequence[str], before: Sequence[str | None]) -> list[Any]:
    """The entries in their order. `named` is the patch's order, `before` that of the list as it was."""
    wanted = {step: place for place, step in enumerate(named)}
    was = {step: place for place, step in enumerate(before)}
    first = sorted((entry for entry in entries if entry[0] in wanted), key=lambda entry: wanted[entry[0] or ""])
    result: list[Any] = []
    waiting = iter(first)
    following = next(waiting, None)
    for step, value in entries:
        if step in wanted:
            continue
        while following is not None and not _stood_before(step, following[0], was):
            result.append(following[1])
            following = next(waiting, None)
        result.append(value)
    if following is not None:
        result.append(following[1])
    return [*result, *(value for _, value in waiting)]


def _stood_before(one: str | None, other: str | None, was: dict[str | None, int]) -> bool:
    return one in was and other in was and was[one] < was[other]
