"""Authorizers for components of the platform: runners and cluster agents.

A component authenticates with the key that was issued for its Runner or Cluster, as long as that object exists.

A runner may read its Runner and write its status; get, list and watch the workspaces whose `spec.runnerRef.runner`
names it, in any namespace, and write their status; and create Events in namespaces where it has workspaces. An agent
may read its Cluster, its key and its configuration, and send reports.
"""

import msgspec

from fairlead.authz import Decision
from fairlead.core.call import Target
from fairlead.core.user import User
from fairlead.kinds.access.components import Component
from fairlead.kinds.clusters.cluster import AGENT
from fairlead.kinds.clusters.runner import RUNNER_COMPONENT
from fairlead.storage.view.view import Entry, View

KEYS = "ownedaccesskeys"


class _Reference(msgspec.Struct):
    kind: str = ""
    uid: str = ""


class _Meta(msgspec.Struct):
    uid: str = ""
    ownerReferences: list[_Reference] | None = None


class _Owned(msgspec.Struct):
    """The uid and the owner references of an object, decoded without the rest."""

    metadata: _Meta


_owned = msgspec.json.Decoder(_Owned).decode


class Bearers:
    """Resolves a user to the component, of one type, that its key was issued for."""

    def __init__(self, component: Component, api_group: str, view: View) -> None:
        self._component = component
        self._group = api_group
        self._view = view

    def owner(self, user: User) -> str | None:
        """The name of the Runner or Cluster that the user represents; None for all other users."""
        prefix = self._component.subject_prefix
        if not user.name.startswith(prefix) or user.name not in user.groups:
            return None
        name = user.name.removeprefix(prefix)
        owner = self._view.get((self._group, self._component.plural, "", name))
        if owner is None:
            return None
        key = self._view.get((self._group, KEYS, "", user.key)) if user.key else None
        references = (_owned(key.body).metadata.ownerReferences or ()) if key is not None else ()
        # A key of an earlier object with this name is not valid any more; it will be garbage collected.
        uid = _owned(owner.body).metadata.uid
        foreign = any(each.kind == self._component.owner and each.uid != uid for each in references)
        return None if foreign else name


RUNNERS, WORKSPACES, EVENTS = "runners", "devpodworkspaceinstances", "events"
BOUND_TO = "spec.runnerRef.runner"

_RUNNER_VERBS = frozenset(
    {("get", ""), ("get", "status"), ("update", "status"), ("patch", "status"), ("get", "config")}
)
_WORKSPACE_VERBS = frozenset(
    {("get", ""), ("list", ""), ("watch", ""), ("get", "status"), ("update", "status"), ("patch", "status")}
)
_RUNNER_ITSELF = Decision(True, "the runner itself")
_WORKSPACE = Decision(True, "a workspace that is bound to this runner")
_EVENT = Decision(True, "an Event in a namespace with a workspace that is bound to this runner")


class Runners:
    """The authorizer for runners."""

    def __init__(self, api_group: str, view: View) -> None:
        self._group = api_group
        self._view = view
        self._bearers = Bearers(RUNNER_COMPONENT, api_group, view)

    def __call__(self, user: User, target: Target) -> Decision | None:
        name = self._bearers.owner(user)
        if name is None:
            return None
        if (target.group, target.resource) == (self._group, RUNNERS):
            own = target.name == name and not target.namespace
            return _RUNNER_ITSELF if own and (target.verb, target.subresource) in _RUNNER_VERBS else None
        if (target.group, target.resource) == (self._group, WORKSPACES) and target.name:
            entry = self._view.get((self._group, WORKSPACES, target.namespace, target.name))
            return None if entry is None else _bound(name, target, entry)
        if (target.group, target.resource) == ("", EVENTS):
            return self._event(name, target)
        return None

    def of(self, user: User, target: Target, entry: Entry) -> Decision | None:
        if (entry.key[0], entry.key[1]) != (self._group, WORKSPACES):
            return self(user, target)
        name = self._bearers.owner(user)
        return None if name is None else _bound(name, target, entry)

    def stands(self, user: User, target: Target) -> bool:
        """A runner may list and watch its workspaces even if there are none yet."""
        return (target.group, target.resource) == (self._group, WORKSPACES) and self._bearers.owner(user) is not None

    def _event(self, name: str, target: Target) -> Decision | None:
        if target.verb != "create" or target.subresource or not target.namespace:
            return None
        entries = self._view.entries(self._group, WORKSPACES, target.namespace)
        return _EVENT if any(entry.fields.get(BOUND_TO) == name for entry in entries) else None


def _bound(runner: str, target: Target, entry: Entry) -> Decision | None:
    if (target.verb, target.subresource) not in _WORKSPACE_VERBS:
        return None
    return _WORKSPACE if entry.fields.get(BOUND_TO) == runner else None


_AGENT_VERBS = frozenset({("get", ""), ("get", "accesskey"), ("get", "agentconfig"), ("create", "agentreport")})
_AGENT_ITSELF = Decision(True, "the agent of this cluster")


class Agents:
    """The authorizer for cluster agents."""

    def __init__(self, api_group: str, view: View) -> None:
        self._group = api_group
        self._bearers = Bearers(AGENT, api_group, view)

    def __call__(self, user: User, target: Target) -> Decision | None:
        if (target.group, target.resource) != (self._group, AGENT.plural) or target.namespace or target.via:
            return None
        if (target.verb, target.subresource) not in _AGENT_VERBS or not target.name:
            return None
        return _AGENT_ITSELF if self._bearers.owner(user) == target.name else None

    def of(self, user: User, target: Target, entry: Entry) -> Decision | None:
        return self(user, target)

    def stands(self, user: User, target: Target) -> bool:
        """Agents list nothing."""
        return False
