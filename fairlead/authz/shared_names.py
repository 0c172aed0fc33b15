"""Who is named in the objects of one kind, as an owner or in an access entry that lets somebody get the object.

`authz/sharing.py` asks it whether somebody who may not list all objects gets some of them. Without this, each such
request would have to decode all objects there are, just to be refused. Names are counted, so that what one object gives
can be taken back without looking at the others.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from fairlead.authz.people import own_names
from fairlead.core.slices import in_slices
from fairlead.core.user import User
from fairlead.storage.view import Entry, View
from fairlead.storage.watchers import Transition, Watcher

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
