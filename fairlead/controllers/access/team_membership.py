"""Writes team membership to `status.teams` of users and `status.members` of teams, for display only.

Authorization does not use these fields: `authn/principals.py` computes the same by itself. One change can affect all
users and teams, so all are compared in memory at once, and only differences are written.
"""

from collections.abc import Iterable
from contextlib import suppress

from fairlead.authn.principals import TEAMS, USERS, People
from fairlead.core.errors import NotFound
from fairlead.core.objects import Object, dig
from fairlead.registry.informer import Following
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import by_the_server
from fairlead.storage.contract import Key
from fairlead.storage.view.view import Entry


class Memberships:
    name, workers = "memberships", 1

    def __init__(self, registry: Registry, api_group: str) -> None:
        self.watches = ((api_group, USERS), (api_group, TEAMS))
        self._registry = registry
        self._group = api_group
        self._users = Following(registry.view, api_group, USERS)
        self._teams = Following(registry.view, api_group, TEAMS)
        self._people = People(self._users, self._teams)

    def concerned(self, key: Key, entry: Entry | None) -> Iterable[Key]:
        """One fixed key for all users and teams."""
        return ((self._group, TEAMS, "", "*"),)

    async def reconcile(self, key: Key) -> float | None:
        teams = self._people.memberships()
        members: dict[str, list[str]] = {name: [] for _, name in self._teams.objects}
        for user, of_user in sorted(teams.items()):
            for team in of_user:
                members[team].append(user)
        await self._write(USERS, "teams", self._users, teams)
        await self._write(TEAMS, "members", self._teams, members)
        return None

    async def _write(self, plural: str, field: str, following: Following, wanted: dict[str, list[str]]) -> None:
        current = {name: dig(obj, f"status.{field}") or [] for (_, name), obj in following.objects.items()}
        for name, names in wanted.items():
            if current.get(name) != names:
                await self._set(plural, name, field, names)

    async def _set(self, plural: str, name: str, field: str, names: list[str]) -> None:
        def edit(obj: Object) -> Object:
            return {**obj, "status": {**(obj.get("status") or {}), field: names}}

        options = by_the_server("status")
        with suppress(NotFound):
            await self._registry.resource(self._group, plural).modify("", name, edit, options)
