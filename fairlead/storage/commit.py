"""Key encoding, and validation of commits. Used by all stores.

Keys are tuples of strings, packed into bytes that sort like the tuples. Each part is UTF-8, with NUL escaped as 00
FF, and is terminated by 00. UTF-8 never contains FF, so a terminator (00 not followed by FF) is unambiguous. All keys
with a prefix, and no others, are between the packed prefix and the packed prefix followed by FF.

Stores call `prepare_commit` before they take their write lock, and `find_conflict` while they hold it.
"""

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from fairlead.storage.contract import Change, Check, Conflict, Key

KEPT = 4_096
"""Number of key prefixes whose unpacked parts are cached."""

_END = re.compile(rb"\x00(?!\xff)")


def pack(key: Key) -> bytes:
    """Pack a key or a prefix. Raises ValueError if a part is not valid Unicode (a lone surrogate)."""
    return b"".join([part.encode().replace(b"\0", b"\0\xff") + b"\0" for part in key])


def unpack(packed: bytes) -> Key:
    """Unpack a key. Many keys differ only in their last part, so the other parts are cached and shared."""
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
    """The half-open range [low, high) of the packed keys that start with `prefix` and come after the key `after`."""
    low = pack(prefix)
    high = low + b"\xff"
    if after is not None:
        # The smallest bytes above a packed key are that key followed by NUL.
        low = max(low, pack(after) + b"\0")
    return low, high


@dataclass(slots=True)
class Prepared:
    """A valid commit, with the packed keys of its writes and preconditions. Not frozen, for speed."""

    changes: Sequence[Change]
    changed: Sequence[bytes]
    checks: Sequence[Check]
    checked: Sequence[bytes]


def prepare(changes: Sequence[Change], checks: Sequence[Check]) -> Prepared:
    """Validate a commit. Raises ValueError for programming errors."""
    if not changes:
        raise ValueError("a commit needs at least one write; use scan() or revision() to read")
    if len(changes) == 1 and not checks and changes[0].value is not None:
        return Prepared((changes[0],), (pack(changes[0].key),), (), ())  # the common case, which cannot be invalid
    prepared = Prepared(
        tuple(changes), [pack(change.key) for change in changes], tuple(checks), [pack(check.key) for check in checks]
    )
    named = {*prepared.changed, *prepared.checked}
    if len(named) != len(changes) + len(checks):
        raise ValueError("a commit must name each key at most once, in a write or in a precondition")
    for change in changes:
        if change.value is None and change.expected == 0:
            raise ValueError(f"{change.key} is deleted and expected not to exist; use a Precondition instead")
    return prepared


def find_conflict(commit: Prepared, revision_of: Callable[[bytes], int]) -> Conflict | None:
    """The conflict of the first write, or else of the first precondition, whose key is not at the expected revision."""
    for change, packed in zip(commit.changes, commit.changed, strict=True):
        if (actual := revision_of(packed)) != change.expected:
            return Conflict(change.key, change.expected, actual)
    for check, packed in zip(commit.checks, commit.checked, strict=True):
        if (actual := revision_of(packed)) != check.expected:
            return Conflict(check.key, check.expected, actual)
    return None
