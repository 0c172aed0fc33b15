"""Checks the consistency rules that every recorded history must satisfy, whatever the faults."""

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
    History,
    Operation,
    WatchChain,
)
from tests.chaos.order import find_falling_revisions, find_unexplained
from tests.chaos.versions import ABSENT, ObjectVersions, collect_versions, find_contradictions, find_unrequested


@dataclass(frozen=True, slots=True)
class Violation:
    rule: str
    what: str


def find_violations(history: History) -> list[Violation]:
    """Returns all violations of a history."""
    versions_by_name = collect_versions(history)
    rules: Mapping[str, Iterator[str]] = {
        "consistent versions": find_contradictions(history, versions_by_name),
        "no unrequested write": find_unrequested(history, versions_by_name),
        "no acknowledged write lost": find_lost_writes(history, versions_by_name),
        "one winner": find_multiple_winners(history),
        "linearizable": find_unexplained(history, versions_by_name),
        "revisions rise": find_falling_revisions(history),
        "lists are snapshots": find_inconsistent_lists(history, versions_by_name),
        "watches": (problem for chain in history.chains for problem in find_watch_faults(chain, versions_by_name)),
    }
    return [Violation(rule, what) for rule, found in rules.items() for what in found]


def find_lost_writes(history: History, versions_by_name: Mapping[str, ObjectVersions]) -> Iterator[str]:
    """Finds acknowledged writes that do not directly follow the version they were based on."""
    for each in history.operations:
        versions = versions_by_name[each.name]
        if each.verb == DELETE and each.outcome == DONE:
            index = versions.after(each.expected)
            if index is None or versions.versions[index].value is not ABSENT:
                yield f"{each} was acknowledged, but not applied"
        elif each.verb in (CREATE, UPDATE) and each.outcome in (DONE, UNKNOWN):
            index = versions.index_of_value.get(each.value)
            if index is not None and not _is_based_on(
                each, versions.versions[index - 1].revision, versions.versions[index - 1].value
            ):
                yield f"{each} was applied, but replaced {versions.versions[index - 1]}"


def _is_based_on(write: Operation, revision: int, value: str | None) -> bool:
    return value is ABSENT if write.verb == CREATE else revision == write.expected


def find_multiple_winners(history: History) -> Iterator[str]:
    """Finds revisions upon which more than one write was acknowledged."""
    acknowledged: dict[tuple[str, int], list[Operation]] = defaultdict(list)
    for each in history.operations:
        if each.outcome == DONE and each.expected:
            acknowledged[each.name, each.expected].append(each)
    for (name, revision), several in acknowledged.items():
        if len(several) > 1:
            yield f"{len(several)} writes of {name} upon {revision} were acknowledged: {several}"


def find_inconsistent_lists(history: History, versions_by_name: Mapping[str, ObjectVersions]) -> Iterator[str]:
    """Finds lists that do not show every object as it was at the list's revision."""
    for listing in history.listings:
        for name, versions in versions_by_name.items():
            item, version = listing.items.get(name), versions.at(listing.revision)
            # The exact revision of a deletion that no watch saw is unknown.
            is_uncertain = not version.exact and not 0 < version.until <= listing.revision
            is_right = version.value is ABSENT if item is None else item.value == version.value
            is_unchanged = item is not None and item.revision == version.revision
            if not is_right and not (is_uncertain and is_unchanged):
                yield f"the list at {listing.revision} has {name} as {item}, but it was {version}"


def find_watch_faults(chain: WatchChain, versions_by_name: Mapping[str, ObjectVersions]) -> Iterator[str]:
    """Finds events that are out of order, repeated, missing up to the last bookmark, or of the wrong type."""
    position, last = chain.since, chain.since
    for each in chain.lines:
        if each.type == BOOKMARK:
            if each.revision < position:
                yield f"a bookmark at {each.revision} after {position}"
            position = max(position, each.revision)
            continue
        if each.revision <= position:
            reason = "repeated or out of order" if each.revision <= last else "a bookmark was ahead of it"
            yield f"{each} came after {position}: {reason}"
        position, last = max(position, each.revision), each.revision
        if (problem := _check_event_type(each.type, versions_by_name[each.name], each.revision)) is not None:
            yield f"{each}: {problem}"
    yield from _find_missed_events(chain, position, versions_by_name)


def _find_missed_events(
    chain: WatchChain, position: int, versions_by_name: Mapping[str, ObjectVersions]
) -> Iterator[str]:
    received = {(each.name, each.revision) for each in chain.events}
    for name, versions in versions_by_name.items():
        for version in versions.between(chain.since, position):
            is_due = chain.since < version.revision
            if not version.exact:
                is_due = 0 < version.until <= position
            if is_due and (not version.exact or (name, version.revision) not in received):
                yield f"a watch from {chain.since} reached {position} and missed {name}: {version}"


def _check_event_type(kind: str, versions: ObjectVersions, revision: int) -> str | None:
    index = versions.index[revision]
    existed = versions.versions[index - 1].value is not ABSENT
    if kind == DELETED:
        return None if existed else "the object did not exist"
    expected = MODIFIED if existed else ADDED
    return None if kind == expected else f"it should be {expected}"
