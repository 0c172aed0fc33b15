"""Who may open a port of a workspace in a browser: who may use the workspace, and those with whom it is shared."""

from collections.abc import Callable
from dataclasses import dataclass

from fairlead.authz.name_index import is_user
from fairlead.core.call import MANAGEMENT, Authorize, Decision, RequestInfo
from fairlead.core.clock import Clock
from fairlead.core.user import User
from fairlead.domain.port_shares import PortShare, find_shares
from fairlead.domain.secret_references import ADMINISTRATORS
from fairlead.kinds.instances.workspace import PORT_ACCESS_SUBRESOURCE, USE, WORKSPACE
from fairlead.registry.codec import decode
from fairlead.storage.view.view import Entry, View

IsMember = Callable[[User, str], bool]
"""Whether a user is a member of the project with this namespace."""


@dataclass(frozen=True, slots=True)
class PortAccess:
    """Decides about one port. `authorize` decides about the verb `use`."""

    api_group: str
    view: View
    clock: Clock
    authorize: Authorize
    is_member: IsMember
    find_principal: Callable[[str], User | None]
    """The user or service account with this user name, if it is active."""

    def may_open(self, user: User, namespace: str, name: str, port: int = 0) -> Decision:
        """Whether the user may open this port; without one, whether there is any that the user may open."""
        target = RequestInfo(
            verb=USE,
            root=MANAGEMENT,
            group=self.api_group,
            version=WORKSPACE.version,
            resource=WORKSPACE.plural,
            namespace=namespace,
            name=name,
        )
        decision = self.authorize(user, target)
        if decision.allowed:
            return decision
        for share in self._shares(namespace, name):
            if self._includes(share, user, namespace, port) and self._is_sharer_allowed(share, target):
                return Decision(True, "a port of the workspace is shared with the user")
        return decision

    def _is_sharer_allowed(self, share: PortShare, target: RequestInfo) -> bool:
        """Whether who shares it may still use the workspace. Who does not may not let others do so, nor themselves."""
        if share.by == ADMINISTRATORS:
            return True
        sharer = self.find_principal(share.by) if share.by else None
        is_same = sharer is not None and sharer.uid in ("", share.by_uid)  # service accounts have none here
        return sharer is not None and is_same and self.authorize(sharer, target).allowed

    def _shares(self, namespace: str, name: str) -> list[PortShare]:
        entry = self.view.get((self.api_group, WORKSPACE.plural, namespace, name))
        return find_shares(decode(entry)) if entry is not None else []

    def _includes(self, share: PortShare, user: User, namespace: str, port: int) -> bool:
        """A key with a scope gets nothing from a share: its scope does not name it."""
        if user.scope is not None or not share.is_current(self.clock.now().timestamp()):
            return False
        if port and share.port != port:
            return False
        if share.project:
            return self.is_member(user, namespace)
        return is_user(user, (share.user,)) and user.uid == share.uid


class PortAccessAuthorizer:
    """The authorizer for requests to open a port. Which port it is, the handler checks."""

    def __init__(self, access: PortAccess) -> None:
        self._access = access

    def __call__(self, user: User, target: RequestInfo) -> Decision | None:
        if (target.group, target.resource) != (self._access.api_group, WORKSPACE.plural):
            return None
        if (target.verb, target.subresource) != ("create", PORT_ACCESS_SUBRESOURCE) or not target.name:
            return None
        decision = self._access.may_open(user, target.namespace, target.name)
        return decision if decision.allowed else None

    def authorize_object(self, user: User, target: RequestInfo, entry: Entry) -> Decision | None:
        return None

    def may_see_some(self, user: User, target: RequestInfo) -> bool:
        """A share of a port shows nothing of the workspace itself."""
        return False
