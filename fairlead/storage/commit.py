"""Key encoding, validation of commits, and the delivery of their results. Used by all stores.

Keys are tuples of strings, packed into bytes that sort like the tuples. Each part is UTF-8, with NUL escaped as 00
FF, and is terminated by 00. UTF-8 never contains FF, so a terminator (00 not followed by FF) is unambiguous. All keys
with a prefix, and no others, are between the packed prefix and the packed prefix followed by FF.

Stores call `prepare_commit` before they take their write lock, and `find_conflict` while they hold it.
"""

import asyncio
import re
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TypeVar

from msgspec import Struct

from fairlead.storage.contract import Key, Precondition, RevisionConflict, StorageError, Write

T = TypeVar("T")

KEY_PREFIX_CACHE_SIZE = 4_096
"""Number of key prefixes whose unpacked parts are cached."""

_PART_END = re.compile(rb"\x00(?!\xff)")


def pack_key(key: Key) -> bytes:
    """Pack a key or a prefix. Raises ValueError if a part is not valid Unicode (a lone surrogate)."""
    joined = "\0".join((*key, ""))
    if joined.count("\0") == len(key):
        return joined.encode()
    return b"".join([part.encode().replace(b"\0", b"\0\xff") + b"\0" for part in key])


def unpack_key(packed: bytes) -> Key:
    """Unpack a key. Many keys differ only in their last part, so the other parts are cached and shared."""
    if b"\0\xff" in packed:
        key = [part.replace(b"\0\xff", b"\0").decode() for part in _PART_END.split(packed)[:-1]]
        return (*map(sys.intern, key[:-1]), *key[-1:])
    first, end, last = packed[:-1].rpartition(b"\0")
    if end:
        return (*_unpack_prefix(first), last.decode())
    return (last.decode(),) if packed else ()


@lru_cache(KEY_PREFIX_CACHE_SIZE)
def _unpack_prefix(joined: bytes) -> Key:
    return tuple(map(sys.intern, joined.decode().split("\0")))


def prefix_range(prefix: Key, after: Key | None = None) -> tuple[bytes, bytes]:
    """The half-open range [low, high) of the packed keys that start with `prefix` and come after the key `after`."""
    low = pack_key(prefix)
    high = low + b"\xff"
    if after is not None:
        # The smallest bytes above a packed key are that key followed by NUL.
        low = max(low, pack_key(after) + b"\0")
    return low, high


class PreparedCommit(Struct, frozen=True):
    """A valid commit, with the packed keys of its writes and preconditions."""

    writes: Sequence[Write]
    write_keys: Sequence[bytes]
    preconditions: Sequence[Precondition]
    precondition_keys: Sequence[bytes]


def prepare_commit(writes: Sequence[Write], preconditions: Sequence[Precondition]) -> PreparedCommit:
    """Validate a commit. Raises ValueError for programming errors."""
    if not writes:
        raise ValueError("a commit needs at least one write; use scan() or revision() to read")
    if len(writes) == 1 and not preconditions and writes[0].value is not None:
        return PreparedCommit(
            (writes[0],), (pack_key(writes[0].key),), (), ()
        )  # the common case, which cannot be invalid
    prepared = PreparedCommit(
        tuple(writes),
        [pack_key(change.key) for change in writes],
        tuple(preconditions),
        [pack_key(check.key) for check in preconditions],
    )
    named = {*prepared.write_keys, *prepared.precondition_keys}
    if len(named) != len(writes) + len(preconditions):
        raise ValueError("a commit must name each key at most once, in a write or in a precondition")
    for change in writes:
        if change.value is None and change.expected_revision == 0:
            raise ValueError(f"{change.key} is deleted and expected not to exist; use a Precondition instead")
    return prepared


def find_conflict(commit: PreparedCommit, revision_of: Callable[[bytes], int]) -> RevisionConflict | None:
    """The conflict of the first write, or else of the first precondition, whose key is not at the expected revision."""
    for change, packed in zip(commit.writes, commit.write_keys, strict=True):
        if (actual := revision_of(packed)) != change.expected_revision:
            return RevisionConflict(change.key, change.expected_revision, actual)
    for check, packed in zip(commit.preconditions, commit.precondition_keys, strict=True):
        if (actual := revision_of(packed)) != check.expected_revision:
            return RevisionConflict(check.key, check.expected_revision, actual)
    return None


def resolve_future(done: "asyncio.Future[T]", result: T | StorageError) -> None:
    """Give its result or its error to the caller that waits for it, unless the caller was cancelled."""
    if done.done():
        return
    if isinstance(result, StorageError):
        done.set_exception(result)
    else:
        done.set_result(result)
