"""Whether answers agree with time: what somebody was told before another one asked is true for that one, too.

The order of versions is known from revisions, so linearizability needs no search: every operation gets the first
place in that order which its answer allows and which is not before the place of an operation that had ended when it
began. The least places are the best ones for all that comes later; if there is none, no order explains the answers.
"""

import heapq
from collections import defaultdict
from collections.abc import Iterator, Mapping

from tests.chaos.history import CREATE, DELETE, DONE, GET, MISSING, NEVER, UNKNOWN, History, Operation
from tests.chaos.versions import ABSENT, Story


def unexplained(history: History, known: Mapping[str, Story]) -> Iterator[str]:
    """Operations that no order of each object's versions explains. A list reads every object."""
    by_name: dict[str, list[Operation]] = {name: [] for name in known}
    for each in history.operations:
        by_name[each.name].append(each)
    for listing in history.listings:
        for name, operations in by_name.items():
            item = listing.items.get(name)
            outcome, revision = (DONE, item.revision) if item is not None else (MISSING, 0)
            operations.append(Operation(GET, name, listing.start, listing.end, outcome, revision=revision))
    for name, operations in by_name.items():
        yield from _placed(known[name], sorted(operations, key=lambda each: each.start))


def _placed(story: Story, operations: list[Operation]) -> Iterator[str]:
    """Operations in the order in which they began."""
    under_way: list[tuple[float, int]] = []
    """Of each: when it ends, and its place."""
    least = 0
    for each in operations:
        while under_way and under_way[0][0] < each.start:
            least = max(least, heapq.heappop(under_way)[1])
        if each.outcome == UNKNOWN and not (each.value and each.value in story.index_of_value):
            continue
        # A write makes a version that nobody can have seen before it began.
        lowest = least + 1 if each.verb != GET and each.outcome in (DONE, UNKNOWN) else least
        place = _first_place(story, each, lowest)
        if place is None:
            yield f"{each} cannot come after {story.versions[least]}, which somebody had seen before it began"
        elif each.end != NEVER:
            heapq.heappush(under_way, (each.end, place))


def _first_place(story: Story, each: Operation, lowest: int) -> int | None:
    """The first place that the answer is right for."""
    if each.outcome == DONE and each.verb == DELETE:
        only = story.after(each.expected)
    elif each.outcome == DONE:
        only = story.index.get(each.revision)
    elif each.outcome == UNKNOWN:
        only = story.index_of_value[each.value]
    else:
        fits = (number for number in range(lowest, len(story.versions)) if _explains(story, number, each))
        return next(fits, None)
    return only if only is not None and only >= lowest else None


def _explains(story: Story, place: int, refused: Operation) -> bool:
    version = story.versions[place]
    if refused.outcome == MISSING:
        return version.value is ABSENT
    if refused.verb == CREATE:
        return version.value is not ABSENT
    return version.value is ABSENT or version.revision != refused.expected


def falling(history: History) -> Iterator[str]:
    """Whatever revision somebody was told, later writes are above it and later lists not below it, restarts or not."""
    moments: dict[str, list[tuple[float, float, int]]] = defaultdict(list)
    for each in history.operations:
        if each.outcome == DONE and each.verb != DELETE:
            kind = "read" if each.verb == GET else "write"
            moments[kind].append((each.start, each.end, each.revision))
    moments["list"] = [(each.start, each.end, each.revision) for each in history.listings]
    under_way: list[tuple[float, int]] = []
    highest = 0
    for start, end, revision, kind in sorted((*each, kind) for kind, several in moments.items() for each in several):
        while under_way and under_way[0][0] < start:
            highest = max(highest, heapq.heappop(under_way)[1])
        # An object that is read may be older than the store's newest revision.
        if (kind == "write" and revision <= highest) or (kind == "list" and revision < highest):
            yield f"a {kind} that began at {start:.3f} got {revision}, when {highest} had been told"
        heapq.heappush(under_way, (end, revision))
