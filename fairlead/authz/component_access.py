"""Authorizers for components of the platform: runners and cluster agents.

A component authenticates with the key that was issued for its Runner or Cluster, as long as that object exists.

A runner may read its Runner, write its status and open its link; get, list and watch the workspaces whose
`spec.runnerRef.runner` names it, in any namespace, read their credentials and write their status; renew its Lease; and
create Events in namespaces where it has workspaces. An agent may read its Cluster, its key and its configuration, and
send reports.
"""

import msgspec

from fairlead.core.call import Decision, RequestInfo
from fairlead.core.user import User
from fairlead.kinds.access.access_key import OWNED_ACCESS_KEY
from fairlead.kinds.access.components import Component
from fairlead.kinds.clusters.cluster import AGENT
from fairlead.kinds.clusters.runner import (
    HEARTBEAT_NAMESPACE,
    LEASES,
    LEASES_GROUP,
    RUNNER,
    RUNNER_COMPONENT,
    heartbeat_lease,
)
from fairlead.kinds.core.event import EVENT
from fairlead.kinds.instances.workspace import WORKSPACE
from fairlead.storage.view.view import Entry, View


class _Reference(msgspec.Struct):
    kind: str = ""
    uid: str = ""


class _Meta(msgspec.Struct):
    uid: str = ""
    ownerReferences: list[_Reference] | None = None


class _OwnedObject(msgspec.Struct):
    """The uid and the owner references of an object, decoded without the rest."""

    metadata: _Meta


_decode_owned = msgspec.json.Decoder(_OwnedObject).decode


class ComponentResolver:
    """Resolves a user to the component, of one type, that its key was issued for."""

    def __init__(self, component: Component, api_group: str, view: View) -> None:
        self._component = component
        self._group = api_group
        self._view = view

    def component_of(self, user: User) -> str | None:
        """The name of the Runner or Cluster that the user represents; None for all other users."""
        prefix = self._component.subject_prefix
        if not user.name.startswith(prefix) or user.name not in user.groups:
            return None
        name = user.name.removeprefix(prefix)
        owner = self._view.get((self._group, self._component.plural, "", name))
        if owner is None:
            return None
        key = self._view.get((self._group, OWNED_ACCESS_KEY.plural, "", user.key)) if user.key else None
        references = (_decode_owned(key.body).metadata.ownerReferences or ()) if key is not None else ()
        # A key of an earlier object with this name is not valid any more; it will be garbage collected.
        uid = _decode_owned(owner.body).metadata.uid
        foreign = any(each.kind == self._component.owner and each.uid != uid for each in references)
        return None if foreign else name


RUNNER_REF_FIELD = "spec.runnerRef.runner"

_RUNNER_VERBS = frozenset(
    {("get", ""), ("get", "status"), ("update", "status"), ("patch", "status"), ("get", "config"), ("get", "link")}
)
_WORKSPACE_VERBS = frozenset(
    {
        *(("get", ""), ("list", ""), ("watch", ""), ("get", "credentials")),
        *(("get", "status"), ("update", "status"), ("patch", "status")),
    }
)
_LEASE_VERBS = frozenset({"get", "create", "update"})
"""A PUT creates the Lease, too; POST names no object, so it is not allowed."""
_ALLOW_LEASE = Decision(True, "the Lease of this runner")
_ALLOW_RUNNER = Decision(True, "the runner itself")
_ALLOW_WORKSPACE = Decision(True, "a workspace that is bound to this runner")
_ALLOW_EVENT = Decision(True, "an Event in a namespace with a workspace that is bound to this runner")


class RunnerAuthorizer:
    """The authorizer for runners."""

    def __init__(self, api_group: str, view: View) -> None:
        self._group = api_group
        self._view = view
        self._components = ComponentResolver(RUNNER_COMPONENT, api_group, view)

    def __call__(self, user: User, target: RequestInfo) -> Decision | None:
        name = self._components.component_of(user)
        if name is None:
            return None
        if (target.group, target.resource) == (self._group, RUNNER.plural):
            own = target.name == name and not target.namespace
            return _ALLOW_RUNNER if own and (target.verb, target.subresource) in _RUNNER_VERBS else None
        if (target.group, target.resource) == (self._group, WORKSPACE.plural) and target.name:
            entry = self._view.get((self._group, WORKSPACE.plural, target.namespace, target.name))
            return None if entry is None else _authorize_workspace(name, target, entry)
        if (target.group, target.resource) == ("", EVENT.plural):
            return self._authorize_event(name, target)
        if (target.group, target.resource) == (LEASES_GROUP, LEASES) and target.verb in _LEASE_VERBS:
            own = (target.namespace, target.name, target.subresource) == (
                HEARTBEAT_NAMESPACE,
                heartbeat_lease(name),
                "",
            )
            return _ALLOW_LEASE if own else None
        return None

    def authorize_object(self, user: User, target: RequestInfo, entry: Entry) -> Decision | None:
        if (entry.key[0], entry.key[1]) != (self._group, WORKSPACE.plural):
            return self(user, target)
        name = self._components.component_of(user)
        return None if name is None else _authorize_workspace(name, target, entry)

    def may_see_some(self, user: User, target: RequestInfo) -> bool:
        """A runner may list and watch its workspaces even if there are none yet."""
        return (target.group, target.resource) == (self._group, WORKSPACE.plural) and self._components.component_of(
            user
        ) is not None

    def _authorize_event(self, name: str, target: RequestInfo) -> Decision | None:
        if target.verb != "create" or target.subresource or not target.namespace:
            return None
        entries = self._view.entries(self._group, WORKSPACE.plural, target.namespace)
        return _ALLOW_EVENT if any(entry.fields.get(RUNNER_REF_FIELD) == name for entry in entries) else None


def _authorize_workspace(runner: str, target: RequestInfo, entry: Entry) -> Decision | None:
    if (target.verb, target.subresource) not in _WORKSPACE_VERBS:
        return None
    return _ALLOW_WORKSPACE if entry.fields.get(RUNNER_REF_FIELD) == runner else None


_AGENT_VERBS = frozenset({("get", ""), ("get", "accesskey"), ("get", "agentconfig"), ("create", "agentreport")})
_ALLOW_AGENT = Decision(True, "the agent of this cluster")


class AgentAuthorizer:
    """The authorizer for cluster agents."""

    def __init__(self, api_group: str, view: View) -> None:
        self._group = api_group
        self._components = ComponentResolver(AGENT, api_group, view)

    def __call__(self, user: User, target: RequestInfo) -> Decision | None:
        if (target.group, target.resource) != (self._group, AGENT.plural) or target.namespace or target.gateway:
            return None
        if (target.verb, target.subresource) not in _AGENT_VERBS or not target.name:
            return None
        return _ALLOW_AGENT if self._components.component_of(user) == target.name else None

    def authorize_object(self, user: User, target: RequestInfo, entry: Entry) -> Decision | None:
        return self(user, target)

    def may_see_some(self, user: User, target: RequestInfo) -> bool:
        """Agents list nothing."""
        return False
