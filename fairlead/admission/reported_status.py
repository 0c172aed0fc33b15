"""What the server found out about clusters, spaces and virtual clusters is written by the server alone.

Its controllers go by this status: it says what is rendered and to be deployed with the credential that is stored for a
cluster, whose a namespace is, and where a gateway leads. So nobody else writes it, whatever rights they hold on
`status`, but administrators, who could have the credential itself.
"""

from fairlead.admission.chain import Rule, concerning, is_one_of
from fairlead.core.errors import Forbidden
from fairlead.core.objects import name_of
from fairlead.core.user import CONTROLLER
from fairlead.registry.kind import Change
from fairlead.registry.registry import Registry

PLURALS = ("clusters", "spaceinstances", "virtualclusterinstances")


def reported_status(api_group: str) -> Rule:
    @concerning(lambda kind, verb: verb == "update" and is_one_of(kind, api_group, *PLURALS))
    async def rule(change: Change, registry: Registry) -> None:
        free = change.user == CONTROLLER or change.user.holds_everything
        if change.subresource != "status" or free or change.new is None:
            return
        if (change.old or {}).get("status") != change.new.get("status"):
            why = "its status is what the server found out, and is written by the server; change its spec instead"
            raise Forbidden.of(change.kind.plural, change.kind.group, name_of(change.new), why)

    return rule
