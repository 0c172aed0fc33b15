"""Reconstructs the order of versions that all clients must agree on from all recorded responses.

A revision identifies a version of an object, so whatever was acknowledged, read, listed or watched belongs to the same
sequence of versions. Contradictions are violations.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from tests.chaos.history import CREATE, DELETE, DELETED, DONE, GET, UNKNOWN, UPDATE, History

ABSENT = None


@dataclass(frozen=True, slots=True)
class Version:
    """`value` is None where the object does not exist.

    A deletion that no watch saw is not `exact`: it has the revision of what it deleted, and `until` is the first
    revision at which it had certainly happened, 0 if none is known.
    """

    revision: int
    value: str | None
    exact: bool = True
    until: int = 0


class ObjectVersions:
    """The versions of one object in order. The first one is its absence."""

    def __init__(self, name: str, versions: list[Version]) -> None:
        self.name = name
        self.versions = versions
        self._revisions = [each.revision for each in versions]
        self.index = {each.revision: number for number, each in enumerate(versions) if each.exact}
        self.index_of_value = {each.value: number for number, each in enumerate(versions) if each.value is not ABSENT}

    def at(self, revision: int) -> Version:
        """The version at a revision of the store."""
        return self.versions[bisect_right(self._revisions, revision) - 1]

    def between(self, lowest: int, highest: int) -> list[Version]:
        """The versions in a range of revisions, both ends included."""
        return self.versions[bisect_left(self._revisions, lowest) : bisect_right(self._revisions, highest)]

    def after(self, revision: int) -> int | None:
        """The index of the version after the one of that revision."""
        index = self.index.get(revision)
        return index + 1 if index is not None and index + 1 < len(self.versions) else None


Facts = dict[str, dict[int, set[str | None]]]
"""The values in responses by object and revision. More than one value is a contradiction."""


def collect_facts(history: History) -> Facts:
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


def collect_versions(history: History) -> Mapping[str, ObjectVersions]:
    creates = {each.value for each in history.operations if each.verb == CREATE}
    deleted: dict[str, dict[int, bool]] = defaultdict(dict)
    """Whether a deletion was acknowledged, by object and expected revision."""
    for each in history.operations:
        if each.verb == DELETE and each.outcome in (DONE, UNKNOWN):
            versions_by_name = deleted[each.name].get(each.expected, False)
            deleted[each.name][each.expected] = versions_by_name or each.outcome == DONE
    histories = {}
    for name, facts in collect_facts(history).items():
        absent_revisions = sorted(listing.revision for listing in history.listings if name not in listing.items)
        histories[name] = ObjectVersions(name, list(_versions(facts, deleted[name], creates, absent_revisions)))
    return histories


def _versions(
    facts: Mapping[int, set[str | None]], deleted: Mapping[int, bool], creates: set[str], absent_revisions: list[int]
) -> Iterator[Version]:
    """Adds deletions that no watch saw, directly after what they deleted."""
    yield Version(0, ABSENT)
    revisions = sorted(facts)
    for revision, following in pairwise([*revisions, 0]):  # none, if all operations on the object were in vain
        value = min(facts[revision], key=str)
        yield Version(revision, value)
        if revision not in deleted or value is ABSENT or facts.get(following) == {ABSENT}:
            continue
        is_recreated = any(each in creates for each in facts.get(following, ()))
        if deleted[revision] or is_recreated or not following:
            later = next((each for each in absent_revisions if each > revision), 0)
            yield Version(revision, ABSENT, exact=False, until=min(filter(None, (following, later)), default=0))


def find_contradictions(history: History, versions_by_name: Mapping[str, ObjectVersions]) -> Iterator[str]:
    """Finds revisions with two values, and writes at two revisions."""
    for name, facts in collect_facts(history).items():
        for revision, values in facts.items():
            if len(values) > 1:
                yield f"{name} at {revision} had the values {sorted(map(str, values))}"
    for versions in versions_by_name.values():
        for number, version in enumerate(versions.versions):
            if version.value is not ABSENT and versions.index_of_value[version.value] != number:
                yield f"{versions.name} became {version.value} twice, at {version.revision} for one"


def find_unrequested(history: History, versions_by_name: Mapping[str, ObjectVersions]) -> Iterator[str]:
    """Finds versions that no client requested, and versions whose write was rejected."""
    outcomes: dict[str | tuple[str, int], set[str]] = defaultdict(set)
    for each in history.operations:
        if each.verb in (CREATE, UPDATE):
            outcomes[each.value].add(each.outcome)
        elif each.verb == DELETE:
            outcomes[each.name, each.expected].add(each.outcome)
    for versions in versions_by_name.values():
        for before, version in zip(versions.versions, versions.versions[1:], strict=False):
            write_outcomes = outcomes[(versions.name, before.revision) if version.value is ABSENT else version.value]
            if not write_outcomes & {DONE, UNKNOWN}:
                reason = "which was rejected" if write_outcomes else "which no client requested"
                yield f"{versions.name} at {version.revision} became {version.value}, {reason}"
