"""The authorizer for owners and access entries, which are part of the spec of an object.

For kinds that declare access entries. The owner, or each member of an owning team, has every verb on the object but
`create`. An access entry allows its verbs on the object, and on the subresources that it names.
"""

import asyncio
from collections.abc import Iterator

import msgspec

from fairlead.authz.name_index import ANY, RectangleIndex, SharedNameIndex, matching_names, owns
from fairlead.core.call import Decision, RequestInfo
from fairlead.core.user import User
from fairlead.registry.kind import Catalog
from fairlead.storage.view.view import Entry, View


class _Owner(msgspec.Struct):
    user: str | None = None
    team: str | None = None


class _AccessEntry(msgspec.Struct):
    name: str | None = None
    users: list[str] | None = None
    teams: list[str] | None = None
    verbs: list[str] | None = None
    subresources: list[str] | None = None


class _Spec(msgspec.Struct):
    owner: _Owner | None = None
    access: list[_AccessEntry] | None = None


class _SharedObject(msgspec.Struct):
    """The owner and the access entries of an object, decoded without the rest."""

    spec: _Spec | None = None


_decode_shared = msgspec.json.Decoder(_SharedObject).decode


class OwnerAuthorizer:
    """The authorizer for owners and access entries."""

    def __init__(self, catalog: Catalog, view: View) -> None:
        self._shared = {(kind.group, kind.plural) for kind in catalog.kinds if kind.has_access_entries}
        self._view = view
        self._name_indexes = {
            resource: SharedNameIndex(view, *resource, _names_that_may_get) for resource in sorted(self._shared)
        }
        self._last_grants: tuple[Entry, tuple[str, ...], ObjectGrants] | None = None

    def __call__(self, user: User, target: RequestInfo) -> Decision | None:
        if not target.name or (target.group, target.resource) not in self._shared:
            return None
        entry = self._view.get((target.group, target.resource, target.namespace, target.name))
        return None if entry is None else self.authorize_object(user, target, entry)

    def authorize_object(self, user: User, target: RequestInfo, entry: Entry) -> Decision | None:
        if (entry.key[0], entry.key[1]) not in self._shared or (target.verb == "create" and not target.subresource):
            return None
        grants = self._grants_for(user, entry)
        reports = target.subresource == "status" and target.verb != "get"  # only the server writes the status
        if grants.is_owner and not reports:
            return _ALLOW_OWNER
        return _ALLOW_ACCESS_ENTRY if grants.allows(target.verb, target.subresource) else None

    def _grants_for(self, user: User, entry: Entry) -> "ObjectGrants":
        """Caches the last result: admission authorizes many requests for the same user and object in a row."""
        last = self._last_grants
        if last is not None and last[0] is entry and last[1] is user.groups:
            return last[2]
        grants = ObjectGrants(_decode_shared(entry.body).spec, user)
        self._last_grants = entry, user.groups, grants
        return grants

    async def run(self) -> None:
        """Maintains the name indexes in the background. Until they are built, `may_see_some` decodes all objects."""
        async with asyncio.TaskGroup() as group:
            for names in self._name_indexes.values():
                group.create_task(names.run())

    def may_see_some(self, user: User, target: RequestInfo) -> bool:
        """Whether the user owns an object of the resource, or one is shared with the user."""
        resource = (target.group, target.resource)
        if resource not in self._shared:
            return False
        known = self._name_indexes[resource].names_user(user, target.namespace)
        if known is not None:
            return known
        get = RequestInfo("get", "")
        return any(self.authorize_object(user, get, entry) for entry in self._view.entries(*resource, target.namespace))


def _names_that_may_get(entry: Entry) -> Iterator[tuple[bool, str]]:
    """The users and teams that may get an object as its owner or by an access entry, consistent with `ObjectGrants`."""
    spec = _decode_shared(entry.body).spec
    owner = spec.owner if spec is not None else None
    for is_team, name in ((False, owner.user), (True, owner.team)) if owner is not None else ():
        if name and name != ANY:
            yield is_team, name
    for each in (spec.access if spec is not None else None) or ():
        if "get" in (each.verbs or ()) or ANY in (each.verbs or ()):
            yield from ((False, name) for name in each.users or ())
            yield from ((True, name) for name in each.teams or ())


_ALLOW_OWNER = Decision(True, "owner of the object")
_ALLOW_ACCESS_ENTRY = Decision(True, "named in an access entry of the object")


class ObjectGrants:
    """What one object allows one user as its owner or by access entries."""

    __slots__ = ("_access", "_subresources", "_verbs", "is_owner")

    def __init__(self, spec: _Spec | None, user: User) -> None:
        owner = spec.owner if spec is not None else None
        users, teams = matching_names(user)
        self.is_owner = owner is not None and owns(user, owner.user, owner.team)
        self._access = [
            each
            for each in (spec.access if spec is not None else None) or ()
            if not users.isdisjoint(each.users or ()) or not teams.isdisjoint(each.teams or ())
        ]
        self._verbs: frozenset[str] | None = None
        self._subresources: RectangleIndex | None = None

    def allows(self, verb: str, subresource: str) -> bool:
        if not self._access:
            return False
        if not subresource:
            if self._verbs is None:
                self._verbs = frozenset(each for access in self._access for each in access.verbs or ())
            return verb in self._verbs or ANY in self._verbs
        if self._subresources is None:
            self._subresources = RectangleIndex(
                [(frozenset(each.verbs or ()), frozenset(each.subresources or ())) for each in self._access]
            )
        return any(self._subresources.contains(one, other) for one in {verb, ANY} for other in {subresource, ANY})
