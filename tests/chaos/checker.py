"""What must hold in every history, whatever went wrong meanwhile. Pure: histories in, violations out."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tests.chaos.history import (
    ADDED,
    BOOKMARK,
    CREATE,
    DELETE,
    DELETED,
    DONE,
    MODIFIED,
    UNKNOWN,
    UPDATE,
    Chain,
    History,
    Operation,
)
from tests.chaos.order import falling, unexplained
from tests.chaos.versions import ABSENT, Story, contradictions, from_nowhere, stories


@dataclass(frozen=True, slots=True)
class Violation:
    rule: str
    what: str


def judge(history: History) -> list[Violation]:
    """Every violation; an empty list is a good history."""
    known = stories(history)
    rules: Mapping[str, Iterator[str]] = {
        "one story": contradictions(history, known),
        "no write from nowhere": from_nowhere(history, known),
        "no acknowledged write lost": lost(history, known),
        "one winner": winners(history),
        "linearizable": unexplained(history, known),
        "revisions rise": falling(history),
        "lists are snapshots": torn(history, known),
        "watches": (problem for chain in history.chains for problem in watched(chain, known)),
    }
    return [Violation(rule, what) for rule, found in rules.items() for what in found]


def lost(history: History, known: Mapping[str, Story]) -> Iterator[str]:
    """What was done follows directly upon what it was based on."""
    for each in history.operations:
        story = known[each.name]
        if each.verb == DELETE and each.outcome == DONE:
            place = story.after(each.expected)
            if place is None or story.versions[place].value is not ABSENT:
                yield f"{each} was acknowledged, but it did not happen"
        elif each.verb in (CREATE, UPDATE) and each.outcome in (DONE, UNKNOWN):
            place = story.index_of_value.get(each.value)
            if place is not None and not _based(
                each, story.versions[place - 1].revision, story.versions[place - 1].value
            ):
                yield f"{each} was done, but what it replaced is {story.versions[place - 1]}"


def _based(write: Operation, revision: int, value: str | None) -> bool:
    return value is ABSENT if write.verb == CREATE else revision == write.expected


def winners(history: History) -> Iterator[str]:
    """Of those who expected the same revision, one at most was told that it got its way."""
    won: dict[tuple[str, int], list[Operation]] = defaultdict(list)
    for each in history.operations:
        if each.outcome == DONE and each.expected:
            won[each.name, each.expected].append(each)
    for (name, revision), several in won.items():
        if len(several) > 1:
            yield f"{len(several)} writes of {name} upon {revision} were acknowledged: {several}"


def torn(history: History, known: Mapping[str, Story]) -> Iterator[str]:
    """A list shows every object as it was at the list's revision."""
    for listing in history.listings:
        for name, story in known.items():
            item, version = listing.items.get(name), story.at(listing.revision)
            # Nobody knows when exactly a deletion has happened that nobody has watched.
            open_end = not version.exact and not 0 < version.until <= listing.revision
            right = version.value is ABSENT if item is None else item.value == version.value
            still_there = item is not None and item.revision == version.revision
            if not right and not (open_end and still_there):
                yield f"the list at {listing.revision} has {name} as {item}, but it was {version}"


def watched(chain: Chain, known: Mapping[str, Story]) -> Iterator[str]:
    """In order, once each, none left out up to where it came, bookmarks included, and of the right type."""
    position, last = chain.since, chain.since
    for each in chain.seen:
        if each.type == BOOKMARK:
            if each.revision < position:
                yield f"a bookmark at {each.revision} after {position}"
            position = max(position, each.revision)
            continue
        if each.revision <= position:
            why = "again or out of order" if each.revision <= last else "a bookmark was ahead of it"
            yield f"{each} came after {position}: {why}"
        position, last = max(position, each.revision), each.revision
        if (problem := _wrong_type(each.type, known[each.name], each.revision)) is not None:
            yield f"{each}: {problem}"
    yield from _left_out(chain, position, known)


def _left_out(chain: Chain, position: int, known: Mapping[str, Story]) -> Iterator[str]:
    heard = {(each.name, each.revision) for each in chain.events}
    for name, story in known.items():
        for version in story.between(chain.since, position):
            due = chain.since < version.revision
            if not version.exact:
                due = 0 < version.until <= position
            if due and (not version.exact or (name, version.revision) not in heard):
                yield f"a watch from {chain.since} came to {position} and left out {name}: {version}"


def _wrong_type(kind: str, story: Story, revision: int) -> str | None:
    index = story.index[revision]
    was_there = story.versions[index - 1].value is not ABSENT
    if kind == DELETED:
        return None if was_there else "it was not there"
    expected = MODIFIED if was_there else ADDED
    return None if kind == expected else f"it should be {expected}"
