"""What runners may do: look after their own Runner, and after the workspaces that are bound to them.

A runner is whoever comes with the key that was made for a Runner that is still there. It reads its Runner and writes
the status of that; it reads, lists and watches the workspaces whose `spec.runnerRef.runner` names it, in whichever
namespace, and writes their status; and it records Events where it has workspaces. Nothing else.
"""

from fairlead.authz.chain import Decision
from fairlead.authz.components import Bearers
from fairlead.core.call import Target
from fairlead.core.user import User
from fairlead.kinds.runner import RUNNER_COMPONENT
from fairlead.storage.view import Entry, View

RUNNERS, WORKSPACES, EVENTS = "runners", "devpodworkspaceinstances", "events"
BOUND_TO = "spec.runnerRef.runner"

_OWN = frozenset({("get", ""), ("get", "status"), ("update", "status"), ("patch", "status"), ("get", "config")})
_BOUND = frozenset(
    {("get", ""), ("list", ""), ("watch", ""), ("get", "status"), ("update", "status"), ("patch", "status")}
)
_ITSELF = Decision(True, "the runner itself")
_WORKSPACE = Decision(True, "a workspace that is bound to this runner")
_EVENT = Decision(True, "an Event beside a workspace that is bound to this runner")


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
            return _ITSELF if own and (target.verb, target.subresource) in _OWN else None
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
        """A runner lists and watches its workspaces also before there are any."""
        return (target.group, target.resource) == (self._group, WORKSPACES) and self._bearers.owner(user) is not None

    def _event(self, name: str, target: Target) -> Decision | None:
        if target.verb != "create" or target.subresource or not target.namespace:
            return None
        entries = self._view.entries(self._group, WORKSPACES, target.namespace)
        return _EVENT if any(entry.fields.get(BOUND_TO) == name for entry in entries) else None


def _bound(runner: str, target: Target, entry: Entry) -> Decision | None:
    if (target.verb, target.subresource) not in _BOUND:
        return None
    return _WORKSPACE if entry.fields.get(BOUND_TO) == runner else None
