"""Writes team membership to `status.teams` of users and `status.members` of teams, for display only.

Authorization does not use these fields: `authn/principals.py` computes the same by itself. One change can affect all
users and teams, so all are compared in memory at once, and only differences are written.
"""

from collections.abc import Iterable
from contextlib import suppress

from fairlead.authn.principals import TEAMS, USERS, PrincipalDirectory
from fairlead.authn.sign_on_policy import SignOnPolicy
from fairlead.core.errors import NotFound
from fairlead.core.objects import Object, get_path
from fairlead.kinds.clusters.config import CONFIG
from fairlead.registry.informer import Informer
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import server_write_options
from fairlead.storage.contract import Key
from fairlead.storage.view.view import Entry


class TeamMembershipController:
    name, workers = "team-membership", 1

    def __init__(self, registry: Registry, api_group: str) -> None:
        self.watches = ((api_group, USERS), (api_group, TEAMS), (api_group, CONFIG.plural))
        self._registry = registry
        self._group = api_group
        self._users = Informer(registry.view, api_group, USERS)
        self._teams = Informer(registry.view, api_group, TEAMS)
        sign_on = SignOnPolicy(registry.view, api_group)
        self._principals = PrincipalDirectory(self._users, self._teams, sign_on=sign_on)

    def keys_for(self, key: Key, entry: Entry | None) -> Iterable[Key]:
        """One fixed key for all users and teams, and for the rules in the Config."""
        return ((self._group, TEAMS, "", "*"),)

    async def reconcile(self, key: Key) -> float | None:
        teams = self._principals.memberships()
        members: dict[str, list[str]] = {name: [] for _, name in self._teams.objects}
        for user, of_user in sorted(teams.items()):
            for team in of_user:
                members[team].append(user)
        await self._write_changed(USERS, "teams", self._users, teams)
        await self._write_changed(TEAMS, "members", self._teams, members)
        return None

    async def _write_changed(self, plural: str, field: str, informer: Informer, desired: dict[str, list[str]]) -> None:
        current = {name: get_path(obj, f"status.{field}") or [] for (_, name), obj in informer.objects.items()}
        for name, names in desired.items():
            if current.get(name) != names:
                await self._write_field(plural, name, field, names)

    async def _write_field(self, plural: str, name: str, field: str, names: list[str]) -> None:
        def edit(obj: Object) -> Object:
            return {**obj, "status": {**(obj.get("status") or {}), field: names}}

        options = server_write_options("status")
        with suppress(NotFound):
            await self._registry.resource(self._group, plural).modify("", name, edit, options)
