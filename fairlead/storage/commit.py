"""What every store asks of a commit before it writes: is it well-formed, and does it still hold?

Called by the stores on both sides of their write lock: `prepare` before it, `find_conflict` under it.
"""

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from fairlead.storage.contract import Change, Check, Conflict, Key

# DOC-MERGED storage/keys
# Tuple keys as bytes that sort like the tuples. Called by every store that keeps keys in one ordered column or list.
#
# Each part is its UTF-8 bytes, with NUL written as 00 FF, ended by 00. UTF-8 never holds the byte FF, so an end (00 and
# then anything but FF) is never mistaken for an escaped NUL and no part can pretend to be two. All keys that begin with
# a prefix lie between the packed prefix and the same bytes with FF behind them, and nothing else lies there.


KEPT = 4_096
"""Of how many beginnings of keys the parts are remembered."""

_END = re.compile(rb"\x00(?!\xff)")


def pack(key: Key) -> bytes:
    """The bytes of a key or of a prefix. ValueError where a part is not Unicode text (a lone surrogate)."""
    return b"".join([part.encode().replace(b"\0", b"\0\xff") + b"\0" for part in key])


def unpack(packed: bytes) -> Key:
    """Many keys differ in their last part alone: the others are unpacked once and kept once for all of them."""
    if b"\0\xff" in packed:
        key = [part.replace(b"\0\xff", b"\0").decode() for part in _END.split(packed)[:-1]]
        return (*map(sys.intern, key[:-1]), *key[-1:])
    first, end, last = packed[:-1].rpartition(b"\0")
    if end:
        return (*_parts(first), last.decode())
    return (last.decode(),) if packed else ()


@lru_cache(KEPT)
def _parts(joined: bytes) -> Key:
    return tuple(map(sys.intern, joined.decode().split("\0")))


def prefix_range(prefix: Key, after: Key | None = None) -> tuple[bytes, bytes]:
    """The half-open range [low, high) of the packed keys that begin with `prefix` and come after the key `after`."""
    low = pack(prefix)
    high = low + b"\xff"
    if after is not None:
        # The smallest bytes above a packed key are that key and one more NUL.
        low = max(low, pack(after) + b"\0")
    return low, high


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
