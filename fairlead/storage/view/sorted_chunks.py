"""Objects in key order, in chunks of neighbours. Used by Collection for lists.

An insert moves the rest of one chunk, not of a million objects. The encoded bytes of a chunk are joined once, when
first needed, and cached in the `JoinedBytesCache` until a member changes. So a list of ten thousand objects is built
from a few dozen pieces.

Chunks are copy-on-write: one that is part of a `ChunkSlice` is not modified any more, but replaced by a copy. So a
slice is an immutable snapshot.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

from fairlead.core.concurrency import split_by_size
from fairlead.storage.contract import Key
from fairlead.storage.view.entry import Entry

MAX_CHUNK_ENTRIES = 256
"""Larger chunks make lists cheaper, but the first list after a change more expensive."""
JOINED_CACHE_BYTES = 64 * 1024 * 1024
"""Total size of the cached bytes. Chunks that do not fit are joined again for each list."""
MAX_JOIN_BYTES = 1024 * 1024
"""Maximum bytes to join at once. Larger chunks are not cached, because joining large objects saves little."""

Join = Callable[[Sequence[Entry]], bytes]


class Chunk:
    """Some neighbours, and their joined bytes if cached."""

    __slots__ = ("entries", "is_current", "is_shared", "joined", "keys")

    def __init__(self, keys: list[Key], entries: list[Entry]) -> None:
        self.keys = keys
        self.entries = entries
        self.joined: bytes | None = None
        self.is_shared = False
        self.is_current = True


class JoinedBytesCache:
    """A bounded cache of joined bytes. When it is full, the oldest entries are dropped."""

    __slots__ = ("_chunks", "size")

    def __init__(self) -> None:
        self._chunks: dict[Chunk, None] = {}
        self.size = 0

    def add(self, chunk: Chunk, joined: bytes) -> None:
        if not chunk.is_current or len(joined) > JOINED_CACHE_BYTES:
            return
        chunk.joined = joined
        self._chunks[chunk] = None
        self.size += len(joined)
        while self.size > JOINED_CACHE_BYTES:
            self.drop(next(iter(self._chunks)))

    def drop(self, chunk: Chunk) -> None:
        if chunk.joined is not None:
            self.size -= len(chunk.joined)
            chunk.joined = None
            del self._chunks[chunk]


class ChunkSlice:
    """An immutable snapshot of a range of objects."""

    __slots__ = ("_joined_cache", "_length", "_pieces")

    def __init__(self, pieces: list[tuple[Chunk, int, int]], joined_cache: JoinedBytesCache) -> None:
        self._pieces = pieces
        self._joined_cache = joined_cache
        self._length = sum([stop - start for _, start, stop in pieces])
        for run, _, _ in pieces:
            run.is_shared = True

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries())

    @property
    def last(self) -> Entry:
        run, _, stop = self._pieces[-1]
        return run.entries[stop - 1]

    def entries(self) -> list[Entry]:
        found: list[Entry] = []
        for run, start, stop in self._pieces:
            found += run.entries if stop - start == len(run.entries) else run.entries[start:stop]
        return found

    def batches(self, max_entries: int) -> Iterator[list[Entry]]:
        """The entries in batches of at most `max_entries`.

        A slow consumer should use this: a list of all entries takes long to copy, and slows down every garbage
        collection while it exists.
        """
        for run, start, stop in self._pieces:
            for at in range(start, stop, max_entries):
                yield run.entries[at : min(at + max_entries, stop)]

    def iter_joined(self, join: Join) -> Iterator[bytes]:
        """The joined bytes of all entries, one piece per chunk, or several if its objects are large.

        Pieces are built lazily from the snapshot. `join` must always be the same for one collection.
        """
        for run, start, stop in self._pieces:
            is_whole = stop - start == len(run.entries)
            if is_whole and run.joined is not None:
                yield run.joined
                continue
            parts = list(split_by_size(run.entries if is_whole else run.entries[start:stop], _size, MAX_JOIN_BYTES))
            for part in parts:
                piece = join(part)
                if is_whole and len(parts) == 1:
                    self._joined_cache.add(run, piece)
                yield piece


def _size(entry: Entry) -> int:
    return len(entry.body)


class ChunkedSortedList:
    """All objects of one resource, sorted by key."""

    __slots__ = ("_chunks", "_joined_cache", "_last_keys")

    def __init__(self, joined_cache: JoinedBytesCache, entries: Sequence[Entry] = ()) -> None:
        """`entries` are the initial objects, sorted by key."""
        self._joined_cache = joined_cache
        pieces = [entries[start : start + MAX_CHUNK_ENTRIES] for start in range(0, len(entries), MAX_CHUNK_ENTRIES)]
        self._chunks = [Chunk([entry.key for entry in piece], list(piece)) for piece in pieces]
        self._last_keys = [run.keys[-1] for run in self._chunks]
        """The last key of each chunk."""

    def put(self, entry: Entry) -> None:
        """Insert or replace an object."""
        key = entry.key
        at = bisect_left(self._last_keys, key)
        if at == len(self._chunks):
            self._append(entry)
            return
        run = self._copy_on_write(at)
        position = bisect_left(run.keys, key)
        if run.keys[position] == key:
            run.entries[position] = entry
            return
        run.keys.insert(position, key)
        run.entries.insert(position, entry)
        if len(run.keys) > MAX_CHUNK_ENTRIES:
            self._split(at, run)

    def remove(self, key: Key) -> None:
        """Remove an existing object."""
        at = bisect_left(self._last_keys, key)
        run = self._copy_on_write(at)
        position = bisect_left(run.keys, key)
        del run.keys[position], run.entries[position]
        if run.keys:
            self._last_keys[at] = run.keys[-1]
        else:
            del self._chunks[at], self._last_keys[at]

    def count(self, low: Key, high: Key) -> int:
        """The number of objects from `low` to before `high`."""
        if low >= high:  # continue tokens come from clients and may point anywhere
            return 0
        first, start = self._find(low)
        last, stop = self._find(high)
        return sum([len(run.keys) for run in self._chunks[first:last]]) - start + stop

    def slice(self, low: Key, high: Key, limit: int = 0) -> ChunkSlice:
        """The objects from `low` to before `high`, at most `limit` (0 = all)."""
        at, start = self._find(low)
        last, end = self._find(high)
        room = limit or -1
        pieces: list[tuple[Chunk, int, int]] = []
        while room and (at < last or (at == last and start < end)):
            run = self._chunks[at]
            stop = end if at == last else len(run.keys)
            if 0 < room < stop - start:
                stop = start + room
            pieces.append((run, start, stop))
            room -= stop - start if room > 0 else 0
            at, start = at + 1, 0
        return ChunkSlice(pieces, self._joined_cache)

    def _find(self, key: Key) -> tuple[int, int]:
        """The chunk index, and the position within it, of the first object not before `key`."""
        at = bisect_left(self._last_keys, key)
        return (at, bisect_left(self._chunks[at].keys, key)) if at < len(self._chunks) else (at, 0)

    def _append(self, entry: Entry) -> None:
        """Append after all others. Increasing names thus fill chunks completely, without splits."""
        at = len(self._chunks) - 1
        if at < 0 or len(self._chunks[at].keys) >= MAX_CHUNK_ENTRIES:
            self._chunks.append(Chunk([entry.key], [entry]))
            self._last_keys.append(entry.key)
            return
        run = self._copy_on_write(at)
        run.keys.append(entry.key)
        run.entries.append(entry)
        self._last_keys[at] = entry.key

    def _copy_on_write(self, at: int) -> Chunk:
        """The chunk, or a copy in its place if a slice shares it."""
        run = self._chunks[at]
        self._joined_cache.drop(run)
        if run.is_shared:
            run.is_current = False
            run = self._chunks[at] = Chunk(run.keys.copy(), run.entries.copy())
        return run

    def _split(self, at: int, chunk: Chunk) -> None:
        half = len(chunk.keys) // 2
        self._chunks.insert(at + 1, Chunk(chunk.keys[half:], chunk.entries[half:]))
        self._last_keys.insert(at, chunk.keys[half - 1])
        del chunk.keys[half:], chunk.entries[half:]
