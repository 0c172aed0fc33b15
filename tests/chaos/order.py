"""Checks linearizability: an operation must not see an older state than one that ended before it started.

The order of versions is known from revisions, so no search is needed: every operation gets the first
position in that order which its result allows and which is not before the position of an operation that ended before it
started. The lowest positions are the best for all later operations. If there is none, no order explains the results.
"""

import heapq
from collections import defaultdict
from collections.abc import Iterator, Mapping

from tests.chaos.history import CREATE, DELETE, DONE, GET, MISSING, NEVER, UNKNOWN, History, Operation
from tests.chaos.versions import ABSENT, ObjectVersions


def find_unexplained(history: History, versions_by_name: Mapping[str, ObjectVersions]) -> Iterator[str]:
    """Finds operations that no order of each object's versions explains. A list reads every object."""
    by_name: dict[str, list[Operation]] = {name: [] for name in versions_by_name}
    for each in history.operations:
        by_name[each.name].append(each)
    for listing in history.listings:
        for name, operations in by_name.items():
            item = listing.items.get(name)
            outcome, revision = (DONE, item.revision) if item is not None else (MISSING, 0)
            operations.append(Operation(GET, name, listing.start, listing.end, outcome, revision=revision))
    for name, operations in by_name.items():
        yield from _find_unplaceable(versions_by_name[name], sorted(operations, key=lambda each: each.start))


def _find_unplaceable(versions: ObjectVersions, operations: list[Operation]) -> Iterator[str]:
    """Operations must be sorted by their start."""
    in_progress: list[tuple[float, int]] = []
    """The end and the position of each operation in progress."""
    lowest_allowed = 0
    for each in operations:
        while in_progress and in_progress[0][0] < each.start:
            lowest_allowed = max(lowest_allowed, heapq.heappop(in_progress)[1])
        if each.outcome == UNKNOWN and not (each.value and each.value in versions.index_of_value):
            continue
        # A write creates a version that no client can have seen before it started.
        lowest = lowest_allowed + 1 if each.verb != GET and each.outcome in (DONE, UNKNOWN) else lowest_allowed
        position = _find_position(versions, each, lowest)
        if position is None:
            yield f"{each} cannot come after {versions.versions[lowest_allowed]}, which a client saw before it"
        elif each.end != NEVER:
            heapq.heappush(in_progress, (each.end, position))


def _find_position(versions: ObjectVersions, each: Operation, lowest: int) -> int | None:
    """The first position that is consistent with the result."""
    if each.outcome == DONE and each.verb == DELETE:
        position = versions.after(each.expected)
    elif each.outcome == DONE:
        position = versions.index.get(each.revision)
    elif each.outcome == UNKNOWN:
        position = versions.index_of_value[each.value]
    else:
        candidates = (
            number for number in range(lowest, len(versions.versions)) if _is_consistent(versions, number, each)
        )
        return next(candidates, None)
    return position if position is not None and position >= lowest else None


def _is_consistent(versions: ObjectVersions, position: int, operation: Operation) -> bool:
    version = versions.versions[position]
    if operation.outcome == MISSING:
        return version.value is ABSENT
    if operation.verb == CREATE:
        return version.value is not ABSENT
    return version.value is ABSENT or version.revision != operation.expected


def find_falling_revisions(history: History) -> Iterator[str]:
    """Finds writes and lists with lower revisions than a response before them."""
    intervals: dict[str, list[tuple[float, float, int]]] = defaultdict(list)
    for each in history.operations:
        if each.outcome == DONE and each.verb != DELETE:
            kind = "read" if each.verb == GET else "write"
            intervals[kind].append((each.start, each.end, each.revision))
    intervals["list"] = [(each.start, each.end, each.revision) for each in history.listings]
    in_progress: list[tuple[float, int]] = []
    highest = 0
    for start, end, revision, kind in sorted((*each, kind) for kind, several in intervals.items() for each in several):
        while in_progress and in_progress[0][0] < start:
            highest = max(highest, heapq.heappop(in_progress)[1])
        # An object that is read may be older than the store's newest revision.
        if (kind == "write" and revision <= highest) or (kind == "list" and revision < highest):
            yield f"a {kind} that started at {start:.3f} got {revision} after {highest}"
        heapq.heappush(in_progress, (end, revision))
