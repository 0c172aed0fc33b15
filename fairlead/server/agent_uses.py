"""Who may `use` a cluster, and each of the spaces in it: told to its agent, which lets in nobody else.

An agent works while this server is down, so it cannot ask about whoever comes. It is told the answers before: the uids
of those users and teams whom the gateways here would let through. Everybody is asked about, which takes a while where
there are many, so others get their turn meanwhile, and the answers are kept until rights or people have changed.
`agents.py` calls.
"""

import asyncio
from typing import Protocol

from fairlead.authn.people import People
from fairlead.core.call import MANAGEMENT, Target, Verdict
from fairlead.core.objects import Object, metadata
from fairlead.core.user import User
from fairlead.registry.kind import Kind

AT_ONCE = 100
"""How many are asked about before others get their turn."""


class Permissions(Protocol):
    """What `authz` knows of everybody."""

    def decide(self, user: User, target: Target) -> Verdict: ...

    def generation(self) -> object:
        """Another value whenever anybody's permissions have changed."""


class Uses:
    """The answers about all objects, kept while they hold."""

    def __init__(self, people: People, permissions: Permissions) -> None:
        self._people = people
        self._permissions = permissions
        self._generation: object = None
        self._everybody: list[User] = []
        self._kept: dict[tuple[str, int], list[str]] = {}

    async def of(self, kind: Kind, obj: Object) -> list[str]:
        """The uids of those who may use an object."""
        self._refresh(self._permissions.generation())
        # Whose an object is, and with whom it is shared, changes with its generation; its status changes all the time.
        place = metadata(obj)["uid"], metadata(obj).get("generation", 0)
        found = self._kept.get(place)
        if found is None:
            found = await self._asked(_use(kind, obj), place)
        return found

    async def _asked(self, target: Target, place: tuple[str, int]) -> list[str]:
        generation, found = self._generation, list[str]()
        for count, user in enumerate(self._everybody, 1):
            if self._permissions.decide(user, target).allowed:
                found.append(user.uid)
            if count % AT_ONCE == 0:
                await asyncio.sleep(0)
        if self._generation == generation:  # what is old already is told once more, and then no longer
            self._kept[place] = found
        return found

    def _refresh(self, generation: object) -> None:
        if generation != self._generation:
            users = [user for _, user in self._people.all_users()]
            self._everybody = [*users, *map(self._people.as_team, self._people.all_teams())]
            self._generation, self._kept = generation, {}


def _use(kind: Kind, obj: Object) -> Target:
    meta = metadata(obj)
    place = {"namespace": meta.get("namespace", ""), "name": meta["name"]}
    return Target("use", "", MANAGEMENT, kind.group, kind.version, kind.plural, **place)
