"""Rights that objects give by themselves: to their owner, and to those whom their `access` entries name.

For kinds declared as `shared`. The owner, or each member of an owning team, may do everything with the object but make
it; an entry gives its verbs on the object, and on the subresources that it names.
"""

import msgspec

from fairlead.authz.chain import Decision
from fairlead.authz.people import ANY, in_team, is_user, owns
from fairlead.core.call import Target
from fairlead.core.user import User
from fairlead.registry.catalog import Catalog
from fairlead.storage.view import Entry, View


class _Owner(msgspec.Struct):
    user: str | None = None
    team: str | None = None


class _Access(msgspec.Struct):
    name: str | None = None
    users: list[str] | None = None
    teams: list[str] | None = None
    verbs: list[str] | None = None
    subresources: list[str] | None = None


class _Spec(msgspec.Struct):
    owner: _Owner | None = None
    access: list[_Access] | None = None


class _Shared(msgspec.Struct):
    """Just enough of an object to find out whose it is."""

    spec: _Spec | None = None


_shared = msgspec.json.Decoder(_Shared).decode


class Sharing:
    """The authorizer for owners and access entries."""

    def __init__(self, catalog: Catalog, view: View) -> None:
        self._shared = {(kind.group, kind.plural) for kind in catalog.kinds if kind.shared}
        self._view = view

    def __call__(self, user: User, target: Target) -> Decision | None:
        if not target.name or (target.group, target.resource) not in self._shared:
            return None
        entry = self._view.get((target.group, target.resource, target.namespace, target.name))
        return None if entry is None else self.of(user, target, entry)

    def of(self, user: User, target: Target, entry: Entry) -> Decision | None:
        if (entry.key[0], entry.key[1]) not in self._shared or (target.verb == "create" and not target.subresource):
            return None
        spec = _shared(entry.body).spec
        if spec is None:
            return None
        reports = target.subresource == "status" and target.verb != "get"  # which is the server's to do
        if spec.owner is not None and not reports and owns(user, spec.owner.user, spec.owner.team):
            return Decision(True, "owner of the object")
        if any(_grants(access, user, target) for access in spec.access or ()):
            return Decision(True, "named in an access entry of the object")
        return None

    def stands(self, user: User, target: Target) -> bool:
        """Something here is the user's, or shared with it."""
        resource = (target.group, target.resource)
        if resource not in self._shared:
            return False
        get = Target("get", "")
        return any(self.of(user, get, entry) for entry in self._view.entries(*resource, target.namespace))


def _grants(access: _Access, user: User, target: Target) -> bool:
    if not _covers(access.verbs, target.verb):
        return False
    if target.subresource and not _covers(access.subresources, target.subresource):
        return False
    return is_user(user, access.users or ()) or in_team(user, access.teams or ())


def _covers(names: list[str] | None, wanted: str) -> bool:
    return names is not None and (wanted in names or ANY in names)
