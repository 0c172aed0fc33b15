"""What the agents of clusters may do: read their own Cluster and what they need to know, and report. Nothing else."""

from fairlead.authz.chain import Decision
from fairlead.authz.components import Bearers
from fairlead.core.call import Target
from fairlead.core.user import User
from fairlead.kinds.agent import AGENT
from fairlead.storage.view import Entry, View

_OWN = frozenset({("get", ""), ("get", "accesskey"), ("get", "agentconfig"), ("create", "agentreport")})
_ITSELF = Decision(True, "the agent of this cluster")


class Agents:
    """The authorizer for the agents of clusters."""

    def __init__(self, api_group: str, view: View) -> None:
        self._group = api_group
        self._bearers = Bearers(AGENT, api_group, view)

    def __call__(self, user: User, target: Target) -> Decision | None:
        if (target.group, target.resource) != (self._group, AGENT.plural) or target.namespace or target.via:
            return None
        if (target.verb, target.subresource) not in _OWN or not target.name:
            return None
        return _ITSELF if self._bearers.owner(user) == target.name else None

    def of(self, user: User, target: Target, entry: Entry) -> Decision | None:
        return self(user, target)

    def stands(self, user: User, target: Target) -> bool:
        """There is nothing that agents would list."""
        return False
