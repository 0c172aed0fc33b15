"""Tuple keys as bytes that sort like the tuples. Called by every store that keeps keys in one ordered column or list.

Each part is its UTF-8 bytes, with NUL written as 00 FF, ended by 00. UTF-8 never holds the byte FF, so an end (00 and
then anything but FF) is never mistaken for an escaped NUL and no part can pretend to be two. All keys that begin with
a prefix lie between the packed prefix and the same bytes with FF behind them, and nothing else lies there.
"""

import re
import sys
from functools import lru_cache

from fairlead.storage.contract import Key

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
