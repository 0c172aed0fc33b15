"""What every store asks of a commit before it writes: is it well-formed, and does it still hold?

Called by the stores on both sides of their write lock: `prepare` before it, `find_conflict` under it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fairlead.storage.contract import Change, Check, Conflict
from fairlead.storage.keys import pack


@dataclass(slots=True)
class Prepared:
    """A well-formed commit, with the packed key of each change and each check beside it. Not frozen, for speed."""

    changes: Sequence[Change]
    changed: Sequence[bytes]
    checks: Sequence[Check]
    checked: Sequence[bytes]


def prepare(changes: Sequence[Change], checks: Sequence[Check]) -> Prepared:
    """ValueError for what only a mistake in the calling code can bring about."""
    if not changes:
        raise ValueError("a commit needs at least one change; ask scan() or revision() to only look")
    if len(changes) == 1 and not checks and changes[0].value is not None:
        return Prepared((changes[0],), (pack(changes[0].key),), (), ())  # as most are; it cannot be ill-formed
    prepared = Prepared(
        tuple(changes), [pack(change.key) for change in changes], tuple(checks), [pack(check.key) for check in checks]
    )
    named = {*prepared.changed, *prepared.checked}
    if len(named) != len(changes) + len(checks):
        raise ValueError("a commit names each key at most once, be it in a change or in a check")
    for change in changes:
        if change.value is None and change.expected == 0:
            raise ValueError(f"{change.key} is to be deleted and yet must not exist; say it with a Check instead")
    return prepared


def find_conflict(commit: Prepared, revision_of: Callable[[bytes], int]) -> Conflict | None:
    """The first change, then the first check, that does not find its key at the revision it expects."""
    for change, packed in zip(commit.changes, commit.changed, strict=True):
        if (actual := revision_of(packed)) != change.expected:
            return Conflict(change.key, change.expected, actual)
    for check, packed in zip(commit.checks, commit.checked, strict=True):
        if (actual := revision_of(packed)) != check.expected:
            return Conflict(check.key, check.expected, actual)
    return None
