"""Objects in key order, in chunks of neighbours. Used by Collection for lists.

An insert moves the rest of one chunk, not of a million objects. The encoded bytes of a chunk are joined once, when
first needed, and cached in the `JoinedBytesCache` until a member changes. So a list of ten thousand objects is built
from a few dozen pieces.

Chunks are copy-on-write: one that is part of a `ChunkSlice` is not modified any more, but replaced by a copy. So a
slice is an immutable snapshot.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

from fairlead.core.concurrency import cut
from fairlead.storage.contract import Key
from fairlead.storage.view.entry import Entry

LONGEST = 256
"""Larger chunks make lists cheaper, but the first list after a change more expensive."""
KEPT_BYTES = 64 * 1024 * 1024
"""Total size of the cached bytes. Chunks that do not fit are joined again for each list."""
PIECE_BYTES = 1024 * 1024
"""Maximum bytes to join at once. Larger chunks are not cached, because joining large objects saves little."""

Join = Callable[[Sequence[Entry]], bytes]


class Run:
    """Some neighbours, and their joined bytes if cached."""

    __slots__ = ("entries", "joined", "keys", "lent", "live")

    def __init__(self, keys: list[Key], entries: list[Entry]) -> None:
        self.keys = keys
        self.entries = entries
        self.joined: bytes | None = None
        self.lent = False
        self.live = True


class Kept:
    """A bounded cache of joined bytes. When it is full, the oldest entries are dropped."""

    __slots__ = ("_runs", "size")

    def __init__(self) -> None:
        self._runs: dict[Run, None] = {}
        self.size = 0

    def add(self, run: Run, joined: bytes) -> None:
        if not run.live or len(joined) > KEPT_BYTES:
            return
        run.joined = joined
        self._runs[run] = None
        self.size += len(joined)
        while self.size > KEPT_BYTES:
            self.drop(next(iter(self._runs)))

    def drop(self, run: Run) -> None:
        if run.joined is not None:
            self.size -= len(run.joined)
            run.joined = None
            del self._runs[run]


class Stretch:
    """An immutable snapshot of a range of objects."""

    __slots__ = ("_kept", "_length", "_pieces")

    def __init__(self, pieces: list[tuple[Run, int, int]], kept: Kept) -> None:
        self._pieces = pieces
        self._kept = kept
        self._length = sum([stop - start for _, start, stop in pieces])
        for run, _, _ in pieces:
            run.lent = True

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

    def parts(self, most: int) -> Iterator[list[Entry]]:
        """The entries in batches of at most `max_entries`.

        A slow consumer should use this: a list of all entries takes long to copy, and slows down every garbage
        collection while it exists.
        """
        for run, start, stop in self._pieces:
            for at in range(start, stop, most):
                yield run.entries[at : min(at + most, stop)]

    def joined(self, join: Join) -> Iterator[bytes]:
        """The joined bytes of all entries, one piece per chunk, or several if its objects are large.

        Pieces are built lazily from the snapshot. `join` must always be the same for one collection.
        """
        for run, start, stop in self._pieces:
            is_whole = stop - start == len(run.entries)
            if is_whole and run.joined is not None:
                yield run.joined
                continue
            parts = list(cut(run.entries if is_whole else run.entries[start:stop], _size, PIECE_BYTES))
            for part in parts:
                piece = join(part)
                if is_whole and len(parts) == 1:
                    self._kept.add(run, piece)
                yield piece


def _size(entry: Entry) -> int:
    return len(entry.body)


class Runs:
    """All objects of one resource, sorted by key."""

    __slots__ = ("_kept", "_lasts", "_runs")

    def __init__(self, kept: Kept, entries: Sequence[Entry] = ()) -> None:
        """`entries` are the initial objects, sorted by key."""
        self._kept = kept
        pieces = [entries[start : start + LONGEST] for start in range(0, len(entries), LONGEST)]
        self._runs = [Run([entry.key for entry in piece], list(piece)) for piece in pieces]
        self._lasts = [run.keys[-1] for run in self._runs]
        """The last key of each chunk."""

    def put(self, entry: Entry) -> None:
        """Insert or replace an object."""
        key = entry.key
        at = bisect_left(self._lasts, key)
        if at == len(self._runs):
            self._append(entry)
            return
        run = self._changeable(at)
        position = bisect_left(run.keys, key)
        if run.keys[position] == key:
            run.entries[position] = entry
            return
        run.keys.insert(position, key)
        run.entries.insert(position, entry)
        if len(run.keys) > LONGEST:
            self._split(at, run)

    def drop(self, key: Key) -> None:
        """Remove an existing object."""
        at = bisect_left(self._lasts, key)
        run = self._changeable(at)
        position = bisect_left(run.keys, key)
        del run.keys[position], run.entries[position]
        if run.keys:
            self._lasts[at] = run.keys[-1]
        else:
            del self._runs[at], self._lasts[at]

    def count(self, low: Key, high: Key) -> int:
        """The number of objects from `low` to before `high`."""
        if low >= high:  # continue tokens come from clients and may point anywhere
            return 0
        first, start = self._find(low)
        last, stop = self._find(high)
        return sum([len(run.keys) for run in self._runs[first:last]]) - start + stop

    def stretch(self, low: Key, high: Key, limit: int = 0) -> Stretch:
        """The objects from `low` to before `high`, at most `limit` (0 = all)."""
        at, start = self._find(low)
        last, end = self._find(high)
        room = limit or -1
        pieces: list[tuple[Run, int, int]] = []
        while room and (at < last or (at == last and start < end)):
            run = self._runs[at]
            stop = end if at == last else len(run.keys)
            if 0 < room < stop - start:
                stop = start + room
            pieces.append((run, start, stop))
            room -= stop - start if room > 0 else 0
            at, start = at + 1, 0
        return Stretch(pieces, self._kept)

    def _find(self, key: Key) -> tuple[int, int]:
        """The chunk index, and the position within it, of the first object not before `key`."""
        at = bisect_left(self._lasts, key)
        return (at, bisect_left(self._runs[at].keys, key)) if at < len(self._runs) else (at, 0)

    def _append(self, entry: Entry) -> None:
        """Append after all others. Increasing names thus fill chunks completely, without splits."""
        at = len(self._runs) - 1
        if at < 0 or len(self._runs[at].keys) >= LONGEST:
            self._runs.append(Run([entry.key], [entry]))
            self._lasts.append(entry.key)
            return
        run = self._changeable(at)
        run.keys.append(entry.key)
        run.entries.append(entry)
        self._lasts[at] = entry.key

    def _changeable(self, at: int) -> Run:
        """The chunk, or a copy in its place if a slice shares it."""
        run = self._runs[at]
        self._kept.drop(run)
        if run.lent:
            run.live = False
            run = self._runs[at] = Run(run.keys.copy(), run.entries.copy())
        return run

    def _split(self, at: int, run: Run) -> None:
        half = len(run.keys) // 2
        self._runs.insert(at + 1, Run(run.keys[half:], run.entries[half:]))
        self._lasts.insert(at, run.keys[half - 1])
        del run.keys[half:], run.entries[half:]
