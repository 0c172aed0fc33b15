"""The one order of versions that all clients must agree on, put together from everything that anybody was told.

A revision names a version of an object, so whatever was acknowledged, read, listed or watched is a piece of the same
story. Pieces that contradict each other are violations already.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tests.chaos.history import CREATE, DELETE, DELETED, DONE, GET, UNKNOWN, UPDATE, History

ABSENT = None


@dataclass(frozen=True, slots=True)
class Version:
    """`value` is None where the object is gone.

    A deletion that nobody has watched is not `exact`: it has the revision of what it deleted, and `until` is the first
    revision at which it had surely happened, 0 if none is known.
    """

    revision: int
    value: str | None
    exact: bool = True
    until: int = 0


class Story:
    """Of one object: its versions in order; the first one is that there is none."""

    def __init__(self, name: str, versions: list[Version]) -> None:
        self.name = name
        self.versions = versions
        self._revisions = [each.revision for each in versions]
        self.index = {each.revision: number for number, each in enumerate(versions) if each.exact}
        self.index_of_value = {each.value: number for number, each in enumerate(versions) if each.value is not ABSENT}

    def at(self, revision: int) -> Version:
        """The version that holds at a revision of the store."""
        return self.versions[bisect_right(self._revisions, revision) - 1]

    def between(self, lowest: int, highest: int) -> list[Version]:
        """Those with a revision in that range, both ends included."""
        return self.versions[bisect_left(self._revisions, lowest) : bisect_right(self._revisions, highest)]

    def after(self, revision: int) -> int | None:
        """Where the version stands that follows the one of that revision."""
        index = self.index.get(revision)
        return index + 1 if index is not None and index + 1 < len(self.versions) else None


Facts = dict[str, dict[int, set[str | None]]]
"""By object and revision: what it was said to be. More than one thing is one too many."""


def told(history: History) -> Facts:
    facts: Facts = {each.name: defaultdict(set) for each in history.operations}
    for each in history.operations:
        if each.outcome == DONE and each.verb in (CREATE, UPDATE, GET):
            facts[each.name][each.revision].add(each.value)
    for listing in history.listings:
        for name, state in listing.items.items():
            facts.setdefault(name, defaultdict(set))[state.revision].add(state.value)
    for chain in history.chains:
        for event in chain.events:
            value = ABSENT if event.type == DELETED else event.value
            facts.setdefault(event.name, defaultdict(set))[event.revision].add(value)
    return facts


def stories(history: History) -> Mapping[str, Story]:
    creates = {each.value for each in history.operations if each.verb == CREATE}
    deleted: dict[str, dict[int, bool]] = defaultdict(dict)
    """By object and the revision that was expected: whether it was acknowledged."""
    for each in history.operations:
        if each.verb == DELETE and each.outcome in (DONE, UNKNOWN):
            known = deleted[each.name].get(each.expected, False)
            deleted[each.name][each.expected] = known or each.outcome == DONE
    made = {}
    for name, facts in told(history).items():
        without = sorted(listing.revision for listing in history.listings if name not in listing.items)
        made[name] = Story(name, list(_versions(facts, deleted[name], creates, without)))
    return made


def _versions(
    facts: Mapping[int, set[str | None]], deleted: Mapping[int, bool], creates: set[str], without: list[int]
) -> Iterator[Version]:
    """Adds deletions that fell between two watches: right after what they deleted."""
    yield Version(0, ABSENT)
    revisions = sorted(facts)
    for revision, following in zip(revisions, [*revisions[1:], 0], strict=True):
        value = min(facts[revision], key=str)
        yield Version(revision, value)
        if revision not in deleted or value is ABSENT or facts.get(following) == {ABSENT}:
            continue
        again = any(each in creates for each in facts.get(following, ()))
        if deleted[revision] or again or not following:
            later = next((each for each in without if each > revision), 0)
            yield Version(revision, ABSENT, exact=False, until=min(filter(None, (following, later)), default=0))


def contradictions(history: History, known: Mapping[str, Story]) -> Iterator[str]:
    """One revision with two stories, or one write at two revisions."""
    for name, facts in told(history).items():
        for revision, values in facts.items():
            if len(values) > 1:
                yield f"{name} at {revision} was told as {sorted(map(str, values))}"
    for story in known.values():
        for number, version in enumerate(story.versions):
            if version.value is not ABSENT and story.index_of_value[version.value] != number:
                yield f"{story.name} became {version.value} twice, at {version.revision} for one"


def from_nowhere(history: History, known: Mapping[str, Story]) -> Iterator[str]:
    """Versions that nobody has asked for, and versions whose making was refused."""
    outcomes: dict[str | tuple[str, int], set[str]] = defaultdict(set)
    for each in history.operations:
        if each.verb in (CREATE, UPDATE):
            outcomes[each.value].add(each.outcome)
        elif each.verb == DELETE:
            outcomes[each.name, each.expected].add(each.outcome)
    for story in known.values():
        for before, version in zip(story.versions, story.versions[1:], strict=False):
            asked = outcomes[(story.name, before.revision) if version.value is ABSENT else version.value]
            if not asked & {DONE, UNKNOWN}:
                why = "which was refused" if asked else "which nobody has asked for"
                yield f"{story.name} at {version.revision} became {version.value}, {why}"
