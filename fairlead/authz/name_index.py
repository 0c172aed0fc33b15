"""Who is named in the objects of one kind, as an owner or in an access entry that lets somebody get the object.

`authz/ownership.py` asks it whether somebody who may not list all objects gets some of them. Without this, each such
request would have to decode all objects there are, just to be refused. Names are counted, so that what one object gives
can be taken back without looking at the others.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from fairlead.core.concurrency import in_slices
from fairlead.core.user import TEAM_GROUP, USER_GROUP, User
from fairlead.storage.view.fan_out import Transition, Watcher
from fairlead.storage.view.view import Entry, View

# DOC-MERGED authz/people
# Whether names of users and teams in an object mean somebody. `*` means every user, or the members of every team.


ANY = "*"
KEPT = 4096
"""Identities whose names are kept ready. More than this many in use at a time only cost time."""

Own = tuple[frozenset[str], frozenset[str]]
"""The names that mean somebody: of users, and of teams."""

_kept: dict[int, tuple[tuple[str, ...], Own]] = {}
"""By the identity of the groups, and with the groups: while they are in here, nothing else can have their identity."""


def own_names(user: User) -> Own:
    """The names of users and teams that mean this user: objects name thousands of people, and nobody has more than a
    few names."""
    kept = _kept.get(id(user.groups))
    if kept is not None:
        return kept[1]
    if len(_kept) >= KEPT:
        _kept.clear()
    users = frozenset(each.removeprefix(USER_GROUP) for each in user.groups if each.startswith(USER_GROUP))
    teams = frozenset(each.removeprefix(TEAM_GROUP) for each in user.groups if each.startswith(TEAM_GROUP))
    own = users, teams | {ANY} if teams else teams
    _kept[id(user.groups)] = user.groups, own
    return own


def is_user(user: User, names: Iterable[str]) -> bool:
    """Users only: keys of teams and of machines have names, too, that might be the same."""
    return not own_names(user)[0].isdisjoint(names)


def in_team(user: User, names: Iterable[str]) -> bool:
    """Members of a team, and the team's own keys."""
    return not own_names(user)[1].isdisjoint(names)


def owns(user: User, owner_user: str | None, owner_team: str | None) -> bool:
    """An owner is one user or one team; `*` is nobody here."""
    users, teams = own_names(user)
    if owner_user and owner_user != ANY and owner_user in users:
        return True
    return bool(owner_team) and owner_team != ANY and owner_team in teams


QUEUE = 100_000
"""Changes that may wait. They do not wait for long, so there are never as many."""
AT_ONCE = 100
"""Changes that are taken in before others get their turn."""

Named = tuple[str, bool, str]
"""The namespace (empty: any), whether it is a team, and the name."""
Read = Callable[[Entry], Iterator[tuple[bool, str]]]
"""Those to whom an object gives something: whether it is a team, and the name."""


class SharedNames:
    """Follows one resource in the view, once it has been built."""

    def __init__(self, view: View, group: str, plural: str, read: Read) -> None:
        self._view = view
        self._resource = (group, plural)
        self._read = read
        self._watcher: Watcher[Entry] | None = None
        self._counts: Counter[Named] = Counter()
        self._built = False
        self._lost = asyncio.Event()

    async def run(self) -> None:
        """Follows until it is cancelled. What was missed, as when the view has to be loaded again, is looked up."""
        while True:
            await self.build()
            await self._lost.wait()

    async def build(self) -> None:
        """Looks at all there is, in slices. What happens from now on is taken in as it comes."""
        if self._watcher is not None:
            self._watcher.bell = None
            self._view.unwatch(*self._resource, self._watcher)
        self._built = False
        self._lost.clear()
        self._counts.clear()
        self._watcher = self._view.watch(*self._resource, "", self._view.revision, QUEUE)
        entries = self._view.entries(*self._resource)
        async for some in in_slices(entries, lambda entry: len(entry.body)):
            for entry in some:
                self._count(entry, 1)
        self._built = True
        self._watcher.bell = self._hear
        self._hear()

    def has(self, user: User, namespace: str) -> bool | None:
        """Whether an object in the namespace (empty: in any) gives something to the user; None while it is not known,
        or not any more."""
        if not self._built or self._watcher is None or self._watcher.overflowed:
            return None
        self._take_in(self._watcher.drain())
        users, teams = own_names(user)
        if any((namespace, False, name) in self._counts for name in users):
            return True
        return any((namespace, True, name) in self._counts for name in teams)

    def _hear(self) -> None:
        """Something waits. It is taken in soon, whether anybody asks or not: else it would be much at a time."""
        asyncio.get_running_loop().call_soon(self._take_some)

    def _take_some(self) -> None:
        if self._watcher is None or self._watcher.overflowed:
            self._lost.set()
            return
        self._take_in(self._watcher.drain(AT_ONCE))
        if self._watcher.pending:
            self._hear()

    def _take_in(self, transitions: Iterable[Transition[Entry]]) -> None:
        for transition in transitions:
            if transition.previous is not None:
                self._count(transition.previous, -1)
            if transition.current is not None:
                self._count(transition.current, 1)

    def _count(self, entry: Entry, by: int) -> None:
        for is_team, name in self._read(entry):
            for namespace in {"", entry.key[2]}:
                key = (namespace, is_team, name)
                self._counts[key] += by
                if not self._counts[key]:
                    del self._counts[key]


# DOC-MERGED authz/rectangles
# Whether one of many rectangles has a point in it: pairs of sets, such as namespaces and names, or verbs and
# subresources. Asked for each object of a list, so the answer must not depend on how many there are.


WORD = 64
"""Rectangles that a bit mask compares at once."""

Rectangle = tuple[frozenset[str], frozenset[str]]
Posting = tuple[int, ...] | int
"""The rectangles that have a text: their numbers where they are few, a bit mask where they are many."""


class Rectangles:
    """For each text of each side, there are the rectangles that have it. At most one in `WORD` is looked at, and memory
    stays in proportion to what was given."""

    __slots__ = ("_columns", "_rectangles", "_rows", "weight")

    def __init__(self, rectangles: Sequence[Rectangle]) -> None:
        few = max(4, len(rectangles) // WORD)
        self._rectangles = rectangles
        self._rows = _postings((row for row, _ in rectangles), few)
        self._columns = _postings((column for _, column in rectangles), few)
        self.weight = sum(len(row) + len(column) for row, column in rectangles)

    def hold(self, row: str, column: str) -> bool:
        some, others = self._rows.get(row), self._columns.get(column)
        if some is None or others is None:
            return False
        if isinstance(others, int):
            if isinstance(some, int):
                return bool(some & others)
            return any(column in self._rectangles[index][1] for index in some)
        if isinstance(some, int) or len(others) < len(some):
            return any(row in self._rectangles[index][0] for index in others)
        return any(column in self._rectangles[index][1] for index in some)


def _postings(sets: Iterable[frozenset[str]], few: int) -> dict[str, Posting]:
    found: dict[str, list[int]] = {}
    for index, each in enumerate(sets):
        for text in each:
            found.setdefault(text, []).append(index)
    return {text: tuple(indexes) if len(indexes) <= few else _mask(indexes) for text, indexes in found.items()}


def _mask(indexes: Sequence[int]) -> int:
    octets = bytearray(indexes[-1] // 8 + 1)
    for index in indexes:
        octets[index // 8] |= 1 << index % 8
    return int.from_bytes(octets, "little")
