"""Indexes of user and team names for authorization decisions that must not scan all objects.

`SharedNameIndex` counts the users and teams that the objects of one resource name as owner or in an access entry with
`get`. `authz/ownership.py` uses it to decide whether a user who may not list all objects may get some of them; without
it, each such request would decode all objects. Names are counted, so that a deletion needs no rescan.

`RectangleIndex` decides whether a pair, such as a namespace and a name or a verb and a subresource, is in one of many
cross products of sets. It runs for each object of a list, so its cost must not depend on their number.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from fairlead.core.bounded_cache import BoundedCache
from fairlead.core.concurrency import iter_slices
from fairlead.core.user import TEAM_GROUP_PREFIX, USER_GROUP_PREFIX, User
from fairlead.storage.view.fan_out import Transition, Watcher
from fairlead.storage.view.view import Entry, View

ANY = "*"
"""As a name in an object: every user, or the members of every team."""
NAME_CACHE_SIZE = 4096
"""Maximum number of cached group tuples."""

MatchingNames = tuple[frozenset[str], frozenset[str]]
"""The names in an object that match a user: user names, and team names."""

_name_cache: BoundedCache[int, tuple[tuple[str, ...], MatchingNames]] = BoundedCache(NAME_CACHE_SIZE)
"""By `id` of the group tuple. The tuple is stored, too, so that its id cannot be reused while it is in the cache."""


def matching_names(user: User) -> MatchingNames:
    """The user and team names that match this user. Small, while an object may name thousands of users."""
    cached = _name_cache.get(id(user.groups))
    if cached is not None:
        return cached[1]
    users = frozenset(
        each.removeprefix(USER_GROUP_PREFIX) for each in user.groups if each.startswith(USER_GROUP_PREFIX)
    )
    teams = frozenset(
        each.removeprefix(TEAM_GROUP_PREFIX) for each in user.groups if each.startswith(TEAM_GROUP_PREFIX)
    )
    own = users, teams | {ANY} if teams else teams
    _name_cache[id(user.groups)] = user.groups, own
    return own


def is_user(user: User, names: Iterable[str]) -> bool:
    """Whether one of the names is this user. False for keys of teams and components, whose names might be equal."""
    return not matching_names(user)[0].isdisjoint(names)


def in_team(user: User, names: Iterable[str]) -> bool:
    """Whether the user is a member of one of the teams, or uses a key of the team itself."""
    return not matching_names(user)[1].isdisjoint(names)


def owns(user: User, owner_user: str | None, owner_team: str | None) -> bool:
    """Whether the user is the owner, or in the owning team. `*` is not valid as an owner."""
    users, teams = matching_names(user)
    if owner_user and owner_user != ANY and owner_user in users:
        return True
    return bool(owner_team) and owner_team != ANY and owner_team in teams


MAX_QUEUED_CHANGES = 100_000
"""Maximum number of queued changes. They are processed promptly, so it is not reached in practice."""
CHANGE_BATCH_SIZE = 100
"""Changes to process before yielding to the event loop."""

NameKey = tuple[str, bool, str]
"""The namespace (empty: any), whether the name is that of a team, and the name."""
NameReader = Callable[[Entry], Iterator[tuple[bool, str]]]
"""Yields the users and teams that may get an object: whether it is a team, and the name."""


class SharedNameIndex:
    """Counts the names in the objects of one resource, and watches the resource after `build`."""

    def __init__(self, view: View, group: str, plural: str, read_names: NameReader) -> None:
        self._view = view
        self._resource = (group, plural)
        self._read_names = read_names
        self._watcher: Watcher[Entry] | None = None
        self._counts: Counter[NameKey] = Counter()
        self._is_built = False
        self._watch_lost = asyncio.Event()

    async def run(self) -> None:
        """Runs until cancelled. Rebuilds the index if the watch was lost, for example when the view was reloaded."""
        while True:
            await self.build()
            await self._watch_lost.wait()

    async def build(self) -> None:
        """Starts a watch and indexes all objects, in slices."""
        if self._watcher is not None:
            self._watcher.on_ready = None
            self._view.unwatch(*self._resource, self._watcher)
        self._is_built = False
        self._watch_lost.clear()
        self._counts.clear()
        self._watcher = self._view.watch(*self._resource, "", self._view.revision, MAX_QUEUED_CHANGES)
        entries = self._view.entries(*self._resource)
        async for some in iter_slices(entries, lambda entry: len(entry.body)):
            for entry in some:
                self._count(entry, 1)
        self._is_built = True
        self._watcher.on_ready = self._schedule_batch
        self._schedule_batch()

    def names_user(self, user: User, namespace: str) -> bool | None:
        """Whether an object in the namespace (empty: any) names the user; None while the index is not available."""
        if not self._is_built or self._watcher is None or self._watcher.overflowed:
            return None
        self._apply(self._watcher.drain())
        users, teams = matching_names(user)
        if any((namespace, False, name) in self._counts for name in users):
            return True
        return any((namespace, True, name) in self._counts for name in teams)

    def _schedule_batch(self) -> None:
        """Schedules the processing of queued changes, so that they do not accumulate until the next lookup."""
        asyncio.get_running_loop().call_soon(self._process_batch)

    def _process_batch(self) -> None:
        if self._watcher is None or self._watcher.overflowed:
            self._watch_lost.set()
            return
        self._apply(self._watcher.drain(CHANGE_BATCH_SIZE))
        if self._watcher.has_pending:
            self._schedule_batch()

    def _apply(self, transitions: Iterable[Transition[Entry]]) -> None:
        for transition in transitions:
            if transition.previous is not None:
                self._count(transition.previous, -1)
            if transition.current is not None:
                self._count(transition.current, 1)

    def _count(self, entry: Entry, by: int) -> None:
        for is_team, name in self._read_names(entry):
            for namespace in {"", entry.key[2]}:
                key = (namespace, is_team, name)
                self._counts[key] += by
                if not self._counts[key]:
                    del self._counts[key]


WORD_BITS = 64
"""How many rectangles a machine word of a bit mask compares."""

Rectangle = tuple[frozenset[str], frozenset[str]]
"""A cross product of two sets, rows and columns."""
Posting = tuple[int, ...] | int
"""The rectangles with a value: their numbers if they are few, a bit mask if they are many."""


class RectangleIndex:
    """An inverted index over rectangles. A lookup compares at most one in `WORD_BITS` of them, and memory is
    proportional to the input."""

    __slots__ = ("_columns", "_rectangles", "_rows", "weight")

    def __init__(self, rectangles: Sequence[Rectangle]) -> None:
        few = max(4, len(rectangles) // WORD_BITS)
        self._rectangles = rectangles
        self._rows = _build_postings((row for row, _ in rectangles), few)
        self._columns = _build_postings((column for _, column in rectangles), few)
        self.weight = sum(len(row) + len(column) for row, column in rectangles)

    def contains(self, row: str, column: str) -> bool:
        some = self._rows.get(row)
        others = self._columns.get(column)
        if some is None or others is None:
            return False
        if isinstance(others, int):
            if isinstance(some, int):
                return bool(some & others)
            return any(column in self._rectangles[index][1] for index in some)
        if isinstance(some, int) or len(others) < len(some):
            return any(row in self._rectangles[index][0] for index in others)
        return any(column in self._rectangles[index][1] for index in some)


def _build_postings(sets: Iterable[frozenset[str]], few: int) -> dict[str, Posting]:
    found: dict[str, list[int]] = {}
    for index, each in enumerate(sets):
        for text in each:
            found.setdefault(text, []).append(index)
    return {text: tuple(indexes) if len(indexes) <= few else _bit_mask(indexes) for text, indexes in found.items()}


def _bit_mask(indexes: Sequence[int]) -> int:
    octets = bytearray(indexes[-1] // 8 + 1)
    for index in indexes:
        octets[index // 8] |= 1 << index % 8
    return int.from_bytes(octets, "little")
